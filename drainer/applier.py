"""Applier: ordered binlogs in, downstream contents out.

Drives  the translator (core), the lane set, the DDL barrier, the checkpoint keeper
Owns    where in the stream it is
Holds   rows before a DDL are committed before it runs, rows behind it go out after it is recorded;
        the stored checkpoint never passes uncommitted work
Stops   `stop` takes no further item, commits what lanes have, stores `consistent = true`; if that takes
        longer than allowed, lanes are abandoned and their positions say where to go on
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from common import log
from common.clock import Clock
from drainer import metrics
from drainer.checkpoint import CheckpointStore, Start
from drainer.checkpoint_keeper import CheckpointKeeper
from drainer.column_match import FULL
from drainer.ddl_apply import DdlRunner
from drainer.ddl_barrier import DdlBarrier
from drainer.lane import LaneSettings
from drainer.lane_set import LaneSet
from drainer.merger import Merged, MergedBatch
from drainer.sink import mysql
from drainer.table_reader import TableReader
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Item, Transaction

logger = log.get(__name__)

# Transactions go to the lanes at the latest after this many row events, so that lanes work while more
# are being cut.
HAND_OVER_ROWS: Final = 400
# By row kind; handed to the metric once per hand-over, a call each would cost as much as the dispatching.
_EVENT_METRICS: Final = tuple(
    metrics.EVENTS.labels({INSERT: "Insert", UPDATE: "Update", DELETE: "Delete"}[kind]) for kind in range(3)
)


class ItemSource(Protocol):
    """The translator, as the applier sees it."""

    def translate(self, merged: Merged) -> Item | None: ...


@dataclass(frozen=True, slots=True)
class ApplierSettings:
    """`sync_mode` as in `column_match`. `whole_transactions`: one lane, and no transaction is ever cut.

    `keep_schema` is called with the commit_ts of every DDL, before its checkpoint is stored.
    """

    lane: LaneSettings
    checkpoint_interval_s: float = 0.5
    safe_mode: bool = False
    sync_mode: int = FULL
    whole_transactions: bool = False
    keep_schema: Callable[[int], None] = lambda _commit_ts: None


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
        self._target = target
        self._tables = TableReader(target, sync_mode=settings.sync_mode)
        self._translator = translator
        self._ddl_runner = ddl_runner
        self._settings = settings
        self._clock = clock
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = CheckpointKeeper(store, start, self._failure, clock, always_safe=settings.safe_mode)
        self._barrier = DdlBarrier(ddl_runner, self._keeper, start.intent, clock, settings.keep_schema)
        self._changed = asyncio.Event()
        self._lanes = self._lane_set(start)
        self._stopping = False
        self._broken = False
        self._next: asyncio.Future[MergedBatch] | None = None
        self._finished = asyncio.Event()
        self._last_ts = self._lanes.resolved_ts
        self._doing = "starting"
        self._kinds: list[int] = []  # of the row events dispatched since the last hand-over
        self.transactions = 0
        self.rows = 0

    def _lane_set(self, start: Start) -> LaneSet:
        return LaneSet(
            start.positions,
            self._target,
            self._keeper.store.lane_table(),
            self._settings.lane,
            self._clock,
            safe_until=self._keeper.safe_until,
            whole=self._settings.whole_transactions,
            on_progress=self._changed.set,
            on_failed=self._fail,
        )

    # -- what others may ask ---------------------------------------------------------------------

    @property
    def doing(self) -> str:
        return self._barrier.doing or self._doing

    @property
    def stored_ts(self) -> int:
        """The stored checkpoint."""
        return self._keeper.stored_ts

    @property
    def resolved_ts(self) -> int:
        """Everything at or below it is applied, in memory; the stored checkpoint follows."""
        return self._lanes.resolved_ts

    @property
    def handed_over_ts(self) -> int:
        """Everything at or below it is with the lanes or behind them."""
        return max(self._last_ts, self._lanes.resolved_ts)

    @property
    def start_ts(self) -> int:
        """From where to pull: everything at or below it is applied."""
        return self._lanes.resolved_ts

    def lane_states(self) -> list[dict[str, Any]]:
        return self._lanes.states()

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
        self._changed.set()

    # -- tasks of the daemon ---------------------------------------------------------------------

    async def run(self, batches: AsyncIterator[MergedBatch]) -> None:
        """Apply until stopped. Raises what made it impossible to go on."""
        self._lanes.start()
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
        self._doing = "waiting for binlogs"
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
        await self._keeper.save(self._lanes.resolved_ts)

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
        await self._lanes.end(drained=drained)
        if drained:
            await self._keeper.settle(self._lanes.resolved_ts)
        await self._keeper.close(self._ddl_runner.close, self._tables.close)
        if not drained and self._failure.done():
            await self._failure
        return drained

    # -- applying --------------------------------------------------------------------------------

    async def _apply(self, batch: MergedBatch) -> None:
        self._doing = "applying"
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
                if not self._lanes.knows(item):
                    await self._learn(item)
                waiting_rows += self._dispatch(item)
                if waiting_rows >= HAND_OVER_ROWS:
                    self._hand_over()
                    waiting_rows = 0
                    await self._room()
            if self._stopping:
                break
        else:
            self._last_ts = max(self._last_ts, batch.watermark)
            self._hand_over()
            await self._room()
            return
        self._hand_over()

    async def _learn(self, transaction: Transaction) -> None:
        unknown = self._lanes.unknown(transaction)
        self._lanes.learn(await self._keeper.call(self._tables.targets, unknown, len(self._lanes)))

    def _dispatch(self, transaction: Transaction) -> int:
        rows = self._lanes.dispatch(transaction)
        if transaction.last:
            self._last_ts = transaction.commit_ts
            self.transactions += 1
        self.rows += rows
        for events in transaction.tables:
            self._kinds += events.kinds
        return rows

    def _hand_over(self) -> None:
        """Give the lanes everything cut so far."""
        if self._kinds:
            for kind, metric in enumerate(_EVENT_METRICS):
                metric.inc(self._kinds.count(kind))
            self._kinds.clear()
        self._lanes.hand_over(self._last_ts)

    async def _room(self) -> None:
        """Wait until every lane can take more; always lets other tasks run."""
        await asyncio.sleep(0)
        await self._until(lambda: self._lanes.has_room)

    async def _drained(self) -> None:
        await self._until(lambda: self._lanes.drained)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure.done():
                await self._failure
            self._changed.clear()
            if not condition():
                await self._changed.wait()

    async def _apply_ddl(self, ddl: Ddl) -> None:
        await self._drained()
        await self._barrier.apply(ddl)
        self._last_ts = ddl.commit_ts
        self._lanes.hand_over(ddl.commit_ts)
