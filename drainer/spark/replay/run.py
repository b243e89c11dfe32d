"""Replay run: the tasks of a plan are done, each once.

Drives  the downstream: schema changes by `DdlRunner`, rows by `Writer`, here or in Spark's tasks
Owns    the connection that holds the job's lock
Holds   tasks run in their order; within one every key is written once, with its last image. A task is left
        out if the downstream says that it was done
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from drainer.checkpoint.value import Intent
from drainer.ddl.policy import Ruling
from drainer.ddl.rules import APPLY, SKIP, STOP
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Connection, Target, connect
from drainer.reading.archive.decode.definitions import KnownTables
from drainer.reading.archive.decode.reading import read
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.selection import Selection
from drainer.relay.source import RelaySchema
from drainer.sink.findings import Lacks
from drainer.spark.effects.operations import Operations, RowEffect, effects_in_order, table_id
from drainer.spark.engine import SparkOf
from drainer.spark.replay.epochs import Rows
from drainer.spark.replay.job import SCHEMA, Bucket, Job, JobState, findings_of, reached
from drainer.spark.replay.plan import BUCKETS_MAX, ReplayPlan, ReplayTask, shares
from drainer.spark.replay.writer import DownstreamTables, Phase, Tables, Undone, Writer, taken_back
from drainer.txn import Ddl, TableVersion
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.observe import log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = log.get("drainer.spark.replay_run")

_LOCK_HOLDS_S: Final = 30 * 86400
KEPT_S: Final = 1800.0
"""How long dropped tables are kept for a RECOVER, in time of the archive."""
_PARTITIONS_PER_CORE: Final = 2
_NOTHING: Final[Undone] = {}


@dataclass(frozen=True)
class DdlSteps:
    """What runs schema changes. `ruling`: what is to become of one; `passes` is told of each, also of those
    that an earlier life has run. Whoever makes it closes the runner, whose session knows the server."""

    runner: DdlRunner
    ruling: Callable[[Ddl], Ruling]
    passes: Callable[[Ddl], None] = lambda ddl: None

    @classmethod
    def of_archive(cls, target: Target, job: str) -> DdlSteps:
        """Everything that the archive has runs, by what it says itself of databases."""
        schema = RelaySchema()
        missing = Lacks(functools.partial(findings_of(job).keep_lack, target))
        runner = DdlRunner(target, schema, keep=KeepDropped(SCHEMA, 0, KEPT_S), missing=missing)
        return cls(runner, lambda ddl: Ruling(APPLY, "it is in the archive"), schema.pass_ddl)


class RowsLeftOut(Exception):
    """A step is written but for tables whose rows are refused for good: their versions, and why. Of those
    without a key nothing is; of others a part may be, for which rows written again in order make up."""

    def __init__(self, tables: Sequence[tuple[list[TableVersion], str]]) -> None:
        super().__init__("; ".join(reason for _, reason in tables))
        self.tables = tables


class ReplayRun:
    """One life of a job. Raises `Conflict` if another one is at it, or if it was begun for something else.
    `check`: whether the downstream has what comes before the job."""

    def __init__(
        self,
        spark: SparkOf | None,
        target: Target,
        plan: ReplayPlan,
        name: str,
        *,
        show_progress: bool,
        ddl: DdlSteps | None = None,
        check: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._spark = spark
        self._target = target
        self._plan = plan
        self._skipped = plan.skip_ddl
        self._connection = connect(target)
        self._connection.run(b"SET SESSION wait_timeout=%d" % _LOCK_HOLDS_S)
        self._ends = contextlib.ExitStack()
        self._ends.callback(self._connection.close)
        if ddl is None:
            ddl = DdlSteps.of_archive(target, name)
            self._ends.callback(ddl.runner.close)
        self._ddl = ddl
        self._catalog = DownstreamTables(
            plan.definitions, self._connection, plan.selection, sync_mode=plan.taking.sync_mode
        )
        self.job = Job(self._connection, name)
        self._show_progress = show_progress
        self._check = check

    def close(self) -> None:
        self._ends.close()

    def reached(self) -> tuple[int, int, int] | None:
        """See `job.reached`; of the server that has it all."""
        try:
            return reached(self._connection, self.job.name)
        finally:
            self._connection.rollback()

    def work(self) -> JobState:
        """Do what is left; the state that was found. Raises `Corruption` if files of it are gone,
        `RowsLeftOut`."""
        self._check(self._connection)  # the job is begun on the server that this session is at
        state = self.job.open(self._plan.frozen)
        if state.done:
            return state
        self._plan.refuse_gap()
        tasks = self._plan.tasks
        for number, task in enumerate(tasks):
            step = task.step
            if isinstance(step, Ddl):
                self._ddl.passes(step)
            if number < state.step:
                continue
            if isinstance(step, Rows):
                self._rows(number, task, step)
            else:
                self._change_schema(step, state.intent if number == state.step else None)
            self.job.reach(number + 1)
        self.job.finish()
        return state

    # -- schema changes ----------------------------------------------------------------------------

    def _change_schema(self, ddl: Ddl, intent: Intent | None) -> None:
        runner, ruling = self._ddl.runner, self._ddl.ruling(ddl)
        if ddl.commit_ts in self._skipped or ruling.action == SKIP:
            logger.warning("DDL is left out", commit_ts=ddl.commit_ts, query=ddl.query, reason=ruling.reason)
            return
        if ruling.action == STOP or ddl.refused:
            raise Refused(ddl, ddl.refused or ruling.reason)
        text = ruling.text or None
        if intent is None or intent.commit_ts != ddl.commit_ts or not runner.had_run(intent, ddl, text):
            before = intent.before if intent is not None else runner.before(ddl)
            self.job.intend(Intent(ddl.commit_ts, ddl.job_id, ddl.query, before))
            runner.run(ddl, text)
        self._catalog.forget()

    # -- rows ---------------------------------------------------------------------------------------

    def _rows(self, number: int, task: ReplayTask, step: Rows) -> None:
        if not task.slices:
            return
        if not self._plan.defines_all:
            self._catalog.prepare(step.start)
        rows = self._rows_in_tasks if task.buckets else self._rows_here
        rows(number, task, step)
        if self.job.has_late(number):
            waiting = {table: left.places for table, left in self.job.left_out(number).items()}
            rows(number, task, step, Phase.LATE, waiting)
        if self._plan.taking.rows_may_wait and (left_out := self.job.left_out(number)):
            versions: dict[int, list[TableVersion]] = {}
            for version in self._versions(step):
                versions.setdefault(table_id(version), []).append(version)
            keyless = self._catalog.keyless(version for each in left_out for version in versions[each])
            if keyless:
                undone = {each: left_out[each].places for each in sorted(keyless)}
                rows(number, task, step, Phase.UNDO, undone)
            raise RowsLeftOut([(versions[each], said.reason) for each, said in left_out.items()])

    def _selection(self, step: Rows) -> Selection:
        return Selection(step.start, step.stop, self._plan.selection.tables)

    def _rows_here(
        self, number: int, task: ReplayTask, step: Rows, phase: Phase = Phase.ALL, undone: Undone = _NOTHING
    ) -> None:
        """`undone`: of these tables take back what was written, or leave out what is late."""
        plan = self._plan
        bucket = Bucket(self.job.name, number, phase, 0)
        tables = Tables(plan.definitions, {})
        writer = Writer(self._target, tables, safe=plan.frozen.safe, taking=plan.taking)
        reverses: dict[tuple[int, bytes], RowEffect] = {}
        try:
            for chunk, (effects, tables) in enumerate(self._chunks_here(task, step)):
                writer.know(tables)
                if phase is not Phase.UNDO:
                    writer.write(bucket, chunk, phase, [each for each in effects if each[0] not in undone])
                    continue
                for each in taken_back(effects, undone, 0, chunk, tables):
                    times = each.times + (of.times if (of := reverses.get(each[:2])) else 0)
                    reverses[each[:2]] = each._replace(times=times)
            if reverses:
                writer.write(bucket, 0, phase, [each for each in reverses.values() if each.times])
        finally:
            writer.close()

    def _chunks_here(self, task: ReplayTask, step: Rows) -> Iterator[tuple[list[RowEffect], Tables]]:
        """One chunk after the other, each a whole number of transactions."""
        plan = self._plan
        numbers = KnownTables(plan.definitions)
        versions: dict[TableVersion, None] = {}

        def number_of(version: TableVersion) -> int:
            versions[version] = None
            return numbers.number_of(version)

        def chunk() -> Iterator[tuple[list[RowEffect], Tables]]:
            if effects := list(effects_in_order(operations.take())):
                tables = self._catalog.tables(versions)
                yield effects, replace(tables, apart=frozenset())

        operations = Operations(number_of, None)
        selection = self._selection(step)
        for part in task.slices:
            for record in read(plan.location, part, selection, plan.definitions, damage=plan.damage):
                if not isinstance(record, Changes):
                    continue
                operations.add(record)
                if record.last and operations.changes >= plan.frozen.chunk_rows:
                    yield from chunk()
        yield from chunk()

    def _rows_in_tasks(
        self, number: int, task: ReplayTask, step: Rows, phase: Phase = Phase.ALL, undone: Undone = _NOTHING
    ) -> None:
        assert self._spark is not None
        from drainer.spark.driver import TaskProgress
        from drainer.spark.effects.blocks import by_bucket, plain
        from drainer.spark.effects.fold import Reading, by_place, effects
        from drainer.spark.replay.writing_task import REPORT, Writing

        spark, plan = self._spark(), self._plan
        cores = spark.sparkContext.defaultParallelism
        versions = self._versions(step)
        tables = self._catalog.tables(versions)
        tables = replace(tables, apart=self.job.settle(tables.apart))
        selection = self._selection(step)
        reading = Reading(
            plan.location,
            shares(task.slices, cores),
            selection,
            plan.definitions,
            self._catalog.before_of(versions),
            task.buckets,
            plan.damage,
        )
        partitions = min(task.buckets, cores * _PARTITIONS_PER_CORE)
        # A bucket of a larger step may be too much for a task's memory; Spark's sort needs little.
        in_blocks = task.buckets < BUCKETS_MAX
        if in_blocks:
            frame = by_bucket(plain(spark), reading, partitions)
        else:
            frame = by_place(effects(spark, reading), partitions)

        def write(frame: DataFrame, phase: Phase) -> None:
            frozen, job = plan.frozen, self.job.name
            writing = Writing(
                *(self._target, tables, job, number, phase, frozen.chunk_rows, frozen.safe, in_blocks),
                *(plan.taking, undone),
            )
            frame.mapInArrow(writing, REPORT).collect()

        work = f"step {number + 1} of {len(plan.tasks)}"
        with TaskProgress(work, spark) if self._show_progress else contextlib.nullcontext():
            if phase is not Phase.ALL or not tables.apart:
                write(frame, phase)
                return
            from pyspark import StorageLevel

            frame = frame.persist(StorageLevel.DISK_ONLY)
            try:
                removed = frame if in_blocks else frame.where(frame["table"].isin(sorted(tables.apart)))
                write(removed, Phase.REMOVALS)
                write(frame, Phase.ALL)
            finally:
                frame.unpersist()

    def _versions(self, step: Rows) -> list[TableVersion]:
        """Of the tables that rows of the step may be of."""
        plan, names = self._plan, self._plan.with_rows
        return [
            table.version
            for table in plan.definitions
            if plan.selection.wants_table(table.schema, table.table)
            and (names is None or (table.schema, table.table) in names)
        ]
