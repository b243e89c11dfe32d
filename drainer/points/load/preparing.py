"""Preparing: the downstream made ready for rows: what is stored of the load, databases, tables.

Order   what is to be made is stored first, then made, then stored as READY: whatever a crash leaves is known
        to be the load's, and is made again
Holds   objects are made as a Drainer's derived DDL makes them, a table whole: one that a load made and did
        not get ready is dropped and made again. Views come last, in whatever order they let themselves be
        made: one may be made of another. What the downstream cannot have is stored, a line each
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from drainer.changes import ddl_effect
from drainer.checkpoint.job_findings import JobFindings
from drainer.checkpoint.load_progress import LoadedTable, LoadProgress, LoadState, TableState
from drainer.ddl.derive.render import Server
from drainer.ddl.run.execution import Ran
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, final_error
from drainer.mysql.literal.quoting import qualified, string_literal
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.session import DownstreamSession
from drainer.points.load.contents import Contents, Source
from drainer.points.load.reconcile import Mode, Reconciled, There, reconcile
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Ddl
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import log

logger = log.get("load")

Name = tuple[str, str]
_KINDS: Final[Mapping[str, str]] = {"VIEW": ddl_effect.VIEW, "SEQUENCE": ddl_effect.SEQUENCE}
_WORDS: Final[Mapping[str, str]] = {
    ddl_effect.TABLE: "TABLE",
    ddl_effect.VIEW: "VIEW",
    ddl_effect.SEQUENCE: "SEQUENCE",
}
_HINT: Final = "create it there by hand, or leave it out (ignore-table), and run the same command again"


class Definitions:
    """Blocks. Raises `DownstreamError` for what the downstream does not have any form of."""

    def __init__(self, runner: DdlRunner, schema_version: int, findings: JobFindings) -> None:
        self._runner = runner
        self._findings = findings
        self._version = schema_version
        self._numbers = itertools.count(1)  # the runner tells statements apart by their commit_ts

    def open(self) -> None:
        """Make the table of what is missing where it is not there."""
        self._runner.on_session(lambda connection, _: self._findings.create(connection))

    def missing(self, sources: Iterable[Source]) -> tuple[str, ...]:
        """What the downstream lacks of these, as far as a load has made them: this run or one before."""
        stored = self._runner.on_session(lambda connection, _: self._findings.missing(connection))
        return tuple(line for source in sources for line in stored.get(source.label, ()))

    def make_database(self, name: str, charset: str, collate: str) -> None:
        """`name` as upstream calls it; nothing where it is there."""
        info = {"db_name": {"O": name, "L": name.lower()}, "charset": charset, "collate": collate}
        self._run(ActionType.CREATE_SCHEMA, name, (name, ""), job={"binlog": {"DBInfo": info}})

    def make(self, source: Source) -> None:
        """What is there under its name, of whatever kind, is dropped first."""
        self._remove(source)
        self._note(source, self._create(source))

    def make_views(self, views: Sequence[Source]) -> None:
        waiting = list(views)
        for source in waiting:
            self._remove(source)
        while waiting:
            failed = [(source, ran) for source in waiting if (ran := self._create(source)).missing]
            if len(failed) == len(waiting):
                for source, ran in failed:
                    self._note(source, ran)
                return
            waiting = [source for source, _ in failed]

    def _remove(self, source: Source) -> None:
        self.drop(source.target)
        self._runner.on_session(lambda connection, _: self._findings.say(connection, source.label, ()))

    def drop(self, target: Name) -> None:
        """Whatever has that name."""

        def work(connection: Connection, _: Server) -> None:
            table = present(connection, [target]).get(target)
            if table is not None:
                word = _WORDS[table.kind].encode()
                connection.run(b"DROP %b IF EXISTS %b" % (word, qualified(*target)))

        self._runner.on_session(work)

    def empty(self, target: Name) -> None:
        """A table."""
        self._runner.on_session(lambda connection, _: connection.run(b"TRUNCATE TABLE " + qualified(*target)))

    def _create(self, source: Source) -> Ran:
        tracked = source.tracked
        return self._run(source.action, tracked.schema, source.name, source=source)

    def _run(
        self,
        action: int,
        schema: str,
        name: Name,
        *,
        source: Source | None = None,
        job: dict[str, Any] | None = None,
    ) -> Ran:
        ddl = Ddl(
            commit_ts=next(self._numbers),
            job_id=0,
            action=action,
            schema=schema,
            query="",
            tables=(name,),
            schema_version=self._version,
            job=job,
            after=() if source is None else (source.tracked,),
        )
        what = ".".join(part for part in name if part)
        try:
            return self._runner.run(ddl)
        except Refused as error:
            reason = error.message.partition("was refused: ")[2].partition("; statement")[0]
            raise DownstreamError(f"{what} cannot be made downstream: {reason}", hint=_HINT) from None
        except SessionError as error:
            raise final_error(error, f"making {what}") from None

    def _note(self, source: Source, ran: Ran) -> None:
        if not ran.missing:
            return
        logger.warning("the downstream lacks something of a table", table=source.label, missing=ran.missing)
        lines = [f"{source.label}: {line}" for line in ran.missing]
        self._runner.on_session(lambda connection, _: self._findings.say(connection, source.label, lines))


def present(connection: Connection, names: Iterable[Name]) -> dict[Name, There]:
    """Those of the names that are there, and whether tables have rows."""
    tables: dict[Name, There] = {}
    all_names = list(names)
    schemas = sorted({schema for schema, _ in all_names})
    ((folds,),) = connection.rows(b"SELECT @@lower_case_table_names")
    fold = str.lower if int(folds) else str  # to such a server Orders and orders are one table
    listed = {}
    for schema in schemas:
        rows = connection.rows(
            b"SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA="
            + string_literal(schema)
        )
        listed.update({(schema, fold(str(name))): str(kind).upper() for name, kind in rows})
    for name in all_names:
        kind = listed.get((name[0], fold(name[1])))
        if kind is None:
            continue
        of_kind = _KINDS.get(kind.replace("SYSTEM ", ""), ddl_effect.TABLE)
        has_rows = of_kind == ddl_effect.TABLE and bool(
            connection.rows(b"SELECT 1 FROM " + qualified(*name) + b" LIMIT 1")
        )
        tables[name] = There(of_kind, has_rows)
    return tables


Stored = tuple[Source, LoadedTable]


def look(
    connection: Connection, progress: LoadProgress, contents: Contents, mode: Mode, *, same_ts: bool
) -> Reconciled:
    """What is to be done, by what is there now. Raises `Rejected`."""
    stored, has_rows = [], frozenset[int]()
    if progress.state(connection) is not None:
        stored, has_rows = progress.tables(connection), progress.begun(connection)
    tables = present(connection, {source.target for source in contents.all})
    connection.rollback()
    keyless = {source.name for source in contents.tables if not target_of(source.version, 1).keyed}
    return reconcile(contents, stored, tables, mode, same_ts=same_ts, has_rows=has_rows, keyless=keyless)


class Preparing:
    """Of one pass. Blocks; raises `SessionError`, `DownstreamError`, `Conflict`."""

    def __init__(
        self,
        session: DownstreamSession,
        progress: LoadProgress,
        definitions: Definitions,
        state: LoadState,
        reconciled: Reconciled,
    ) -> None:
        self._session = session
        self._progress = progress
        self._definitions = definitions
        self._state = state
        self._reconciled = reconciled
        self._empties = Mode(state.mode) is not Mode.APPEND

    def store(self, also: Callable[[Connection], None]) -> None:
        """Take the load over, in one transaction with `also`."""
        begun = {table.target for _, table in self._reconciled.begun}
        with self._session.connection() as connection:
            also(connection)
            self._progress.take_over(connection, self._state)
            for table in self._reconciled.given_up:
                if table.target in begun:  # it is made anew
                    self._progress.forget_table(connection, table.number)
            self._progress.put_tables(connection, (table for _, table in self._reconciled.begun))
            connection.commit()

    def make_databases(self, contents: Contents, tracker: SchemaTracker) -> None:
        for name, _ in contents.databases:
            charset, collate = tracker.database_collation(name) or ("", "")
            self._definitions.make_database(name, charset, collate)

    def make_tables(self) -> None:
        """And sequences before them: a column's default may be the next value of one."""
        self._give_up()
        for kind in (ddl_effect.SEQUENCE, ddl_effect.TABLE):
            self._make(pair for pair in self._reconciled.all if pair[0].kind == kind)

    def make_views(self) -> None:
        views = [
            pair
            for pair in self._reconciled.all
            if pair[0].kind == ddl_effect.VIEW and pair[1].state is TableState.PLANNED
        ]
        self._definitions.make_views([source for source, table in views if table.is_new and source.creates])
        self._ready(table for _, table in views)

    def begin_anew(self, number: int) -> None:
        """A table whose stored chunks do not count: empty, without chunks."""
        source, table = next(pair for pair in self._reconciled.all if pair[1].number == number)
        with self._changing() as connection:
            self._progress.forget_chunks(connection, number)
            self._progress.set_table(connection, number, TableState.PLANNED)
        self._definitions.empty(source.target)
        self._ready([table])

    def _give_up(self) -> None:
        others = {table.target for _, table in self._reconciled.all}
        for table in self._reconciled.given_up:
            if table.target in others:
                continue
            if table.is_new:
                self._definitions.drop(table.target)
            elif self._empties:
                self._definitions.empty(table.target)
            with self._changing() as connection:
                self._progress.forget_table(connection, table.number)

    def _make(self, pairs: Iterable[Stored]) -> None:
        groups: dict[Name, list[Stored]] = {}
        for source, table in pairs:
            if table.state is TableState.PLANNED:
                groups.setdefault(table.target, []).append((source, table))
        for group in groups.values():
            source, table = group[0]
            if table.is_new:
                self._definitions.make(source)
            elif self._empties and source.kind == ddl_effect.TABLE:
                self._definitions.empty(table.target)
            self._ready(stored for _, stored in group)

    def _ready(self, tables: Iterable[LoadedTable]) -> None:
        with self._changing() as connection:
            for table in tables:
                self._progress.set_table(connection, table.number, TableState.READY)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Connection]:
        """A transaction about what is stored, while this load is the newest one."""
        with self._session.connection() as connection:
            self._progress.hold(connection, self._state.run)
            yield connection
            connection.commit()


def copied(pairs: Sequence[Stored]) -> list[Stored]:
    """Those whose rows are wanted."""
    return [pair for pair in pairs if pair[0].copies]
