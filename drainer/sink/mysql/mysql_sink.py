"""MySQL sink: what the stream brings goes into the tables of a MySQL, a MariaDB or a TiDB.

Drives  the lanes (what TiDB calls workers), the DDL barrier, the relay log, the checkpoint keeper
Owns    where in the stream it is
Holds   rows before a DDL are committed before it runs, rows after it go out after it is recorded; with a
        relay log, all of it is durable there first; the stored checkpoint never passes uncommitted work
Stops   commits what lanes have, stores `consistent = true`; if that takes longer than allowed, lanes are
        abandoned and their positions say where to continue

Tests  tests/drainer/sink/mysql/test_mysql_sink_mariadb.py, tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.keeper import CheckpointKeeper, CheckpointUpkeep
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.ddl.quarantine.log import Frozen
from drainer.ddl.quarantine.rows_entry import quarantine_rows
from drainer.ddl.rules import Rule
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target
from drainer.mysql.refusal import RowsRefused
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.operate.control.hold_state import HoldPoint
from drainer.relay.relay_log import RelayLog
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.mysql.ddl_barrier import DdlBarrier
from drainer.sink.mysql.lane_feed import LaneFeed
from drainer.sink.mysql.lanes import Lanes
from drainer.sink.mysql.quarantine_setup import QuarantineSetup, open_early, open_quarantine
from drainer.sink.mysql.settings import ApplierSettings
from drainer.sink.mysql.table_learning import TableLearning
from drainer.sink.mysql.target_reader import TableReader
from drainer.sink.traced_items import TRACK
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, Transaction
from tidb_binlog.clock import Clock
from tidb_binlog.errors import DownstreamError
from tidb_binlog.observe import trace
from tidb_binlog.status.drainer import LaneStatus, MismatchStatus
from tidb_binlog.tso import Ts


class MysqlSink(Sink):
    can_be_held = True
    rebuilt_after = (WentBack, RowsRefused)

    def __init__(
        self,
        start: Start,
        store: CheckpointStore,
        target: Target,
        ddl_runner: DdlRunner,
        settings: ApplierSettings,
        clock: Clock,
        quarantine_setup: QuarantineSetup,
        *,
        relay: RelayLog | None = None,
    ) -> None:
        self.background = background = Background()
        self._feed = LaneFeed(relay, background.fail)
        self.flush_rows = self._feed.rows
        self._ddl_runner = ddl_runner
        self._drift = settings.lane.drift
        self._keeper = keeper = CheckpointKeeper(
            store,
            start,
            background.failure,
            clock,
            always_safe=settings.safe_mode,
            maps=settings.maps_positions,
        )
        self._upkeep = CheckpointUpkeep(keeper, ddl_runner.purge, clock)
        self._highest_ts = max(position.commit_ts for position in start.positions)
        self._tables, self._waiting_tables = (
            TableReader(target, sync_mode=settings.sync_mode) for _ in range(2)
        )
        early = open_early(quarantine_setup, keeper, ddl_runner, lambda: self.quarantine, clock)
        lane = settings.lane if early is None else replace(settings.lane, on_refused=early.ask)

        def runner_for(frozen: Frozen) -> DdlRunner:
            runner = quarantine_setup.runner_for(frozen)
            runner.missing = ddl_runner.missing  # the status has one list
            return runner

        self.quarantine = open_quarantine(
            replace(quarantine_setup, runner_for=runner_for),
            self._highest_ts,
            start.intent.commit_ts if start.intent else 0,
            keeper,
            target,
            lane,
            self._waiting_tables,
            clock,
        )
        self.quarantine.on_change = background.wake
        self._barrier = DdlBarrier(
            ddl_runner, keeper, start.intent, clock, settings.keep_schema, self.quarantine, self._feed, early
        )
        if self.quarantine.waits:  # all of it comes again from the checkpoint on
            keeper.stored_ts = start.floor_ts
        self.lanes = Lanes(
            start.positions,
            target,
            keeper,
            replace(settings, lane=lane),
            clock,
            background,
            after_ts=start.floor_ts if self.quarantine.waits else None,
        )
        self._learning = TableLearning(
            self._tables, keeper, start, lambda: self.lanes.now, self.settle, rows_may_wait=lane.rows_may_wait
        )
        self._past_ts = start.past_ts
        self._stopping = False
        self._cut_short = False  # a part of a transaction is with the lanes, the rest is not
        self._last_ts = self.lanes.now.resolved_ts

    # -- what it tells -----------------------------------------------------------------------------

    @property
    def doing(self) -> str:
        return self._barrier.doing

    @property
    def start_ts(self) -> Ts:
        return self.resolved_ts

    @property
    def stored_ts(self) -> Ts:
        return self._keeper.stored_ts

    @property
    def resolved_ts(self) -> Ts:
        """While a DDL runs, the checkpoint stands right before it, above what lanes know of."""
        return max(self.lanes.now.resolved_ts, self._keeper.stored_ts)

    @property
    def handed_over_ts(self) -> Ts:
        return max(self._last_ts, self.resolved_ts)

    @property
    def held_up(self) -> str:
        return f"the relay log: {self._feed.waiting_for}" if self._feed.waiting_for else ""

    def lane_states(self) -> list[LaneStatus]:
        return self.lanes.now.states()

    def mismatches(self) -> MismatchStatus:
        return self._drift.status() if self._drift else MismatchStatus()

    def facts(self) -> dict[str, Any]:
        """DDL that waits or lacks something downstream, and what the relay log waits for."""
        return {
            "DDL": {
                "progress": self._barrier.progress,
                "missing": list(self._ddl_runner.missing),
                **self.quarantine.document(),
            },
            "Relay": {"on": self._feed.logs, "waiting_for": self._feed.waiting_for},
        }

    # -- the stream --------------------------------------------------------------------------------

    def start(self) -> None:
        self.lanes.now.start()

    async def take(self, transaction: Transaction) -> Transaction:
        if transaction.last:
            self._feed.append(transaction)
        return await self._dispatch(transaction)

    async def begin_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        """With a relay log all of it is there before any of it goes to a lane."""
        await self._feed.log_large(spilled, pieces)

    async def take_piece(self, piece: Transaction) -> Transaction:
        self._cut_short = True
        taken = await self._dispatch(piece)
        await self.flush()
        await self.ready()
        self._cut_short = not piece.last
        return taken

    async def _dispatch(self, transaction: Transaction) -> Transaction:
        lanes = self.lanes.now
        transaction = self.quarantine.divert(transaction)
        if not lanes.knows(transaction):
            with trace.span("reads tables", TRACK):
                await self._learning.learn(transaction)
        self.lanes.rows += lanes.dispatch(transaction)
        if transaction.last:
            self._last_ts = transaction.commit_ts
        if self._learning.goes_alone(transaction.commit_ts):
            await self.flush()
            await self._drained()
        return transaction

    async def take_ddl(self, ddl: Ddl) -> None:
        await self.flush()
        await self._drained()
        if self._stopping:
            return
        with trace.span("DDL barrier", TRACK, job_id=ddl.job_id, commit_ts=ddl.commit_ts):
            ran = await self._barrier.apply(ddl)
        self._last_ts = ddl.commit_ts
        if ran:
            self._learning.passed(ddl)
        self.lanes.now.hand_over(ddl.commit_ts)

    def watermark(self, ts: Ts) -> None:
        self._last_ts = ts

    async def flush(self) -> None:
        """Give the lanes everything cut so far, once it is in the relay log."""
        await self._feed.give(self.lanes.now, self._last_ts)

    async def ready(self) -> None:
        """Wait until every lane can take more."""
        with trace.span("lets other tasks run", TRACK):
            await asyncio.sleep(0)
        lanes, quarantine = self.lanes.now, self.quarantine
        with trace.span("waits for lanes", TRACK):
            await self.background.until(lambda: lanes.has_room and (quarantine.has_room or self._stopping))

    async def _drained(self) -> None:
        lanes = self.lanes.now
        with trace.span("drains lanes", TRACK):
            await self._feed.settled()
            await self.background.until(lambda: lanes.drained)

    async def between_batches(self) -> None:
        """What needs drained lanes and a place between two transactions."""
        if self._keeper.map_is_due:
            await self._drained()
            await self._keeper.map_downstream(self.resolved_ts)
        if self.quarantine.wants_pause(self._last_ts):
            await self._drained()
            await self.quarantine.pause(self._last_ts)
            self.lanes.now.forget()
        if self.lanes.wants_other and self._last_ts >= self._highest_ts:
            await self._drained()
            await self.lanes.resize()

    @property
    def equal_from_ts(self) -> Ts:
        return self._keeper.highest_ts

    async def hold_point(self) -> HoldPoint:
        await self.flush()
        await self._drained()
        lanes = self._keeper.store.lane_table()
        return HoldPoint(self.handed_over_ts, lanes.cluster_id, lanes.epoch, self.quarantine.tables())

    # -- rules -------------------------------------------------------------------------------------

    @property
    def past_ts(self) -> Ts:
        return self._past_ts

    def leave_past(self) -> None:
        self._learning.leave_past()

    def _place(self) -> Position:
        """Where the stream is: in a large transaction, or after a whole one."""
        reached = self.lanes.now.reached
        if reached.rows != COMPLETE:
            return reached
        return Position(max(self._last_ts, self._highest_ts))

    @property
    def place_ts(self) -> Ts:
        return self._place().commit_ts

    @property
    def floor_ts(self) -> Ts:
        floor = self._keeper.floor()
        return self.place_ts if floor is None else floor[0]

    async def store_rules(self, rules: str) -> None:
        store = self._keeper.store

        def work(connection: Any) -> None:
            store.basis.clear(connection, tables_only=True)
            store.basis.put_header(connection, store.epoch, rules)

        await self.settle(work)
        self._learning.settled()

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        self.quarantine.set_rules(rules)

    def waits_for(self, schema: str, table: str) -> bool:
        return self.quarantine.waits_for(schema, table)

    async def settle(self, work: Callable[[Any], None]) -> Position:
        """Drain the lanes, and store that they stand here in one transaction with `work`."""
        await self.flush()
        await self._drained()
        place = self._place()
        await self._keeper.together(work, lanes_at=place, upto_ts=place.complete_ts)
        return place

    # -- beside the stream, and its end ------------------------------------------------------------

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {**self.lanes.tasks(), "release": self.quarantine.run()}

    async def save(self) -> None:
        await self._keeper.save(self.resolved_ts)
        self._feed.done(self._keeper.stored_ts)
        await self._upkeep.run_due()

    async def failed(self, error: BaseException) -> None:
        if isinstance(error, DownstreamError):
            await self._keeper.call(self._keeper.store.confirm)  # it may have gone back in time

    def stop(self) -> None:
        self._stopping = True
        self.quarantine.stop()

    async def finish(self, *, broken: bool) -> None:
        if not broken:
            await self.flush()
        await self._drained()

    async def close(self, *, finished: bool) -> bool:
        """A transaction that came in pieces is not finished: the lanes' positions say how far it is."""
        await self.lanes.now.end(drained=finished)
        await self.quarantine.close()
        whole = finished and not self._cut_short
        if whole:
            await self._keeper.settle(self.resolved_ts)  # before a DDL that was refused it is stored already
        await self._close()
        return whole

    async def finish_waiting(self) -> list[dict[str, Any]]:
        """After the end of the stream, do what waited and is decided; what still waits, as operators see
        it."""
        await self._drained()
        await self.quarantine.finish(self._last_ts)
        return self.quarantine.documents()

    async def abandon(self, error: BaseException | None = None) -> None:
        """Nothing is stored but that a table of refused rows waits. What calls into this one has ended."""
        if isinstance(error, RowsRefused):
            with contextlib.suppress(RowsRefused):  # the downstream is away by now: it comes once more
                await quarantine_rows(self.quarantine.dependencies, error)
        self.quarantine.stop()
        await self.lanes.now.end(drained=False)
        await self.quarantine.close()
        await self._close()

    async def _close(self) -> None:
        await self._keeper.close(self._ddl_runner.close, self._tables.close, self._waiting_tables.close)
        await self._feed.close()
