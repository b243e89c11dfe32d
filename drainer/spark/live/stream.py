"""Pump stream: batches of what the Pumps have, one after the other, each a job of replay.

Drives  the survey of the Pumps, the tracked schema, `ReplayRun` for the rows of a batch, the Drainer's own
        checkpoint and named reader
Owns    the checkpoint of the cluster while it runs: a Drainer that starts meanwhile is refused, and so is
        this while a Drainer runs. Ended between two batches, it leaves what a Drainer leaves that was stopped
Holds   a batch ends at or below the watermark of every Pump, so it holds the same whenever it is read; or
        with a DDL, which ends its batch. Its rows are written once, however often it is begun: progress lies
        downstream (`job`). The checkpoint moves after the batch, and what Pumps may remove after the
        checkpoint
Why     the rows are read by tasks, from the Pumps themselves: no process has all of them
Stops   `stop`, from any thread: the batch under way is finished
Tests   tests/spark/live/test_stream.py
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from drainer.app.build_mysql import open_checkpoint, patiently
from drainer.app.load_schema import TrackedSchema, open_schema
from drainer.checkpoint.fencing import SPARK_OWNER
from drainer.checkpoint.resume import Start
from drainer.checkpoint.schema_snapshot import StoredSchema
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import Checkpoint
from drainer.config.downstream import target_of
from drainer.config.options import DrainerConfig
from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import Policy
from drainer.ddl.run.recycle_bin import KeepDropped
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import connect
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pump_range import PUMPS, PumpSlice, StreamState
from drainer.reading.archive.files.selection import Selection
from drainer.sink.file.table_definitions import ArchivedTable
from drainer.spark.driver import translated
from drainer.spark.engine import SparkOf
from drainer.spark.live.cluster import Bound, LiveCluster
from drainer.spark.replay.epochs import Rows
from drainer.spark.replay.job import Frozen, stored
from drainer.spark.replay.plan import CHUNK_ROWS, SMALL_BYTES, ReplayPlan, ReplayTask, buckets_of
from drainer.spark.replay.run import DdlSteps, ReplayRun
from drainer.spark.replay.stream_apply import Batch
from drainer.spark.replay.stream_jobs import LiveJobs
from drainer.spark.source.stream_offsets import INTERVAL_S
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.schema.tracker import SchemaTracker, is_system_schema
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl
from tidb_binlog import tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Conflict, Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.pump_stream")

LIVE_BATCH_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class LiveSettings:
    """`drainer`: rules, downstream and upstream as a Drainer has them. `name`: of the reader in the registry,
    for which Pumps keep what it has not done; `listen`: where it tells /status, "": at a free port. `once`:
    end at what is there now. `small_bytes`: batches up to it are done here, without Spark."""

    drainer: DrainerConfig
    name: str
    listen: str = ""
    once: bool = False
    interval_s: float = INTERVAL_S
    batch_bytes: int = LIVE_BATCH_BYTES
    small_bytes: int = SMALL_BYTES
    chunk_rows: int = CHUNK_ROWS

    @property
    def owner(self) -> str:
        """Whose the checkpoint is while this runs."""
        return SPARK_OWNER + self.name


class PumpStream:
    """A stream from its start to its end. `on_batch` is called, on the loop's thread, for each batch."""

    def __init__(
        self,
        settings: LiveSettings,
        spark: SparkOf | None,
        *,
        on_batch: Callable[[Batch], None] = lambda batch: None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._on_batch = on_batch
        self._clock = clock or SystemClock()
        self._target = target_of(settings.drainer)
        self._rules: Rules = read_rules(settings.drainer)
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0

    def wait(self) -> None:
        """Run it to its end. Raises what a batch failed with."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Ask it to end after the batch under way. From any thread, and from a signal handler."""
        if self._loop is None:  # it ends as soon as it has begun
            self._stopping.set()
        else:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = self._settings
        async with LiveCluster(settings.drainer, settings.name, settings.listen, self._clock) as cluster:
            store, start = await open_checkpoint(
                replace(settings.drainer, node_id=settings.owner),
                cluster.upstream,
                cluster.registry,
                self._target,
                prepare=_refuse_unfinished,
            )
            try:
                life = await _Life.begin(
                    settings, self._spark, cluster, store, start, self._rules, self._stopping, self._clock
                )
                await self._batches(cluster, life)
            finally:
                await asyncio.to_thread(store.close)

    async def _batches(self, cluster: LiveCluster, life: _Life) -> None:
        settings = self._settings
        end_ts = await cluster.now_ts() if settings.once else 0
        begun = await life.begun()
        while not self._stopping.is_set() and not (end_ts and life.position >= end_ts):
            bound = begun or await cluster.bound(life.position, settings.batch_bytes, settings.interval_s)
            begun = None
            if bound is None:
                continue
            self._number += 1
            self._on_batch(await life.batch(self._number, bound))
            if not bound.more:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), settings.interval_s)
        await life.give_back()


async def _refuse_unfinished(_store: CheckpointStore, start: Start, waits: bool) -> None:
    """What only the Drainer that left it can finish."""
    why = ""
    if not start.drained:
        why = "the lanes of the Drainer before stand at different places"
    elif start.intent is not None:
        why = f"the DDL of commit_ts {start.intent.commit_ts} was under way"
    elif waits:
        why = "tables wait for a decision about a DDL"
    if why:
        raise Conflict(
            f"Spark cannot go on from this checkpoint: {why}",
            hint="start the Drainer again, decide what waits (`binlogctl ddl list`), and stop it gracefully",
        )


class _Life:
    """One life of a stream: where it is, and what it knows there. `position`: everything at or below it is
    downstream, and stored so."""

    def __init__(
        self,
        settings: LiveSettings,
        spark: SparkOf | None,
        cluster: LiveCluster,
        store: CheckpointStore,
        start: Start,
        schema: TrackedSchema,
        rules: Rules,
        stopping: asyncio.Event,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._stopping = stopping
        self._spark = spark
        self._cluster = cluster
        self._store = store
        self._start = start
        self._schema = schema
        self._rules = rules
        self._clock = clock
        self._target = target_of(settings.drainer)
        self._translator = Translator(schema.tracker, rules)
        self._policy = Policy(ddl_rules.parse(settings.drainer.ddl_rules))
        self._schema_version = start.checkpoint.schema_version if start.checkpoint else 0
        self._known: _Known | None = None  # of the schema as it is; None after it changed
        self._jobs = LiveJobs.of(cluster.upstream.cluster_id, settings.drainer.checkpoint_schema)
        self.position = start.floor_ts

    @classmethod
    async def begin(
        cls,
        settings: LiveSettings,
        spark: SparkOf | None,
        cluster: LiveCluster,
        store: CheckpointStore,
        start: Start,
        rules: Rules,
        stopping: asyncio.Event,
        clock: Clock,
    ) -> _Life:
        """With the schema of there. Raises what reading it does."""
        history, floor_ts = cluster.upstream.history, start.floor_ts

        async def load() -> StoredSchema | None:
            return await patiently(lambda: store.load_schema(start), store.close)

        from_snapshot = settings.drainer.load_schema_snapshot
        schema = await open_schema(store, start, floor_ts, history, load, from_snapshot=from_snapshot)
        await cluster.begin(floor_ts)
        return cls(settings, spark, cluster, store, start, schema, rules, stopping, clock)

    # -- a batch -----------------------------------------------------------------------------------

    async def begun(self) -> Bound | None:
        """The batch that an earlier life began here, as it was."""
        job = self._jobs.job_at(self.position)
        frozen = await asyncio.to_thread(stored, self._target, job)
        return await self._cluster.bound_at(self.position, frozen.stop) if frozen is not None else None

    async def batch(self, number: int, bound: Bound) -> Batch:
        """Bring the downstream to its end."""
        began_s, first_ts = self._clock.monotonic_s(), self.position + 1
        ddl = None
        known_schema = await asyncio.to_thread(self._know, bound)
        if bound.ddl is not None:
            item = self._translator.translate(bound.ddl)
            assert isinstance(item, Ddl)
            ddl = item
            self._known = None
        rows, drift = await self._worked(known_schema, bound, ddl)
        if ddl is not None:
            self._schema_version = self._schema.tracker.version
            self._schema.keep(bound.stop_ts)
        await self._reach(bound.stop_ts)
        seconds = self._clock.monotonic_s() - began_s
        lag_s = tso.age_s(bound.stop_ts, self._clock.wall_s())
        ran = int(ddl is not None and not ddl.skip)
        return Batch(number, first_ts, bound.stop_ts, rows, ran, drift, seconds, lag_s)

    async def _worked(self, known_schema: _Known, bound: Bound, ddl: Ddl | None) -> tuple[int, int]:
        """Do a batch, however often a Pump, the downstream or Spark is away meanwhile. Raises what does not
        pass by itself, and what passes when the stream is to stop."""
        backoff = Backoff(0.1, 10.0)
        while True:
            try:
                return await asyncio.to_thread(self._work, self._plan(known_schema, bound, ddl))
            except Exception as error:
                why = translated(error) or error
                passes = isinstance(why, Unavailable | SessionError) and not isinstance(why, StatementRefused)
                if not passes or self._stopping.is_set():
                    raise why from None
                logger.warning("batch is tried again", after_ts=self.position, reason=safe_text(why))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._stopping.wait()
            with contextlib.suppress(Unavailable):
                await self._cluster.see_pumps()  # one may have another address by now

    def _know(self, bound: Bound) -> _Known:
        self._translator.catch_up(bound.stop_ts, 0)
        tracker = self._schema.tracker
        if self._known is None or self._known.generation != tracker.generation:
            self._known = _Known.of(tracker, self._rules)
        return self._known

    def _plan(self, known_schema: _Known, bound: Bound, ddl: Ddl | None) -> ReplayPlan:
        settings, first_ts = self._settings, self.position + 1
        state = StreamState(self._cluster.pumps, known_schema.tracker, self._rules.text)
        slices = tuple(PumpSlice.of(state, *part) for part in bound.parts)
        size = sum(part.size for part in slices)
        buckets = 0 if self._spark is None or size <= settings.small_bytes else buckets_of(size)
        rows_stop = bound.stop_ts - (ddl is not None)
        tasks = [ReplayTask(Rows(first_ts, rows_stop), slices, buckets)]
        if ddl is not None:
            tasks.append(ReplayTask(ddl))
        safe = known_schema.partial or self._start.safe_mode.covers(first_ts) or settings.drainer.safe_mode
        frozen = Frozen(
            archive=self._cluster.shown,
            kind=PUMPS,
            start=first_ts,
            stop=bound.stop_ts,
            asked_stop=0,
            tables=(),
            chunk_rows=settings.chunk_rows,
            safe=safe,
            buckets=tuple(task.buckets for task in tasks),
        )
        return ReplayPlan(
            Place(self._cluster.shown),
            Selection(first_ts, bound.stop_ts),
            known_schema.definitions,
            tuple(tasks),
            frozen,
            defines_all=True,
        )

    def _work(self, plan: ReplayPlan) -> tuple[int, int]:
        """Rows written, and rows that were not as they should be."""
        name = self._jobs.job_at(self.position)
        begun = stored(self._target, name)
        if begun is not None and len(begun.buckets) == len(plan.tasks):
            tasks = zip(plan.tasks, begun.buckets, strict=True)
            plan = replace(
                plan,
                tasks=tuple(replace(task, buckets=buckets) for task, buckets in tasks),
                frozen=replace(plan.frozen, buckets=begun.buckets, safe=begun.safe),
            )
        drainer, lanes = self._settings.drainer, self._store.lane_table()
        keep = KeepDropped(lanes.schema, lanes.cluster_id, drainer.keep_dropped_s)
        runner = DdlRunner(
            self._target,
            self._schema.tracker,
            self._translator.route,
            self._store.guard_ddl,
            keep if drainer.keep_dropped_s else None,
            drainer.ddl_conversions,
        )
        ddl = DdlSteps(runner, self._policy.rule)
        run = ReplayRun(self._spark, self._target, plan, name, show_progress=False, ddl=ddl)
        try:
            run.work()
            rows, drift, _ = run.job.counts()
            return rows, drift
        finally:
            run.close()

    async def _reach(self, commit_ts: Ts) -> None:
        """The batch that ends there is done. The checkpoint first: what it has is asked of no Pump again."""
        await self._settle(commit_ts, consistent=False)
        self.position = commit_ts
        await asyncio.to_thread(self._forget)
        self._cluster.done(commit_ts)

    def _forget(self) -> None:
        try:
            with contextlib.closing(connect(self._target)) as connection:
                self._jobs.forget_before(connection, self.position)
        except (SessionError, Unavailable) as error:  # it is done with the next batch
            logger.warning("progress of former batches stays for now", reason=safe_text(error))

    async def _settle(self, commit_ts: Ts, *, consistent: bool) -> None:
        checkpoint = Checkpoint(
            commit_ts,
            consistent,
            self._schema_version,
            epoch=self._store.epoch,
            safe_until=self._start.safe_mode.until_ts,
            ts_map=self._start.checkpoint.ts_map if self._start.checkpoint else None,
        )
        save = self._store.release if consistent else self._store.settle
        await patiently(lambda: save(checkpoint), self._store.close)

    async def give_back(self) -> None:
        """Leave the checkpoint as a Drainer does that stops: whoever comes next goes on from there."""
        await self._settle(self.position, consistent=True)


@dataclass(frozen=True)
class _Known:
    """The schema at one place of the stream, and nothing of the Pumps, which come and go without a DDL.
    `partial`: changes of a table are withheld."""

    generation: int
    tracker: bytes
    definitions: Definitions
    partial: bool

    @classmethod
    def of(cls, tracker: SchemaTracker, rules: Rules) -> _Known:
        """As the tracker has it now."""
        names = (name for name in tracker.names() if not is_system_schema(name[0]) and rules.allows(*name))
        versions = [
            rules.placed(version) for name in names if (version := tracker.table_named(*name)) is not None
        ]
        tables = [ArchivedTable(0, *version.downstream, version) for version in versions]
        partial = any(version.partial for version in versions)
        return cls(tracker.generation, pickle.dumps(tracker), Definitions(tables), partial)
