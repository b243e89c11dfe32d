"""Pump stream: batches of what the Pumps have, one after the other, each brought downstream.

Holds   a batch ends at or below the watermark of every Pump, so it holds the same whenever it is read; or
        with a DDL, which ends its batch. The downstream moves after the batch, and what Pumps may remove
        after the downstream
Why     the rows are read by tasks, from the Pumps themselves: no process has all of them. Where a DDL waits
        one has, until it does no more: see `drainer_turn`
Stops   `stop`, from any thread: the batch under way is finished
Tests   tests/spark/live/test_stream.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from drainer.config.lake_options import LAKES
from drainer.config.remarks import on_lanes_keys
from drainer.lake.warehouse import MIRROR
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.reading.archive.decode.pump_range import PumpSlice, StreamState, transactions_of
from drainer.sink.findings import Findings
from drainer.spark.driver import translated
from drainer.spark.engine import SparkOf
from drainer.spark.live import database, lake
from drainer.spark.live.changelog import open_changelog
from drainer.spark.live.database import open_database
from drainer.spark.live.downstream import (
    BatchWaits,
    KnownSchema,
    LiveBatch,
    LiveDownstream,
    LiveSettings,
    RowsWait,
)
from drainer.spark.live.drainer_turn import Unfinished, take_turn
from drainer.spark.live.mirror import open_mirror
from drainer.spark.replay.stream_jobs import Batch
from drainer.spark.source.pump_cluster import Bound, PumpCluster
from drainer.stream.rules.rule_set import Rules, read_rules
from drainer.stream.translate.translator import Translator
from drainer.txn import Ddl
from tidb_binlog import tso
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import replace
from tidb_binlog.observe import log
from tidb_binlog.status.codec import plain
from tidb_binlog.tso import TS_MAX, Ts

logger = log.get("drainer.pump_stream")

T = TypeVar("T")


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
        self.settings = settings
        self.spark = spark
        self.clock = clock or SystemClock()
        self.rules: Rules = read_rules(settings.drainer)
        self.stopping = asyncio.Event()
        self.findings = Findings(self.clock)
        self._on_batch = on_batch
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self._end_ts = 0

    def wait(self) -> None:
        """Run it to its end. Raises what a batch failed with."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Ask it to end after the batch under way, and whatever it waits for. From any thread, and from a
        signal handler."""
        if self._loop is None:  # it ends as soon as it has begun
            self.stopping.set()
        else:
            self._loop.call_soon_threadsafe(self.stopping.set)

    async def unless_stopping(self, waiting: Coroutine[Any, Any, T]) -> T | None:
        """What it comes to; None where the stream is to stop first."""
        work, stop = asyncio.create_task(waiting), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        for remark in (*settings.drainer.remarks(), *on_lanes_keys(settings.drainer)):
            logger.warning(remark)
        async with PumpCluster(settings.drainer, settings.name, settings.listen, self.clock) as cluster:
            cluster.show(self._facts)
            place = lake if settings.drainer.db_type in LAKES else database
            await place.remember(self.findings, settings, cluster)
            self._end_ts = await cluster.now_ts() if settings.once else 0
            while await self._goes_on(cluster):
                pass

    def _facts(self) -> dict[str, Any]:
        findings = self.findings
        drift, missing = plain(findings.drift.status()), plain(list(findings.missing))
        return findings.early_rows.facts | {"Drift": drift, "DDL": {"missing": missing}}

    async def _goes_on(self, cluster: PumpCluster) -> bool:
        """Work until a DDL waits, and as a Drainer until it does not. False at the end."""
        try:
            downstream = await self._opened(cluster)
        except Unfinished as left:
            await cluster.begin(left.floor_ts)
            return await self._as_drainer(cluster, str(left), left.floor_ts)
        try:
            await cluster.begin(downstream.floor_ts)
            life = _Life(self, cluster, downstream)
            await self._batches(cluster, life)
        finally:
            await asyncio.to_thread(downstream.close)
        return bool(life.waits_for) and await self._as_drainer(cluster, life.waits_for, life.position + 1)

    async def _as_drainer(self, cluster: PumpCluster, reason: str, past_ts: Ts) -> bool:
        """Whether a stream is to go on after that."""
        began_s = self.clock.monotonic_s()
        turn = await take_turn(
            self.settings, cluster, reason, past_ts, self._end_ts, self.stopping, self.findings
        )
        seconds = self.clock.monotonic_s() - began_s
        lag_s = tso.age_s(turn.stop_ts, self.clock.wall_s())
        self._number += 1
        done = turn.start_ts + 1, turn.stop_ts, turn.rows, turn.ddl, turn.drift
        self._on_batch(Batch(self._number, *done, seconds, lag_s))
        return turn.goes_on

    async def _opened(self, cluster: PumpCluster) -> LiveDownstream:
        """Raises `Unfinished`."""
        settings = self.settings
        if settings.drainer.db_type not in LAKES:
            return await open_database(settings, self.spark, cluster, self.findings)
        if settings.mode == MIRROR:
            return await open_mirror(settings, self.spark, cluster, self.rules)
        return await open_changelog(settings, self.spark, cluster)

    async def _batches(self, cluster: PumpCluster, life: _Life) -> None:
        """To the end, or to right before a DDL that waits."""
        settings, end_ts = self.settings, self._end_ts
        begun = await life.begun()
        while not self.stopping.is_set() and not (end_ts and life.position >= end_ts):
            bound = begun or await self.unless_stopping(
                cluster.bound(life.position, settings.batch_bytes, settings.interval_s)
            )
            if bound is None:
                continue
            self._number += 1
            batch = await life.batch(self._number, bound, is_begun=begun is not None)
            begun = None
            if batch.stop_ts >= batch.start_ts:
                self._on_batch(batch)
            if life.waits_for:
                return
            if not bound.more:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), settings.interval_s)
        if not life.is_begun:
            await life.give_back()


class _Life:
    """One life of a stream: where it is, and what it knows there. `position`: everything at or below it is
    downstream, and stored so. `is_begun`: an earlier life has left some of what comes next there, which
    nobody but this stream can finish."""

    def __init__(self, stream: PumpStream, cluster: PumpCluster, downstream: LiveDownstream) -> None:
        self._stream = stream
        self._cluster = cluster
        self._downstream = downstream
        self._translator = Translator(downstream.tracker, stream.rules, TS_MAX)  # tasks have all rows
        self._known: KnownSchema | None = None  # of the schema as it is; None after it changed
        self.position = downstream.floor_ts
        self.is_begun = False
        self.waits_for = ""
        """Why the DDL after the position cannot run yet, or rows of tables before it were refused."""

    async def begun(self) -> Bound | None:
        """The batch that an earlier life began here, as it was; None, too, where the stream is to stop."""
        stop_ts = await asyncio.to_thread(self._downstream.begun, self.position)
        self.is_begun = stop_ts > 0
        waiting = self._cluster.bound_at
        return await self._stream.unless_stopping(waiting(self.position, stop_ts)) if stop_ts else None

    async def batch(self, number: int, bound: Bound, *, is_begun: bool) -> Batch:
        """Bring the downstream to its end, or to before its DDL. `is_begun`: by an earlier life, as it is."""
        clock = self._stream.clock
        began_s, first_ts = clock.monotonic_s(), self.position + 1
        ddl = None
        known_schema = await asyncio.to_thread(self._know, bound)
        if bound.ddl is not None:
            item = self._translator.translate(bound.ddl)
            assert isinstance(item, Ddl)
            ddl = item
            self._known = None
            if not is_begun and (reason := self._downstream.waits(ddl)):
                self.waits_for, bound, ddl = reason, _before_ddl(bound), None
        rows = drift = 0
        rows_wait = False
        try:
            if bound.stop_ts >= first_ts:
                rows, drift = await self._worked(known_schema, bound, ddl)
        except BatchWaits as refused:
            rows, drift, self.waits_for = refused.rows, refused.drift, str(refused)
            rows_wait = isinstance(refused, RowsWait)
            bound, ddl = _before_ddl(bound) if ddl is not None else bound, None
        if ddl is not None:
            self._downstream.passed(ddl)
            early = ddl.early and f"perhaps {ddl.early}"  # no one looks at its rows for it
            await asyncio.to_thread(self._stream.findings.early_rows.note_ddl, replace(ddl, early=early))
        if rows_wait:
            self.position = bound.stop_ts
        else:
            await self._reach(bound.stop_ts)
        self.is_begun = False
        seconds = clock.monotonic_s() - began_s
        lag_s = tso.age_s(bound.stop_ts, clock.wall_s())
        ran = int(ddl is not None and not ddl.skip)
        return Batch(number, first_ts, bound.stop_ts, rows, ran, drift, seconds, lag_s)

    async def _worked(self, known_schema: KnownSchema, bound: Bound, ddl: Ddl | None) -> tuple[int, int]:
        """Do a batch, however often a Pump, the downstream or Spark is away meanwhile. Raises what does not
        pass by itself, and what passes when the stream is to stop."""
        backoff, stopping = Backoff(0.1, 10.0), self._stream.stopping
        while True:
            try:
                batch = self._planned(known_schema, bound, ddl)
                await asyncio.to_thread(self._look_at_rows, batch)
                return await asyncio.to_thread(self._downstream.work, batch)
            except Exception as error:
                why = translated(error) or error
                passes = isinstance(why, Unavailable | SessionError) and not isinstance(why, StatementRefused)
                if not passes or stopping.is_set():
                    raise why from None
                logger.warning("batch is tried again", after_ts=self.position, reason=safe_text(why))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await stopping.wait()
            with contextlib.suppress(Unavailable):
                await self._cluster.see_pumps()  # one may have another address by now

    def _look_at_rows(self, batch: LiveBatch) -> None:
        """Of the few tables that lost a partition a short time ago: tasks have all others."""
        early_rows = self._stream.findings.early_rows
        if table_ids := early_rows.watched(batch.first_ts):
            for part in batch.slices:
                for item in transactions_of(part, table_ids):
                    early_rows.note_rows(item)

    def _know(self, bound: Bound) -> KnownSchema:
        self._translator.catch_up(bound.stop_ts, 0)
        tracker = self._downstream.tracker
        if self._known is None or self._known.generation != tracker.generation:
            self._known = KnownSchema.of(tracker, self._stream.rules)
        return self._known

    def _planned(self, known_schema: KnownSchema, bound: Bound, ddl: Ddl | None) -> LiveBatch:
        state = StreamState(self._cluster.pumps, known_schema.tracker, self._stream.rules.text)
        slices = tuple(PumpSlice.of(state, *part) for part in bound.parts)
        return LiveBatch(self.position + 1, bound.stop_ts, slices, ddl, known_schema, self._translator.route)

    async def _reach(self, commit_ts: Ts) -> None:
        """The batch that ends there is done. The downstream first: what it has is asked of no Pump again."""
        await self._downstream.reach(commit_ts)
        self.position = commit_ts
        self._cluster.done(commit_ts)

    async def give_back(self) -> None:
        """Leave the downstream as one does that stops: whoever comes next goes on from there."""
        await self._downstream.give_back(self.position)


def _before_ddl(bound: Bound) -> Bound:
    return replace(bound, stop_ts=bound.stop_ts - 1, ddl=None)
