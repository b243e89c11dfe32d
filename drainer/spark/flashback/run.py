"""Flashback: what happened to tables in a range of an archive is taken back.

Out    the file, or the rows as they were before the range; a summary
Holds  the net effect of the range is found by Spark, one row a key: the first image before wins. Transaction
       by transaction, the last one is taken back first. Either way the order depends on the range, and on the
       keys that tables had when it began, so a run that was killed resumes
Never  goes across a schema change of one of the tables: it is refused, and named
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.image_sql_plan import ImageSqlPlan
from drainer.mysql.rows.change import TableTarget
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.session_mode import DEFAULT
from drainer.spark.effects.operations import RowEffect
from drainer.spark.engine import SMALL_BYTES, SparkOf
from drainer.spark.flashback import undo
from drainer.spark.flashback.restore import CHUNK_ROWS, Restorer
from drainer.spark.flashback.undo import Tally, Undo, body, header
from drainer.spark.replay.archive_range import ArchiveRange, Effects
from drainer.spark.replay.job import Bucket, Frozen, Job, stored
from drainer.spark.replay.writer import DownstreamTables
from tidb_binlog.errors import ConfigError, Conflict, Rejected
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.time_text import utc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NET: Final = "net"
TRANSACTIONS: Final = "transactions"
WAYS: Final = (NET, TRANSACTIONS)
Progress = Callable[[int], None]
TargetOf = Callable[[RowEffect], TableTarget]


@dataclass(frozen=True, slots=True)
class FlashbackSummary:
    """What was done. `rows`: by table, then delete, overwrite, insert. `resumed`: a former run had begun."""

    start: int
    stop: int
    way: str
    undone: int
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    resumed: bool = False


class _Going:
    """One flashback: the range, what there is to know of the tables, undos in their order."""

    def __init__(
        self,
        spark: SparkSession | SparkOf,
        archive: str,
        options: Mapping[str, str],
        way: str,
        small_bytes: int,
    ) -> None:
        if way not in WAYS:
            raise ConfigError(f"{way!r} is no way to go back", hint=f"choose from {', '.join(WAYS)}")
        self.way = way
        self._small_bytes = small_bytes
        self.range = ArchiveRange.open(spark, archive, options)
        if self.range.selection.ops:
            raise ConfigError("a flashback takes back all kinds of changes", hint="leave --ops away")

    def refuse_schema_changes(self) -> None:
        selection = self.range.selection
        for change, _ in self.range.outline.changes:
            ddl = change.ddl
            if not selection.wants_ts(ddl.commit_ts):
                continue
            names = [".".join(name).rstrip(".") for name in ddl.tables if selection.wants_table(*name)]
            raise Rejected(
                f"a schema change in the range cannot be taken back: commit_ts {ddl.commit_ts}"
                f" ({utc(ddl.commit_ts)}) on {', '.join(names) or ddl.schema}: {ddl.query}",
                hint="choose --start after it or --stop before it, or leave its tables out with --tables",
            )

    def targets(self, connection: Connection | None) -> TargetOf:
        """Tables as a database has them, or as they are upstream."""
        definitions, selection = self.range.definitions, self.range.selection
        if connection is None:
            by_number: dict[int, TableTarget] = {}

            def upstream_target(effect: RowEffect) -> TableTarget:
                number = effect.definition
                if number not in by_number:
                    by_number[number] = target_of(definitions.version(number), 1, plan=ImageSqlPlan)
                return by_number[number]

            return upstream_target
        catalog = DownstreamTables(definitions, connection, selection)
        catalog.prepare(selection.start)
        versions = [
            definition.version
            for definition in definitions
            if selection.wants_table(definition.schema, definition.table)
        ]
        tables = catalog.tables(versions)
        return lambda effect: tables.target(effect.definition, effect.table)

    def effects(self) -> Effects:
        """What `undos` goes through."""
        if self.way == NET:
            return self.range.net(self._small_bytes)
        return self.range.by_transaction(self._small_bytes)

    def net(self) -> Effects:
        return self.range.net(self._small_bytes)

    def undos(self, effects: Effects, target: TargetOf) -> Iterator[Undo]:
        if self.way == TRANSACTIONS:
            for _, some in itertools.groupby(effects, lambda effect: effect.last_ts):
                yield from undo.of_effects(some, target)
            return
        for phase in (undo.REMOVALS, undo.WRITES):
            row_undos = (undo.of_effect(effect, phase, target(effect)) for effect in effects)
            yield from (row_undo for row_undo in row_undos if row_undo is not None)

    def summary(self, tally: Tally, *, resumed: bool = False) -> FlashbackSummary:
        rows = {
            label: {kind.name.lower(): number for kind, number in sorted(kinds.items())}
            for label, kinds in sorted(tally.rows.items())
        }
        selection = self.range.selection
        warnings = tuple(tally.warnings)
        return FlashbackSummary(
            selection.start, selection.stop, self.way, tally.total, rows, warnings, resumed
        )

    def about(self) -> list[str]:
        selection = self.range.selection
        first = f"{selection.start} ({utc(selection.start)})" if selection.start else "its beginning"
        way = "net effect of the range" if self.way == NET else "each transaction, the last one first"
        return [
            f"flashback of {self.range.options.location.shown}",
            f"from {first} to {selection.stop} ({utc(selection.stop)}), both included",
            f"tables: {', '.join(selection.tables) or 'all'}",
            f"way: {way}",
        ]


def write_script(
    spark: SparkSession | SparkOf,
    archive: str,
    path: str,
    options: Mapping[str, str] | None = None,
    *,
    way: str = NET,
    small_bytes: int = SMALL_BYTES,
    database: Target | None = None,
) -> FlashbackSummary:
    """Write the statements to a file that is not there yet. With `database`, for its tables as they are.

    Raises `ConfigError`, `Rejected` for a schema change in the range.
    """
    if os.path.exists(path):
        raise ConfigError(f"{path} is there already", hint="name another file, or move it away")
    going = _Going(spark, archive, options or {}, way, small_bytes)
    going.refuse_schema_changes()
    connection = connect(database) if database is not None else None
    tally, part = Tally(), f"{path}.part"
    try:
        with going.effects() as effects, open(part, "w+b") as file:
            undos = going.undos(effects, going.targets(connection))
            file.writelines(body(undos, DEFAULT, tally))
            _finish(file, path, header(going.about(), DEFAULT, tally))
    finally:
        if connection is not None:
            connection.close()
        if os.path.exists(part):
            os.unlink(part)
    return going.summary(tally)


def _finish(statements: BinaryIO, path: str, head: bytes) -> None:
    """The header tells what the body holds, so it is known last. Under its name the file is whole."""
    statements.seek(0)
    whole = f"{path}.whole"
    try:
        with open(whole, "wb") as file:
            file.write(head)
            shutil.copyfileobj(statements, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        os.link(whole, path)  # unlike a rename it takes no other file's place
    finally:
        os.unlink(whole)


def apply(
    spark: SparkSession | SparkOf,
    archive: str,
    database: Target,
    options: Mapping[str, str] | None = None,
    *,
    way: str = NET,
    small_bytes: int = SMALL_BYTES,
    job: str = "",
    on_progress: Progress | None = None,
) -> FlashbackSummary:
    """Bring the rows of a database back. `job`: another name, to take back the same range once more.

    Raises `Rejected` for a schema change in the range, `restoring.Drifted` where rows are not as the archive
    says they are after it.
    """
    going = _Going(spark, archive, options or {}, way, small_bytes)
    job = job or _job_of(going)
    begun = stored(database, job)
    if begun is not None:
        going.range = going.range.until(begun.stop)
    going.refuse_schema_changes()
    connection = connect(replace(database, read_timeout_s=None))
    try:
        named = Job(connection, job)
        if named.open(_frozen(going)).done:
            raise Rejected(
                f"this range was taken back before, by job {named.name}",
                hint="to do it once more, after its changes were made again, give the job another name",
            )
        restorer = Restorer(connection, database, Bucket(named.name, 0, 0, 0))
        target = _SameSteps(going.targets(connection))
        resumed = restorer.begun()
        if not resumed:
            with going.net() as net:
                whole = (undo.whole(effect, target(effect)) for effect in net)
                restorer.check(row_undo for row_undo in whole if row_undo is not None)
            named.reach(0)  # of a run that wrote nothing nothing is settled
        target.settle(named)
        tally = Tally()
        with going.effects() as effects:
            restorer.apply(_told(going.undos(effects, target), tally), on_progress)
        named.finish()
        return going.summary(tally, resumed=resumed)
    finally:
        connection.close()


class _SameSteps:
    """Tables as they are now, none of which may have other keys than when the job wrote its first chunk:
    other rows would be in the chunks that are done."""

    def __init__(self, target_of: TargetOf) -> None:
        self._target_of = target_of
        self._steps: dict[TableTarget, int] = {}
        self._settled: frozenset[int] = frozenset()

    def settle(self, job: Job) -> None:
        """What a run that began found, or the first one that wrote."""
        self._settled = job.settle(frozenset(self._steps.values()))

    def __call__(self, effect: RowEffect) -> TableTarget:
        """Raises `Conflict`."""
        target = self._target_of(effect)
        if target not in self._steps:
            self._steps[target] = undo.steps_of(target)
            if self._settled and self._steps[target] not in self._settled:
                raise Conflict(
                    f"table {target.label} has other unique keys or triggers than when this job began",
                    hint="give them back, and run the same command again: it goes on from what is there",
                )
        return target


def _told(undos: Iterable[Undo], tally: Tally) -> Iterator[Undo]:
    for row_undo in undos:
        tally.note(row_undo)
        yield row_undo


def _job_of(going: _Going) -> str:
    """The same for the same request."""
    frozen = _frozen(going)
    asked = [frozen.archive, frozen.kind, frozen.start, frozen.asked_stop, frozen.tables]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _frozen(going: _Going) -> Frozen:
    selection = going.range.selection
    return Frozen(
        archive=going.range.options.location.shown,
        kind=f"flashback, {going.way}",
        start=selection.start,
        stop=selection.stop,
        asked_stop=going.range.asked_stop,
        tables=selection.tables,
        chunk_rows=CHUNK_ROWS,
        safe=False,
    )
