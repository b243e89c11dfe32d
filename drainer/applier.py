"""Applier: ordered binlogs in, downstream contents out.

Drives  translator, dispatcher, progress (cores), lanes (threads), DDL runner and checkpoint store
Owns    the lane threads and the one thread on which the checkpoint store works
Holds   rows before a DDL are committed before it runs, rows behind it go out after it is recorded;
        the stored checkpoint never passes uncommitted work
Stops   `stop` takes no further item, commits what lanes have, stores `consistent = true`; if that takes
        longer than allowed, lanes are abandoned and their positions say where to go on
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pymysql

from common import log, tso
from common.backoff import Backoff
from common.clock import Clock
from common.errors import DownstreamError, Unavailable
from drainer import metrics
from drainer.checkpoint import Checkpoint, CheckpointStore, Intent, Start
from drainer.ddl_apply import DdlRunner
from drainer.dispatcher import Dispatcher
from drainer.lane import Lane, LaneSettings
from drainer.merger import Merged, MergedBatch
from drainer.progress import Progress
from drainer.sink import mysql
from drainer.table_target import target_of
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, Transaction

logger = log.get(__name__)
T = TypeVar("T")

# Transactions go to the lanes at the latest after this many row events, so that lanes work while more
# are being cut.
HAND_OVER_ROWS: Final = 400
# By row kind; counted here and handed to the metric once per hand-over, a call each would cost as much as
# the dispatching.
_EVENT_METRICS: Final = tuple(
    metrics.EVENTS.labels({INSERT: "Insert", UPDATE: "Update", DELETE: "Delete"}[kind]) for kind in range(3)
)


class ItemSource(Protocol):
    """The translator, as the applier sees it."""

    def translate(self, merged: Merged) -> Item | None: ...


@dataclass(frozen=True, slots=True)
class ApplierSettings:
    lane: LaneSettings
    checkpoint_interval_s: float = 0.5
    safe_mode: bool = False


class Applier:
    def __init__(
        self,
        start: Start,
        store: CheckpointStore,
        target: mysql.Target,
        translator: ItemSource,
        ddl_runner: DdlRunner,
        settings: ApplierSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._translator = translator
        self._ddl_runner = ddl_runner
        self._settings = settings
        self._clock = clock
        self._pending_intent = start.intent
        lanes = len(start.positions)
        self._dispatcher = Dispatcher(start.positions, lambda version: target_of(version, lanes))
        self._progress = Progress(lanes, min(position.complete_ts for position in start.positions))
        self._schema_version = start.checkpoint.schema_version if start.checkpoint else 0
        self._safe_until = tso.TS_MAX if settings.safe_mode else start.safe_until
        self._stored = start.checkpoint
        self.stored_ts = self._progress.resolved_ts
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._store_thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._stopping = False
        self._broken = False
        self._next: asyncio.Future[MergedBatch] | None = None
        self._finished = asyncio.Event()
        self._last_ts = 0
        self.doing = "starting"
        self._counts = [0, 0, 0]
        self.transactions = 0
        self.rows = 0
        table = store.lane_table()
        self._lanes = [
            Lane(number, target, table, settings.lane, clock, self._on_committed, self._on_failed)
            for number in range(lanes)
        ]
        for lane in self._lanes:
            lane.replaying_up_to = self._safe_until
            metrics.QUEUE_BYTES.labels(str(lane.number)).set_function(lane.queue_size)

    # -- what others may ask ---------------------------------------------------------------------

    @property
    def resolved_ts(self) -> int:
        """Everything at or below it is applied, in memory; the stored checkpoint follows."""
        return self._progress.resolved_ts

    @property
    def start_ts(self) -> int:
        """From where to pull: everything at or below it is applied."""
        return self._progress.resolved_ts

    def lane_states(self) -> list[dict[str, Any]]:
        return [
            {"lane": lane.number, "queued_bytes": lane.queued_bytes, "waiting_for": lane.waiting_for}
            for lane in self._lanes
        ]

    # -- lane threads report ---------------------------------------------------------------------

    def _on_committed(self, lane: int, sequence: int, rows: int) -> None:
        metrics.LANE_BATCH_ROWS.observe(rows)
        self._report(self._committed, lane, sequence)

    def _committed(self, lane: int, sequence: int) -> None:
        self._progress.committed(lane, sequence)
        self._changed.set()

    def _on_failed(self, lane: int, error: BaseException) -> None:
        self._report(self._fail, error)

    def _report(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody is left to be told
            self._loop.call_soon_threadsafe(function, *arguments)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
        self._changed.set()

    # -- tasks of the daemon ---------------------------------------------------------------------

    async def run(self, batches: AsyncIterator[MergedBatch]) -> None:
        """Apply until stopped. Raises what made it impossible to go on."""
        for lane in self._lanes:
            lane.start()
        try:
            while (batch := await self._batch(batches)) is not None:
                await self._apply(batch)
        except BaseException:
            # A transaction may be cut half: what was not handed over stays out, the next start brings it.
            self._broken = True
            raise
        finally:
            self._finished.set()

    async def _batch(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        """The next batch; None when there is none or the applier is to stop."""
        if self._is_stopping():
            return None
        self.doing = "waiting for binlogs"
        self._next = asyncio.ensure_future(anext(batches))
        try:
            return await self._next
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if self._is_stopping():
                return None
            raise

    def _is_stopping(self) -> bool:
        return self._stopping

    async def watch(self) -> None:
        """Ends with the error of the first lane that failed."""
        await asyncio.shield(self._failure)

    async def keep_checkpoint(self) -> None:
        """Store the checkpoint whenever it has moved, at most once an interval."""
        while True:
            await asyncio.sleep(self._settings.checkpoint_interval_s)
            await self.save_checkpoint()

    async def save_checkpoint(self) -> None:
        resolved_ts = self._progress.resolved_ts
        if resolved_ts > self.stored_ts:
            await self._on_store(self._store.save, self._checkpoint(resolved_ts))
            self._note_stored(resolved_ts)

    async def stop(self, deadline_s: float) -> bool:
        """Finish what was begun. True if the downstream now equals the stored checkpoint exactly.

        Raises what made a lane fail, after everything is closed.
        """
        self._stopping = True
        if self._next is not None:
            self._next.cancel()
        drained = False
        try:
            async with asyncio.timeout(deadline_s):
                await self._finished.wait()
                if not self._broken:
                    self._hand_over()
                await self._drained()
                drained = True
        except TimeoutError:
            logger.warning("lanes did not finish in time, their positions are kept", deadline_s=deadline_s)
        except Exception as error:
            logger.failure("lanes could not finish", error)
        for lane in self._lanes:
            if drained:
                lane.finish()
            else:
                lane.abandon()
        for lane in self._lanes:
            if lane.is_alive():
                await asyncio.to_thread(lane.join, 5.0)
        if drained:
            resolved_ts = self._progress.resolved_ts
            await self._on_store(self._store.settle, self._checkpoint(resolved_ts, consistent=True))
            self._note_stored(resolved_ts)
        await self._loop.run_in_executor(self._store_thread, self._store.close)
        await self._loop.run_in_executor(self._store_thread, self._ddl_runner.close)
        self._store_thread.shutdown(wait=False)
        if not drained and self._failure.done():
            await self._failure
        return drained

    # -- applying --------------------------------------------------------------------------------

    async def _apply(self, batch: MergedBatch) -> None:
        self.doing = "applying"
        waiting_rows = 0
        for merged in batch.entries:
            item = self._translator.translate(merged)
            if item is None:
                continue
            if isinstance(item, Ddl):
                self._hand_over()
                waiting_rows = 0
                await self._apply_ddl(item)
            else:
                waiting_rows += self._dispatch(item)
                if waiting_rows >= HAND_OVER_ROWS:
                    self._hand_over()
                    waiting_rows = 0
                    await self._room()
            if self._stopping:
                break
        else:
            self._hand_over()
            self._progress.dispatched(batch.watermark)
            await self._room()
            return
        self._hand_over()

    def _dispatch(self, transaction: Transaction) -> int:
        rows = self._dispatcher.dispatch(transaction)
        self._last_ts = transaction.commit_ts
        self.transactions += 1
        self.rows += rows
        counts = self._counts
        for events in transaction.tables:
            for kind in events.kinds:
                counts[kind] += 1
        return rows

    def _hand_over(self) -> None:
        """Give the lanes everything cut so far."""
        for kind, metric in enumerate(_EVENT_METRICS):
            if self._counts[kind]:
                metric.inc(self._counts[kind])
                self._counts[kind] = 0
        for lane, chunk in self._dispatcher.take():
            self._progress.sent(lane, chunk.sequence, chunk.first_ts)
            self._lanes[lane].offer(chunk)
        self._progress.dispatched(self._last_ts)

    async def _room(self) -> None:
        """Wait until every lane can take more; always lets other tasks run."""
        await asyncio.sleep(0)
        await self._until(lambda: all(lane.has_room for lane in self._lanes))

    async def _drained(self) -> None:
        await self._until(lambda: self._progress.idle)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure.done():
                await self._failure
            self._changed.clear()
            if not condition():
                await self._changed.wait()

    async def _apply_ddl(self, ddl: Ddl) -> None:
        await self._drained()
        if ddl.skip:
            logger.info("DDL not applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts, reason=ddl.skip)
        else:
            self.doing = f"running DDL job {ddl.job_id}"
            started_s = self._clock.monotonic_s()
            await self._execute_ddl(ddl)
            metrics.DDL_SECONDS.observe(self._clock.monotonic_s() - started_s)
            metrics.EVENTS.labels("DDL").inc()
        self._schema_version = max(self._schema_version, ddl.schema_version)
        if not ddl.skip:
            await self._on_store(self._store.end_ddl, self._checkpoint(ddl.commit_ts))
            self._note_stored(ddl.commit_ts)
            logger.info("DDL applied", job_id=ddl.job_id, commit_ts=ddl.commit_ts)
        self._last_ts = ddl.commit_ts
        self._progress.dispatched(ddl.commit_ts)

    async def _execute_ddl(self, ddl: Ddl) -> None:
        runner = self._ddl_runner
        intent, self._pending_intent = self._pending_intent, None
        if intent is not None and intent.commit_ts == ddl.commit_ts:
            if await self._on_store(runner.had_run, intent, ddl):
                logger.info("DDL had run before the last stop", job_id=ddl.job_id)
                return
        else:
            before = await self._on_store(runner.before, ddl)
            intent = Intent(ddl.commit_ts, ddl.job_id, ddl.query, before)
            await self._on_store(self._store.begin_ddl, intent)
        try:
            await self._on_store(runner.run, ddl)
        except DownstreamError:
            # The statement of a crashed run may have ended while this one waited for its locks.
            if await self._on_store(runner.had_run, intent, ddl):
                return
            if ddl.commit_ts <= self._safe_until and await self._on_store(runner.already_done, ddl):
                logger.warning("DDL was downstream already", job_id=ddl.job_id)
                return
            raise

    # -- checkpoint ------------------------------------------------------------------------------

    def _checkpoint(self, commit_ts: int, *, consistent: bool = False) -> Checkpoint:
        safe_until = 0 if self._settings.safe_mode else self._safe_until
        return Checkpoint(
            commit_ts=commit_ts,
            consistent=consistent,
            schema_version=self._schema_version,
            epoch=self._store.epoch,
            safe_until=safe_until,
            ts_map=self._stored.ts_map if self._stored else None,
        )

    def _note_stored(self, commit_ts: int) -> None:
        self.stored_ts = commit_ts
        metrics.CHECKPOINT_TSO.set(tso.physical_ms(commit_ts))
        metrics.CHECKPOINT_DELAY_SECONDS.observe(max(0.0, tso.age_s(commit_ts, self._clock.wall_s())))
        metrics.EVENTS.labels("savepoint").inc()

    async def _on_store(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run on the checkpoint thread; a downstream that is away is waited for."""
        backoff = Backoff(0.1, 2.0)
        while True:
            try:
                return await self._loop.run_in_executor(self._store_thread, function, *arguments)
            except (pymysql.err.MySQLError, OSError, Unavailable) as error:
                if not isinstance(error, Unavailable) and not mysql.is_transient(error):
                    raise mysql.refuse(error, "storing the checkpoint") from None
                if not backoff.attempts:
                    reason = str(error) if isinstance(error, Unavailable) else mysql.safe_text(error)
                    logger.warning("checkpoint waits for the downstream", reason=reason)
                if self._failure.done():
                    await self._failure
                await asyncio.sleep(backoff.next_s())
