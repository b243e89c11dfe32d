"""Applier: ordered binlogs in, downstream contents out.

Drives  the translator (core), the lane set, the DDL barrier, the relay log, the checkpoint keeper
Owns    where in the stream it is
Holds   rows before a DDL are committed before it runs, rows behind it go out after it is recorded; with a
        relay log, all of it is durable there first; the stored checkpoint never passes uncommitted work
Stops   `stop` takes no further item, commits what lanes have, stores `consistent = true`; if that takes
        longer than allowed, lanes are abandoned and their positions say where to go on
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from common.clock import Clock
from common.errors import DownstreamError
from common.observe import log
from drainer import metrics
from drainer.apply.ddl_barrier import DdlBarrier
from drainer.apply.lane_count import LaneCount
from drainer.apply.lane_feed import HandOver
from drainer.apply.lane_set import LaneSet
from drainer.apply.quarantine_setup import QuarantineSetup, open_early, open_quarantine
from drainer.apply.rule_taking import RuleTaking
from drainer.apply.settings import ApplierSettings, ItemSource
from drainer.apply.table_learning import TableLearning
from drainer.apply.target_reader import TableReader
from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.upkeep import CheckpointUpkeep
from drainer.control.pause_and_reload import Control
from drainer.ddl.run.runner import DdlRunner
from drainer.pull.merged import MergedBatch, Spilled
from drainer.relay.relay_log import RelayLog
from drainer.rules.rule_change import RuleChange
from drainer.rules.rule_set import Rules
from drainer.sink.mysql.change import COMPLETE, Position
from drainer.sink.mysql.connection import Target
from drainer.sink.runner import BatchTaking
from drainer.txn import Ddl, Transaction

logger = log.get(__name__)


class Applier:
    def __init__(
        self,
        start: Start,
        store: CheckpointStore,
        target: Target,
        translator: ItemSource,
        ddl_runner: DdlRunner,
        settings: ApplierSettings,
        clock: Clock,
        quarantine_setup: QuarantineSetup,
        *,
        rules: RuleChange | None = None,
        control: Control | None = None,
        relay: RelayLog | None = None,
    ) -> None:
        self._control = control or Control(clock)
        self._hands = HandOver(relay, self._fail)
        self._target = target
        self._tables = TableReader(target, sync_mode=settings.sync_mode)
        self._translator = translator
        self._ddl_runner = ddl_runner
        self._clock = clock
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keeper = self._keeper = CheckpointKeeper(
            store, start, self._failure, clock, always_safe=settings.safe_mode, maps=settings.maps_positions
        )
        self._highest_ts = max(position.commit_ts for position in start.positions)
        self._waiting_tables = TableReader(target, sync_mode=settings.sync_mode)
        early = open_early(quarantine_setup, self._keeper, ddl_runner, lambda: self.quarantine, clock)
        lane = settings.lane if early is None else replace(settings.lane, on_refused=early.ask)
        self._settings = replace(settings, lane=lane)
        self.quarantine = open_quarantine(
            quarantine_setup, self._highest_ts, keeper, target, lane, self._waiting_tables, clock
        )
        self._barrier = DdlBarrier(
            ddl_runner, keeper, start.intent, clock, settings.keep_schema, self.quarantine, self._hands, early
        )
        self._changed = asyncio.Event()
        self._control.on_change = self.quarantine.on_change = self._changed.set
        if self.quarantine.waits:  # all of it comes again from the checkpoint on
            self._keeper.stored_ts = start.floor_ts
        self._learning = TableLearning(self._tables, self._keeper, start, lambda: self._lanes, self.settle)
        change = rules or RuleChange(None, Rules(), start.basis)
        self.rules = RuleTaking(change, self._learning, self._keeper, start.past_ts, self)
        self._lanes = self._lane_set(start.positions, start.floor_ts if self.quarantine.waits else None)
        count = 1 if settings.whole_transactions else len(start.positions)
        self.lane_count = LaneCount(
            count, settings.lanes_max or count, lambda: self._lanes, lambda: self.rows, clock
        )
        self._broken = False
        self._cut_short = False  # a part of a transaction is with the lanes, the rest is not
        self._taking = BatchTaking()
        self._finished = asyncio.Event()
        self._last_ts = self._lanes.resolved_ts
        self._doing = "starting"
        self._kinds: list[int] = []  # of the row events dispatched since the last hand-over
        self.transactions = self.rows = 0

    def _lane_set(self, positions: Sequence[Position], after_ts: int | None = None) -> LaneSet:
        return LaneSet(
            positions,
            self._target,
            self._keeper.store.lane_table(),
            self._settings.lane,
            self._clock,
            safe_mode=self._keeper.safe_mode,
            whole=self._settings.whole_transactions,
            on_progress=self._changed.set,
            on_failed=self._fail,
            on_table_changed=lambda: self._learning.note_changed(),
            after_ts=after_ts,
        )

    def change_pace(self, *, batch_rows: int, checkpoint_interval_s: float) -> None:
        """Other settings from the next batch and the next checkpoint on."""
        lane = replace(self._settings.lane, batch_rows=batch_rows)
        self._settings = replace(self._settings, lane=lane, checkpoint_interval_s=checkpoint_interval_s)
        self._lanes.change_settings(lane)

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
        return self.resolved_ts

    def drift(self) -> dict[str, int]:
        """Rows that were not downstream as they should have been, by table."""
        return drift.rows() if (drift := self._settings.lane.drift) else {}

    def foreign_texts(self) -> dict[str, dict[str, int]]:
        """Values that a column's character set downstream does not have, by table and column."""
        return drift.texts() if (drift := self._settings.lane.drift) else {}

    def lane_states(self) -> list[dict[str, Any]]:
        return self._lanes.states()

    def facts(self) -> dict[str, Any]:
        """For /status: DDL that waits or lacks something downstream, and what the relay log waits for."""
        return {
            "DDL": {
                "progress": self._barrier.progress,
                "missing": list(self._ddl_runner.missing),
                **self.quarantine.document(),
            },
            "Relay": {"on": self._hands.logs, "waiting_for": self._hands.waiting_for},
        }

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
        self._changed.set()

    def wake(self) -> None:
        """Let the stream look around, if it waits."""
        self._taking.wake()
        self._changed.set()

    # -- tasks of the daemon ---------------------------------------------------------------------

    async def run(self, batches: AsyncIterator[MergedBatch]) -> None:
        """Apply until stopped. Raises what made it impossible to go on."""
        self._lanes.start()
        try:
            while (batch := await self._next_batch(batches)) is not None:
                await self._apply(batch)
        except DownstreamError:
            self._broken = True
            await self._keeper.call(self._keeper.store.confirm)  # it may have gone back in time
            raise
        except BaseException:
            # A transaction may be cut half: what was not handed over stays out, the next start brings it.
            self._broken = True
            raise
        finally:
            self._finished.set()

    async def _next_batch(self, batches: AsyncIterator[MergedBatch]) -> MergedBatch | None:
        self._doing = self._doing if self._taking.is_stopping() else "waiting for binlogs"
        return await self._taking.take(batches)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What runs beside it, by name; to be called once."""
        tuning = {} if self._settings.whole_transactions else {"tuning": self.lane_count.run()}
        return {**tuning, "release": self.quarantine.run()}

    async def watch(self) -> None:
        """Ends with the error of the first lane that failed."""
        await asyncio.shield(self._failure)

    async def keep_checkpoint(self) -> None:
        """Store the checkpoint whenever it has moved, at most once an interval; purge what it has passed."""
        upkeep = CheckpointUpkeep(self._keeper, self.save_checkpoint, self._ddl_runner.purge, self._clock)
        await upkeep.run(lambda: self._settings.checkpoint_interval_s)

    async def save_checkpoint(self) -> None:
        await self._keeper.save(self._lanes.resolved_ts)
        self._hands.done(self._keeper.stored_ts)

    async def stop(self, deadline_s: float) -> bool:
        """Finish what was begun. True if the downstream now equals the stored checkpoint exactly.

        A transaction that came in pieces is not finished: the lanes' positions say how far it is.
        Raises what made a lane fail, after everything is closed.
        """
        self._taking.stop()
        self._control.let_go()
        self.quarantine.stop()
        self._changed.set()
        drained = False
        try:
            async with asyncio.timeout(deadline_s):
                await self._finished.wait()
                if not self._broken:
                    await self._hand_over()
                await self._drained()
                drained = True
        except TimeoutError:
            logger.warning("lanes did not finish in time, their positions are kept", deadline_s=deadline_s)
        except Exception as error:
            logger.failure("lanes could not finish", error)
        await self._lanes.end(drained=drained)
        await self.quarantine.close()
        if drained and not self._cut_short:
            await self._keeper.settle(self._lanes.resolved_ts)
        await self._close()
        if not drained and self._failure.done():
            await self._failure
        return drained and not self._cut_short

    async def finish_waiting(self) -> list[dict[str, Any]]:
        """Behind the end of `run`, do what waited and is decided; what still waits, as operators see it."""
        await self._drained()
        await self.quarantine.finish(self._last_ts)
        return self.quarantine.documents()

    async def abandon(self) -> None:
        """End, and store nothing. What calls into this one has ended."""
        self.quarantine.stop()
        await self._lanes.end(drained=False)
        await self.quarantine.close()
        await self._close()

    async def _close(self) -> None:
        await self._keeper.close(self._ddl_runner.close, self._tables.close, self._waiting_tables.close)
        await self._hands.close()

    # -- applying --------------------------------------------------------------------------------

    async def _apply(self, batch: MergedBatch) -> None:
        self._doing = "applying"
        for merged in batch.entries:
            if merged.commit_ts > self.rules.boundary_ts:
                await self.rules.leave_past()
            if self._control.holds and self._control.paused:
                await self._pause()
            if merged.spilled is not None:
                await self._apply_large(merged.spilled)
            else:
                item = self._translator.translate(merged)
                if isinstance(item, Ddl):
                    await self._apply_ddl(item)
                else:
                    await self._take(item)
                    if len(self._kinds) >= self._hands.rows:
                        await self._hand_over()
                        await self._room()
            if self._taking.is_stopping():
                break
        else:
            self._last_ts = max(self._last_ts, batch.watermark)
        await self._hand_over()
        await self._room()
        if self._keeper.map_is_due and not self._taking.is_stopping():
            await self._drained()
            await self._keeper.map_downstream(self._lanes.resolved_ts)
        if not self._taking.is_stopping():
            await self._between_batches()

    async def _between_batches(self) -> None:
        """What needs drained lanes and a place between two transactions."""
        if self._last_ts >= self.rules.boundary_ts:
            await self.rules.leave_past()
        if self.rules.wanted:
            await self.rules.take()
        if self.quarantine.wants_pause(self._last_ts):
            await self._drained()
            await self.quarantine.pause(self._last_ts)
            self._lanes.forget()
        if self.lane_count.wanted != len(self._lanes) and self._last_ts >= self._highest_ts:
            await self._change_lanes(self.lane_count.wanted)

    async def _pause(self) -> None:
        """Nothing is translated meanwhile: other rules may come."""
        await self._hand_over()
        self._doing = "held back by the operator"
        while self._control.holds and self._control.paused:
            if self.rules.wanted:
                await self.rules.take()
            self._changed.clear()
            if self._failure.done():
                await self._failure
            await self._changed.wait()
        self._doing = "applying"

    def place(self) -> Position:
        """Where the stream is: in a large transaction, or behind a whole one."""
        reached = self._lanes.reached
        if reached.rows != COMPLETE:
            return reached
        return Position(max(self._last_ts, self._highest_ts))

    async def settle(self, work: Callable[[Any], None]) -> Position:
        """Drain the lanes, and store that they stand here in one transaction with `work`."""
        await self._hand_over()
        await self._drained()
        place = self.place()
        await self._keeper.together(work, lanes_at=place, upto_ts=place.complete_ts)
        return place

    async def _apply_large(self, spilled: Spilled) -> None:
        """Piece by piece; reading the file and looking it over is done on a thread.

        With a relay log twice: all of it is there before any of it goes to a lane.
        """
        self._doing = f"applying the large transaction of commit_ts {spilled.commit_ts}"
        if self._hands.logs:
            async for piece in self._pieces(spilled):
                await self._hands.append_piece(piece)
            await self._hands.synced()
        async for piece in self._pieces(spilled):
            self._cut_short = True
            await self._take(piece)
            await self._hand_over()
            await self._room()
            self._cut_short = not piece.last
        self._doing = "applying"

    async def _pieces(self, spilled: Spilled) -> AsyncIterator[Transaction]:
        """Ends early when the applier is to stop."""
        pieces = await asyncio.to_thread(self._translator.pieces, spilled)
        while (
            piece := await asyncio.to_thread(next, pieces, None)
        ) is not None and not self._taking.is_stopping():
            yield piece

    async def _take(self, transaction: Transaction) -> None:
        """A transaction, or the next piece of one, on its way to the lanes."""
        if self._control.holds:
            await self._admit(transaction)
        if transaction.last and not self._cut_short:
            self._hands.append(transaction)
        lanes = self._lanes
        transaction = self.quarantine.divert(transaction)
        if not lanes.knows(transaction):
            await self._learning.learn(transaction)
        self.rows += lanes.dispatch(transaction)
        if transaction.last:
            self._last_ts = transaction.commit_ts
            self.transactions += 1
        for events in transaction.tables:
            self._kinds += events.kinds
        if self._learning.goes_alone(transaction.commit_ts):
            await self._hand_over()
            await self._drained()

    async def _admit(self, transaction: Transaction) -> None:
        """What was taken before goes out; then wait for leave."""
        await self._hand_over()
        self._doing = "held back by the operator"
        rows = sum(len(events.rows) for events in transaction.tables)
        await self._control.admit(rows, transaction.size_bytes)
        self._doing = "applying"

    async def _hand_over(self) -> None:
        """Give the lanes everything cut so far, once it is in the relay log."""
        if self._kinds:
            for kind, metric in enumerate(metrics.ROW_EVENTS):
                metric.inc(self._kinds.count(kind))
            self._kinds.clear()
        await self._hands.give(self._lanes, self._last_ts)

    async def _room(self) -> None:
        """Wait until every lane can take more; always lets other tasks run."""
        await asyncio.sleep(0)
        stopping = self._taking.is_stopping
        await self._until(lambda: self._lanes.has_room and (self.quarantine.has_room or stopping()))

    async def _drained(self) -> None:
        await self._hands.settled()
        await self._until(lambda: self._lanes.drained)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure.done():
                await self._failure
            self._changed.clear()
            if not condition():
                await self._changed.wait()

    async def _apply_ddl(self, ddl: Ddl) -> None:
        await self._hand_over()
        await self._drained()
        if self._control.holds:
            self._doing = "held back by the operator"
            await self._control.admit(1, len(ddl.query))
        if self._taking.is_stopping():
            return
        ran = await self._barrier.apply(ddl)
        self._last_ts = ddl.commit_ts
        if ran:
            self._learning.passed(ddl)
        self._lanes.hand_over(ddl.commit_ts)
        self._doing = "applying"

    async def _change_lanes(self, lanes: int) -> None:
        """At a drained point: end these lanes, go on with another number of them."""
        await self._drained()
        position = Position(self._lanes.resolved_ts)
        await self._lanes.end(drained=True)
        await self._keeper.call(self._keeper.store.resize, lanes, position)
        self._lanes = self._lane_set((position,) * lanes)
        self._lanes.start()
        logger.info("number of lanes changed", lanes=lanes)
