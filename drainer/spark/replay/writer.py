"""Writer: chunks of effects become statements and go downstream, each chunk in one transaction, once.

Drives  one connection; `row_fold`, `statement` (cores) for what to write, `job` for what is written
Holds   a chunk's rows and its place in `spark_progress` commit together. After a lost connection or an
        ambiguous COMMIT the place says whether the chunk is in
Never   reads definitions downstream: the driver did, once a step (`Tables`)
Tests   tests/spark/replay/test_writer.py, tests/spark/replay/test_entry.py

What passes by itself is tried again for a while; then, as for what does not pass, the task fails, and Spark
runs it again, on another host if it has one. Where rows may wait, a chunk is written without the tables whose
rows are refused for good, and that is stored with it: whoever drives the job sees to them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import IntEnum
from typing import Any, Final, TypeAlias

from drainer.mysql.connection import TIDB_CHECKS_AT_ONCE, Connection, Target, set_if_known
from drainer.mysql.errors import (
    SessionError,
    StatementRefused,
    Trouble,
    broken_key,
    safe_text,
    trouble_of,
)
from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.refusal import not_as_upstream, refusal_of
from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import APPEND, DROP_ONE, PUT_MOVED, Change, Form, TableTarget
from drainer.mysql.rows.column_match import FULL, DownstreamTable
from drainer.mysql.rows.row_fold import TableFold
from drainer.mysql.rows.statement import Statement, removals, writes
from drainer.mysql.rows.table_target import missing, target_of
from drainer.mysql.session import DownstreamSession, run
from drainer.mysql.table_reader import read_table
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.selection import Selection
from drainer.relay import downstream_definitions
from drainer.spark.effects.operations import OPERATION, RowEffect, table_id
from drainer.spark.replay.job import AGAIN, WENT_BACK, Bucket, LessThere
from drainer.txn import TableVersion
from tidb_binlog.backoff import Backoff
from tidb_binlog.errors import DownstreamError, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.row_error import UnsupportedTable
from tidb_binlog.tso import Ts

STATEMENT_BYTES_MAX: Final = 1 << 20
_PACKET_SLACK_BYTES: Final = 4096
RESUMES: Final = "correct the downstream, then run the same command again: it resumes there"
_TRIES_MAX: Final = 12  # about half a minute, but for locks


class Phase(IntEnum):
    """What of a chunk's effects is written."""

    ALL = 0
    REMOVALS = 1  # before anything else of the step: see `Tables.apart`
    UNDO = 2  # after it, the reverse: of tables without a key of which some chunks were left out
    LATE = 3  # before that: what is found for certain only when all else is there


Undone: TypeAlias = Mapping[int, Set[tuple[int, int, int]]]
"""Tables without a key, with the places (phase, bucket, chunk) of chunks that were written without them."""


@dataclass(frozen=True)
class Taking:
    """What a Drainer's configuration says of rows that do not fit. `rows_may_wait`: chunks are written
    without tables whose rows are refused for good. `strict`: rows that are not as they should be are an
    error. `sync_mode` as in `column_match`. `log_values`: errors may show row values."""

    rows_may_wait: bool = False
    strict: bool = False
    sync_mode: int = FULL
    log_values: bool = False


NOT_SAID: Final = Taking()


@dataclass(frozen=True)
class Tables:
    """What there is to know of the tables of a step; travels to tasks.

    `downstream`: by table. `apart`: tables whose removals, of all chunks, go before all their writes, since
    the server may take different keys for the same, or rows compete for values of other unique keys.
    """

    definitions: Definitions
    downstream: Mapping[int, DownstreamTable]
    apart: frozenset[int] = frozenset()
    sync_mode: int = FULL
    _targets: dict[int, TableTarget] = field(default_factory=dict, repr=False, compare=False)

    def target(self, definition: int, table: int) -> TableTarget:
        target = self._targets.get(definition)
        if target is None:
            version = self.definitions.version(definition)
            theirs = self.downstream.get(table)
            if theirs is None:
                raise missing(version)
            mode, plan = self.sync_mode, ImageSqlPlan
            target = self._targets[definition] = target_of(version, 1, theirs, sync_mode=mode, plan=plan)
        return target

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_targets": {}}


class TableRefused(DownstreamError):
    """The downstream takes no such rows of one table."""

    def __init__(self, message: str, table: int, *, hint: str = RESUMES) -> None:
        super().__init__(message, hint=hint)
        self.table = table


def taken_back(
    effects: Iterable[RowEffect], undone: Undone, bucket: int, chunk: int, tables: Tables
) -> list[RowEffect]:
    """The reverse of what a chunk has written of tables without a key: a row that came goes."""
    place = Phase.ALL, bucket, chunk
    written = (effect for effect in effects if place not in undone.get(effect[0], {place}))
    return [RowEffect._make((*each[:-1], -each[-1])) for each in written if not _is_late(each, tables)]


def _is_late(effect: RowEffect, tables: Tables) -> bool:
    """Whether a row goes that is known only in part (see `Statement.of_present_columns`): any row that is
    equal in that may be it, also one that another chunk brings."""
    table, *_, definition, image, _, times = effect
    if times >= 0 or image is None or table not in tables.downstream:
        return False
    try:
        return bool(tables.target(definition, table).sql.present_predicate("delete", image))
    except DownstreamError:  # `folds` says it
        return False


def folds(effects: Iterable[RowEffect], tables: Tables) -> dict[int, TableFold]:
    """Effects as the drainer's lanes have them, by table in order of first appearance. Raises `TableRefused`
    for a table that takes no rows as it is."""
    nets: dict[int, TableFold] = {}
    by_definition: dict[int, tuple[TableTarget, TableFold]] = {}
    for effect in effects:
        table, key, _, first_order, before, _, last_order, definition, image, reborn, times = effect
        pair = by_definition.get(definition)
        if pair is None:
            try:
                target = tables.target(definition, table)
            except DownstreamError as error:
                raise TableRefused(error.message, table, hint=error.hint or RESUMES) from None
            pair = by_definition[definition] = _fold_of(nets, table, target)
        target, net = pair
        if not target.keyed:
            change: Change = (target, APPEND if times > 0 else DROP_ONE, b"", image or b"", 0)
            net.ordered += [change] * abs(times)
            continue
        first, last = first_order & OPERATION, last_order & OPERATION
        change = net.last[key] = (target, last, key, image or b"", 0)
        if before is not None or first != last:
            change = (target, first, key, before or b"", 0)
        net.first[key] = change
        if reborn and first > PUT_MOVED:
            net.reborn.add(key)
    return nets


def _fold_of(nets: dict[int, TableFold], table: int, target: TableTarget) -> tuple[TableTarget, TableFold]:
    net = nets.get(table)
    if net is None:
        net = nets[table] = TableFold(target)
    net.mixed |= net.table is not target
    return target, net


def statements(
    nets: Mapping[int, TableFold], phase: Phase, apart: frozenset[int], bytes_max: int, *, safe: bool
) -> Iterator[Statement]:
    """In the order in which they are to run."""
    for table, net in nets.items():
        if phase is Phase.REMOVALS or table not in apart:
            yield from removals(net, bytes_max, replaying=safe)
        if phase is not Phase.REMOVALS:
            yield from writes(net, bytes_max, replaying=safe)


class Writer:
    """`safe`: rows may be downstream already, or be gone. Raises `DownstreamError`, `Unavailable`."""

    def __init__(self, target: Target, tables: Tables, *, safe: bool, taking: Taking = NOT_SAID) -> None:
        self._target = target
        self._tables = tables
        self._safe = safe
        self._taking = taking
        self._checks_at_once = False  # a TiDB looks at keys statement by statement, not when it commits
        self._session = DownstreamSession(target, self._prepare)
        self._bytes_max = STATEMENT_BYTES_MAX
        self._pause = threading.Event()

    def know(self, tables: Tables) -> None:
        """Of which tables rows come from now on."""
        self._tables = tables

    def close(self) -> None:
        self._session.close()

    def write(self, bucket: Bucket, chunk: int, phase: Phase, effects: Sequence[RowEffect]) -> bool:
        """Write a chunk; False if it was written before."""
        backoff, tries, keys = Backoff(0.05, 5.0), 0, len(effects)
        late = [each for each in effects if _is_late(each, self._tables)]
        if phase is Phase.LATE:
            effects = late
        elif late:
            effects = [each for each in effects if not _is_late(each, self._tables)]
        left_out: dict[int, str] = {}
        while True:
            try:
                nets = folds([each for each in effects if each[0] not in left_out], self._tables)
                return self._attempt(bucket, chunk, phase, nets, left_out, keys, len(late))
            except TableRefused as refused:
                self.close()
                if not self._taking.rows_may_wait or phase is Phase.UNDO:
                    raise DownstreamError(refused.message, hint=refused.hint) from None
                left_out[refused.table] = refused.message
            except LessThere:
                self.close()
                raise
            except (SessionError, Unavailable) as error:
                self.close()
                if broken_key(error) and not self._checks_at_once:
                    self._checks_at_once = True  # COMMIT was refused: the statement is to be found
                    continue
                trouble = trouble_of(error)
                tries += trouble is not Trouble.LOCK
                if trouble is None:
                    names = ", ".join(net.table.label for net in nets.values())
                    raise DownstreamError(
                        f"writing rows of {names}: downstream says {self._said(error)}",
                        hint=RESUMES,
                    ) from None
                if tries >= _TRIES_MAX:
                    raise Unavailable(
                        f"downstream {self._target!r}: {self._said(error)}",
                        hint="run the same command again once it is back: it resumes where it stopped",
                    ) from None
                self._pause.wait(backoff.next_s())

    def _attempt(
        self,
        bucket: Bucket,
        chunk: int,
        phase: Phase,
        nets: Mapping[int, TableFold],
        left_out: Mapping[int, str],
        keys: int,
        late_rows: int,
    ) -> bool:
        connection = self._session.open()
        following = bucket.next_chunk(connection)
        if following > chunk:
            connection.rollback()
            return False
        if following < chunk:
            words = f"chunk {following} of {bucket.job} is not there, and chunk {chunk} comes next"
            raise LessThere(f"{WENT_BACK}: {words}", hint=AGAIN)
        drift, texts = Counter[str](), Counter[str]()
        prepared = statements(nets, phase, self._tables.apart, self._bytes_max, safe=self._safe)
        for statement in prepared:
            rows = statement.drift(self._execute(connection, statement))
            if rows and not self._safe and (again := statement.of_present_columns(rows)) is not None:
                rows = again.drift(self._execute(connection, again))
            if rows and self._taking.strict:
                raise not_as_upstream("writing rows", statement.table, rows)
            if rows:
                drift[statement.table.label] += rows
            for column, values in statement.foreign_text:
                texts[f"{statement.table.label}.{column}"] += values
        for table, reason in left_out.items():
            bucket.leave_out(connection, chunk, table, reason)
        bucket.note(connection, drift, texts, late_rows if phase is Phase.ALL else 0)
        bucket.advance(connection, chunk, keys if phase is Phase.ALL else 0, drift.total())
        commit(connection)
        return True

    def _execute(self, connection: Connection, statement: Statement) -> int:
        table = statement.table
        try:
            return execute(connection, self._target, statement, self._bytes_max)
        except StatementRefused as error:
            if refusal_of(error, table, 0, 0) is None:
                raise
            said = f"writing rows of {table.label}: downstream says {self._said(error)}"
        except DownstreamError as error:
            raise TableRefused(error.message, table_id(table.version), hint=error.hint) from None
        raise TableRefused(said, table_id(table.version))

    def _prepare(self, connection: Connection) -> None:
        self._bytes_max = min(STATEMENT_BYTES_MAX, connection.packet_bytes_max() - _PACKET_SLACK_BYTES)
        if self._checks_at_once:
            set_if_known(connection, *TIDB_CHECKS_AT_ONCE)

    def _said(self, error: BaseException) -> str:
        return safe_text(error, values=self._taking.log_values)


def commit(connection: Connection) -> None:
    """Its answer may get lost although it was carried out."""
    connection.commit()


def execute(connection: Connection, target: Target, statement: Statement, bytes_max: int) -> int:
    """Run a statement; the rows it affected. Raises `DownstreamError` for one that the server never takes."""
    if len(statement.sql) > bytes_max and len(statement.sql) >= connection.packet_bytes_max():
        raise DownstreamError(
            f"a row of table {statement.table.label} needs a statement of {len(statement.sql)} bytes, more"
            " than max_allowed_packet of the downstream",
            hint="raise max_allowed_packet there, and run the same command again",
        )
    return run(connection, statement, target.mode)


# Downstream tables: what is known of the tables that rows go to, read once between two schema changes.
# Owns    the definitions of the archive, to which it adds those that only the downstream knows
# Holds   what it says is as after the last schema change that ran

_ALL: Final = Selection()


class DownstreamTables:
    def __init__(
        self,
        definitions: Definitions,
        connection: Connection,
        selection: Selection = _ALL,
        *,
        sync_mode: int = FULL,
    ) -> None:
        self.definitions = definitions
        self._connection = connection
        self._selection = selection
        self._sync_mode = sync_mode
        self._archived = {(table.schema, table.table) for table in definitions}
        self._downstream: dict[int, DownstreamTable] = {}
        self._fresh = False

    def forget(self) -> None:
        """A schema change ran."""
        self._downstream.clear()
        self._fresh = False

    def prepare(self, start_ts: Ts) -> None:
        """Before rows from `start_ts` on are read: tables that the archive does not define."""
        if self._fresh:
            return
        self._fresh = True
        for version in downstream_definitions.read(self._connection, self._is_undefined):
            self.definitions.add(start_ts, version.schema, version.name, version)

    def _is_undefined(self, schema: str, table: str) -> bool:
        return (schema, table) not in self._archived and self._selection.wants_table(schema, table)

    def tables(self, versions: Iterable[TableVersion]) -> Tables:
        """What a writer needs for rows of these. Tables that are missing downstream are left out."""
        apart = set()
        for version in versions:
            target = self._target(version)
            if target is None or not target.keyed:
                continue
            if target.form is Form.REWRITE or target.spread is not Spread.BY_KEY:
                apart.add(table_id(version))
        return Tables(self.definitions, dict(self._downstream), frozenset(apart), self._sync_mode)

    def keyless(self, versions: Iterable[TableVersion]) -> frozenset[int]:
        """Those of them that have no key."""
        return frozenset(
            table_id(version)
            for version in versions
            if (target := self._target(version)) is not None and not target.keyed
        )

    def before_of(self, versions: Iterable[TableVersion]) -> frozenset[int]:
        """Tables that keep rows in place whose unique values did not change: former images are needed."""
        return frozenset(
            table_id(version)
            for version in versions
            if (target := self._target(version)) is not None and target.gentle
        )

    def _target(self, version: TableVersion) -> TableTarget | None:
        """None if rows of it cannot go downstream now: they are of another time, a writer will say why, or
        there are none, of a view."""
        number = table_id(version)
        if number not in self._downstream:
            table = read_table(self._connection, *version.downstream)
            if table is None:
                return None
            self._downstream[number] = table
        try:
            return target_of(version, 1, self._downstream[number], sync_mode=self._sync_mode)
        except (DownstreamError, UnsupportedTable):
            return None
