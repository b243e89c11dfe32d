"""Database: the downstream of a stream is a server; each batch is a job of replay.

Owns    the checkpoint of the cluster while it is open: a Drainer that starts meanwhile is refused, and so is
        this while a Drainer runs. Ended between two batches, it leaves what a Drainer leaves that was stopped
Holds   rows of a batch are written once, however often it is begun: progress lies downstream (`job`)
Why     rows that are refused let their table wait, as in a Drainer: the batch is written without it. Then all
        lanes stand behind the batch, the checkpoint before it, and the table's rows come again from there. Up
        to the end of the batch that is in safe mode, since a part of them may be there; of tables without a
        key nothing is
Tests   tests/spark/live/test_take_over.py, tests/spark/live/test_refused_rows.py
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace

from drainer.app.build_mysql import open_checkpoint, patiently
from drainer.app.load_schema import TrackedSchema, open_schema
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.resume import Start
from drainer.checkpoint.schema_snapshot import StoredSchema
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.stream_row import StreamRow, stream_name
from drainer.checkpoint.value import Checkpoint
from drainer.config.downstream import target_of
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.derive.values import Route
from drainer.ddl.policy import Policy
from drainer.ddl.quarantine.entry import Floor
from drainer.ddl.quarantine.rows_entry import entry_of_rows, put_rows
from drainer.ddl.quarantine.shards import Shards
from drainer.ddl.quarantine.waiting_tables import Quarantine
from drainer.ddl.rules import APPLY, STOP
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner, Refused
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.mark_table import open_marks
from drainer.mysql.rows.change import Position
from drainer.mysql.rows.column_match import FULL
from drainer.places.place import Place
from drainer.reading.archive.decode.pump_range import PUMPS
from drainer.reading.archive.files.selection import Selection
from drainer.sink.findings import Findings
from drainer.sink.mysql.quarantine_setup import load_waiting
from drainer.spark.engine import SparkOf
from drainer.spark.live.downstream import DdlWaits, LiveBatch, LiveDownstream, LiveSettings, RowsWait
from drainer.spark.live.drainer_turn import Unfinished
from drainer.spark.replay.job import AGAIN, WENT_BACK, Frozen, reached, stored
from drainer.spark.replay.plan import ReplayPlan, ReplayTask
from drainer.spark.replay.run import DdlSteps, ReplayRun, RowsLeftOut
from drainer.spark.replay.stream_jobs import LiveJobs
from drainer.spark.replay.writer import Taking
from drainer.spark.source.pump_cluster import PumpCluster
from drainer.txn import Ddl
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.pump_stream")


async def open_database(
    settings: LiveSettings,
    spark: SparkOf | None,
    cluster: PumpCluster,
    findings: Findings,
) -> Database:
    """At its checkpoint, with the schema of there. `findings` grow by what DDL and rows bring to light.
    Raises what reading it does, `Conflict` where it is another's or gone, `Unfinished`."""
    drainer = replace(settings.drainer, node_id=settings.owner)
    target = target_of(settings.drainer)
    kept = row_of(settings, cluster)

    async def check(_store: CheckpointStore, start: Start, waits: bool) -> None:
        if (
            start.checkpoint is None
            and drainer.initial_commit_ts == -1
            and await asyncio.to_thread(kept.is_there)
        ):
            raise Conflict(
                f"downstream {target!r} has no checkpoint of cluster {cluster.upstream.cluster_id} any more,"
                " but a stream was there before (tidb_binlog.spark_streams)",
                hint="restore the checkpoint's tables; or say where to begin: --start, initial-commit-ts",
            )
        _check_finished(start, waits)

    store, start = await open_checkpoint(drainer, cluster.upstream, cluster.registry, target, prepare=check)

    async def load() -> StoredSchema | None:
        return await patiently(lambda: store.load_schema(start), store.close)

    history, from_snapshot = cluster.upstream.history, drainer.load_schema_snapshot
    try:
        await asyncio.to_thread(kept.begin)
        await asyncio.to_thread(open_marks, target)
        schema = await open_schema(store, start, start.floor_ts, history, load, from_snapshot=from_snapshot)
    except BaseException:
        await asyncio.to_thread(store.close)
        raise
    return Database(settings, spark, cluster, store, start, schema, findings)


def row_of(settings: LiveSettings, cluster: PumpCluster) -> StreamRow:
    """What the downstream knows of the stream that owns this checkpoint."""
    drainer = settings.drainer
    return StreamRow(target_of(drainer), stream_name(cluster.upstream.cluster_id, drainer.checkpoint_schema))


async def remember(findings: Findings, settings: LiveSettings, cluster: PumpCluster) -> None:
    """What the life before told of early rows, and from now on what this one does."""
    kept = row_of(settings, cluster)
    await patiently(lambda: findings.keep_in(kept.load, kept.store), lambda: None)


def taking_of(settings: DrainerConfig) -> Taking:
    """As the lanes of a Drainer have it."""
    return Taking(
        rows_may_wait=settings.rows_may_wait,
        strict=settings.strict,
        sync_mode=settings.to_sync_mode or FULL,
        log_values=settings.log_values,
    )


def _check_finished(start: Start, waits: bool) -> None:
    """Whether a Drainer has to finish what one has left."""
    why = ""
    if not start.drained or start.positions[0] != Position(start.floor_ts):
        why = "lanes of the Drainer before are ahead of its checkpoint"
    elif start.intent is not None:
        why = f"the DDL of commit_ts {start.intent.commit_ts} was under way"
    elif waits:
        why = "tables wait for a decision about a DDL, or for their rows to be taken"
    if why:
        raise Unfinished(start.floor_ts, why)


class Database(LiveDownstream):
    """One life at a server."""

    def __init__(
        self,
        settings: LiveSettings,
        spark: SparkOf | None,
        cluster: PumpCluster,
        store: CheckpointStore,
        start: Start,
        schema: TrackedSchema,
        findings: Findings,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._shown = cluster.shown
        self._store = store
        self._start = start
        self._schema = schema
        self._findings = findings
        self._target = target_of(settings.drainer)
        self._policy = Policy(ddl_rules.parse(settings.drainer.ddl_rules))
        self._schema_version = start.checkpoint.schema_version if start.checkpoint else 0
        self._jobs = LiveJobs.of(cluster.upstream.cluster_id, settings.drainer.checkpoint_schema)
        self._ddl: DdlSteps | None = None  # from the first batch on
        self._may_be_begun = True  # the next batch, by an earlier life or a try of this one
        self._reached: tuple[str, tuple[int, int, int] | None] | None = None  # the batch that was done last
        self.floor_ts = start.floor_ts
        self.tracker = schema.tracker

    def begun(self, position: Ts) -> Ts:
        frozen = stored(self._target, self._jobs.job_at(position))
        return frozen.stop if frozen is not None else 0

    def waits(self, ddl: Ddl) -> str:
        if self._policy.rule(ddl).action != APPLY:
            return ""
        return ddl.refused or Shards(Quarantine(), None).in_the_way(ddl)

    def work(self, batch: LiveBatch) -> tuple[int, int]:
        plan = self._plan(batch)
        name = self._jobs.job_at(batch.first_ts - 1)
        begun = stored(self._target, name) if self._may_be_begun else None
        self._may_be_begun = True
        if begun is not None and len(begun.buckets) == len(plan.tasks):
            tasks = zip(plan.tasks, begun.buckets, strict=True)
            plan = replace(
                plan,
                tasks=tuple(replace(task, buckets=buckets) for task, buckets in tasks),
                frozen=replace(plan.frozen, buckets=begun.buckets, safe=begun.safe),
            )
        if self._ddl is None:
            self._ddl = DdlSteps(self._runner(batch.route), self._policy.rule)
        run = ReplayRun(
            *(self._spark, self._target, plan, name),
            show_progress=False,
            ddl=self._ddl,
            check=self._store.check,
        )
        try:
            refused: Refused | RowsLeftOut | None = None
            try:
                run.work()
            except (Refused, RowsLeftOut) as error:
                stops = batch.ddl is None or self._policy.rule(batch.ddl).action == STOP
                if isinstance(error, Refused) and stops:
                    raise
                refused = error
            rows, drift, _ = run.job.counts()
            by_table, texts, _ = run.job.findings()
            self._findings.drift.note(by_table, texts, batch.first_ts, batch.stop_ts)
            self._reached = name, run.reached()
            if isinstance(refused, RowsLeftOut):
                self._let_wait(batch, refused)
                raise RowsWait(rows, drift, str(refused)) from None
            if refused is not None:
                raise DdlWaits(rows, drift, refused.message) from refused
            return rows, drift
        finally:
            run.close()

    def _let_wait(self, batch: LiveBatch, left: RowsLeftOut) -> None:
        """The tables' entries, with the lanes behind everything else."""
        store, before_ts, stop_ts = self._store, batch.first_ts - 1, batch.rows.stop
        waiting = load_waiting(store, foreign=False)
        if waiting.entries:  # the answer to its COMMIT got lost
            return
        floor, clock = Floor(before_ts, self._schema_version), SystemClock()
        entries = [
            entry_of_rows(versions, stop_ts, reason, number, Position(before_ts), floor, clock)
            for number, (versions, reason) in enumerate(left.tables, waiting.last_number + 1)
        ]

        def put(connection: Connection) -> None:
            self._check_reached(connection)
            for entry in entries:
                put_rows(waiting.table, connection, entry)

        checkpoint = replace(self._checkpoint(before_ts, consistent=False), safe_until=stop_ts)
        store.together(put, lanes_at=stop_ts, checkpoint=checkpoint)

    def _runner(self, route: Route) -> DdlRunner:
        drainer, lanes = self._settings.drainer, self._store.lane_table()
        keep = KeepDropped(lanes.schema, lanes.cluster_id, drainer.keep_dropped_s)
        return DdlRunner(
            self._target,
            self.tracker,
            route,
            self._store.guard_ddl,
            keep if drainer.keep_dropped_s else None,
            drainer.ddl_conversions,
            self._findings.missing,
        )

    def _plan(self, batch: LiveBatch) -> ReplayPlan:
        settings, first_ts = self._settings, batch.first_ts
        buckets = 0 if self._spark is None else batch.buckets(settings.small_bytes)
        tasks = [ReplayTask(batch.rows, batch.slices, buckets)]
        if batch.ddl is not None:
            tasks.append(ReplayTask(batch.ddl))
        safe = batch.schema.partial or self._start.safe_mode.covers(first_ts) or settings.drainer.safe_mode
        frozen = Frozen(
            archive=self._shown,
            kind=PUMPS,
            start=first_ts,
            stop=batch.stop_ts,
            asked_stop=0,
            tables=(),
            chunk_rows=settings.chunk_rows,
            safe=safe,
            buckets=tuple(task.buckets for task in tasks),
        )
        return ReplayPlan(
            Place(self._shown),
            Selection(first_ts, batch.stop_ts),
            batch.schema.definitions,
            tuple(tasks),
            frozen,
            defines_all=True,
            taking=taking_of(settings.drainer),
        )

    def passed(self, ddl: Ddl) -> None:
        self._schema_version = self.tracker.version
        self._schema.keep(ddl.commit_ts)

    async def reach(self, commit_ts: Ts) -> None:
        checkpoint = self._checkpoint(commit_ts, consistent=False)
        save = functools.partial(
            self._store.together, self._check_reached, lanes_at=commit_ts, checkpoint=checkpoint
        )
        await patiently(save, self._store.close)
        self._reached = None
        await asyncio.to_thread(self._forget, commit_ts)
        self._may_be_begun = False

    def _check_reached(self, connection: Connection) -> None:
        """The batch is there, on the server that is to hear of it. Raises `WentBack`."""
        if self._reached is not None:
            name, expected = self._reached
            if reached(connection, name) != expected:
                raise WentBack(f"{WENT_BACK}: it has not all of job {name}, which was done", hint=AGAIN)

    def _forget(self, commit_ts: Ts) -> None:
        try:
            self._jobs.forget_before(self._store.session.open(), commit_ts)
        except (SessionError, Unavailable) as error:  # it is done with the next batch
            self._store.close()
            logger.warning("progress of former batches stays for now", reason=safe_text(error))

    def _checkpoint(self, commit_ts: Ts, *, consistent: bool) -> Checkpoint:
        return Checkpoint(
            commit_ts,
            consistent,
            self._schema_version,
            epoch=self._store.epoch,
            safe_until=self._start.safe_mode.until_ts,
            ts_map=self._start.checkpoint.ts_map if self._start.checkpoint else None,
        )

    async def give_back(self, commit_ts: Ts) -> None:
        """As a Drainer does that stops."""
        checkpoint = self._checkpoint(commit_ts, consistent=True)
        await patiently(lambda: self._store.release(checkpoint), self._store.close)

    def close(self) -> None:
        if self._ddl is not None:
            self._ddl.runner.close()
        self._store.close()
