"""MySQL sink: what the stream brings goes into the tables of a MySQL, a MariaDB or a TiDB.

Holds   rows before a DDL are committed before it runs, rows after it go out after it is recorded; with a
        relay log, all of it is durable there before it is committed; the stored checkpoint never passes
        uncommitted work
Stops   commits what lanes have, stores `consistent = true`; if that takes longer than allowed, lanes are
        abandoned and their positions say where to continue

Tests  tests/drainer/sink/mysql/test_mysql_sink_mariadb.py, tests/contract/test_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.keeper import CheckpointKeeper, CheckpointUpkeep
from drainer.checkpoint.resume import Start
from drainer.checkpoint.store import CheckpointStore
from drainer.ddl.quarantine.controller import QuarantineController
from drainer.ddl.quarantine.rows_entry import quarantine_rows
from drainer.ddl.rules import Rule
from drainer.ddl.run.runner import DdlRunner
from drainer.mysql.connection import Target
from drainer.mysql.refusal import RowsRefused
from drainer.operate.control.hold_state import HoldPoint
from drainer.relay.relay_log import RelayLog
from drainer.sink import Sink
from drainer.sink.background import Background
from drainer.sink.mysql.ddl_barrier import DdlBarrier
from drainer.sink.mysql.lane_feed import LaneFeed, Settling
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
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.observe import trace
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import LaneStatus
from tidb_binlog.tso import Ts


@dataclass(eq=False)
class MysqlSink(Sink):
    """`mysql_sink` makes it of its collaborators."""

    can_be_held = True
    rebuilt_after = (WentBack, RowsRefused)

    start_at: Start
    background: Background
    feed: LaneFeed
    ddl_runner: DdlRunner
    keeper: CheckpointKeeper
    upkeep: CheckpointUpkeep
    quarantine: QuarantineController
    barrier: DdlBarrier
    lanes: Lanes
    settling: Settling
    learning: TableLearning
    readers: tuple[TableReader, ...]  # to be closed with it
    beside: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    """Further tasks, by name."""
    _stopping: bool = False  # from `stop` on nothing waits for room in the quarantine
    _cut_short: bool = False  # a part of a transaction is with the lanes, the rest is not

    def __post_init__(self) -> None:
        self.flush_rows = self.feed.rows

    # -- what it tells -----------------------------------------------------------------------------

    @property
    def doing(self) -> str:
        return self.barrier.doing

    @property
    def start_ts(self) -> Ts:
        return self.resolved_ts

    @property
    def stored_ts(self) -> Ts:
        return self.keeper.stored_ts

    @property
    def resolved_ts(self) -> Ts:
        """While a DDL runs, the checkpoint stands right before it, above what lanes know of."""
        return max(self.lanes.now.resolved_ts, self.keeper.stored_ts)

    @property
    def handed_over_ts(self) -> Ts:
        return max(self.settling.last_ts, self.resolved_ts)

    @property
    def held_up(self) -> str:
        return f"the relay log: {self.feed.waiting_for}" if self.feed.waiting_for else ""

    def lane_states(self) -> list[LaneStatus]:
        return self.lanes.now.states()

    def try_again(self) -> None:
        self.quarantine.try_again()

    def facts(self) -> dict[str, Any]:
        """DDL that waits or lacks something downstream, and what the relay log waits for."""
        return {
            "DDL": {
                "progress": self.barrier.progress,
                "missing": plain(list(self.ddl_runner.missing)),
                **self.quarantine.document(),
            },
            "Relay": {"on": self.feed.logs, "waiting_for": self.feed.waiting_for},
        }

    # -- the stream --------------------------------------------------------------------------------

    def start(self) -> None:
        self.lanes.now.start()

    async def take(self, transaction: Transaction) -> Transaction:
        if transaction.last:
            self.feed.append(transaction)
        return await self._dispatch(transaction)

    async def begin_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        """With a relay log all of it is there before any of it goes to a lane."""
        await self.feed.log_large(spilled, pieces)

    async def take_piece(self, piece: Transaction) -> Transaction:
        self._cut_short = True
        taken = await self._dispatch(piece)
        await self.settling.flush()
        await self.ready()
        self._cut_short = not piece.last
        return taken

    async def _dispatch(self, transaction: Transaction) -> Transaction:
        lanes = self.lanes.now
        transaction = self.quarantine.divert(transaction)
        if not lanes.knows(transaction):
            with trace.span("reads tables", TRACK):
                await self.learning.learn(transaction)
        self.lanes.rows += lanes.dispatch(transaction)
        if transaction.last:
            self.settling.last_ts = transaction.commit_ts
        if self.learning.goes_alone(transaction.commit_ts):
            await self.settling.flush()
            await self.settling.drained()
        return transaction

    async def take_ddl(self, ddl: Ddl) -> None:
        await self.settling.flush()
        await self.settling.drained()
        if self._stopping:
            return
        with trace.span("DDL barrier", TRACK, job_id=ddl.job_id, commit_ts=ddl.commit_ts):
            ran = await self.barrier.apply(ddl)
        self.settling.last_ts = ddl.commit_ts
        if ran:
            self.learning.passed(ddl)
        self.lanes.now.hand_over(ddl.commit_ts)
        await self._bring_back()

    def watermark(self, ts: Ts) -> None:
        self.settling.last_ts = ts

    async def flush(self) -> None:
        await self.settling.flush()

    async def ready(self) -> None:
        """Wait until every lane can take more."""
        with trace.span("lets other tasks run", TRACK):
            await asyncio.sleep(0)
        lanes, quarantine = self.lanes.now, self.quarantine
        with trace.span("waits for lanes", TRACK):
            await self.background.until(lambda: lanes.has_room and (quarantine.has_room or self._stopping))

    async def between_batches(self) -> None:
        """What needs drained lanes and a place between two transactions."""
        if self.keeper.map_is_due:
            await self.settling.drained()
            await self.keeper.map_downstream(self.resolved_ts)
        await self._bring_back()
        if self.lanes.wants_other and self.settling.last_ts >= self.settling.highest_ts:
            await self.settling.drained()
            await self.lanes.resize()

    async def _bring_back(self) -> None:
        """What waited and can go on, between two transactions; and tables that are to wait from here."""
        if self.quarantine.wants_load and self.settling.last_ts >= self.settling.highest_ts:
            await self.settling.drained()
            await self.quarantine.begin_load(self.settling.last_ts)
        if self.quarantine.wants_pause(self.settling.last_ts):
            await self.settling.drained()
            await self.quarantine.pause(self.settling.last_ts)
            self.lanes.now.forget()

    @property
    def equal_from_ts(self) -> Ts:
        return self.keeper.highest_ts

    async def hold_point(self) -> HoldPoint:
        await self.settling.flush()
        await self.settling.drained()
        lanes = self.keeper.store.lane_table()
        return HoldPoint(self.handed_over_ts, lanes.cluster_id, lanes.epoch, self.quarantine.tables())

    # -- rules -------------------------------------------------------------------------------------

    @property
    def past_ts(self) -> Ts:
        return self.start_at.past_ts

    def leave_past(self) -> None:
        self.learning.leave_past()

    @property
    def place_ts(self) -> Ts:
        return self.settling.place().commit_ts

    @property
    def floor_ts(self) -> Ts:
        floor = self.keeper.floor()
        return self.place_ts if floor is None else floor[0]

    async def store_rules(self, rules: str) -> None:
        store = self.keeper.store

        def work(connection: Any) -> None:
            store.basis.clear(connection, tables_only=True)
            store.basis.put_header(connection, store.epoch, rules)

        await self.settling.settle(work)
        self.learning.settled()

    def set_ddl_rules(self, rules: Sequence[Rule]) -> None:
        self.quarantine.set_rules(rules)

    def waits_for(self, schema: str, table: str) -> bool:
        return self.quarantine.waits_for(schema, table)

    # -- beside the stream, and its end ------------------------------------------------------------

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        beside = {name: work() for name, work in self.beside.items()}
        return {**self.lanes.tasks(), "release": self.quarantine.run(), **beside}

    async def save(self) -> None:
        await self.keeper.save(self.resolved_ts)
        self.feed.done(self.keeper.stored_ts)
        await self.upkeep.run_due()

    async def failed(self, error: BaseException) -> None:
        if isinstance(error, DownstreamError):
            await self.keeper.call(self.keeper.store.confirm)  # it may have gone back in time

    def stop(self) -> None:
        self._stopping = True
        self.quarantine.stop()

    async def finish(self, *, broken: bool) -> None:
        if not broken:
            await self.settling.flush()
        await self.settling.drained()

    async def close(self, *, finished: bool) -> bool:
        """A transaction that came in pieces is not finished: the lanes' positions say how far it is."""
        await self.lanes.now.end(drained=finished)
        await self.quarantine.close()
        whole = finished and not self._cut_short
        if whole:
            await self.keeper.settle(self.resolved_ts)  # before a DDL that was refused it is stored already
        await self._close()
        return whole

    async def finish_waiting(self) -> list[dict[str, Any]]:
        """After the end of the stream, do what waited and is decided; what still waits, as operators see
        it."""
        await self.settling.drained()
        await self.quarantine.finish(self.settling.last_ts)
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
        await self.keeper.close(self.ddl_runner.close, *(reader.close for reader in self.readers))
        await self.feed.close()


def mysql_sink(
    start: Start,
    store: CheckpointStore,
    target: Target,
    ddl_runner: DdlRunner,
    settings: ApplierSettings,
    clock: Clock,
    quarantine_setup: QuarantineSetup,
    *,
    relay: RelayLog | None = None,
) -> MysqlSink:
    """The sink of a start, with all that works for it; each is made of those above it."""
    background = Background()
    feed = LaneFeed(relay, background.fail)
    keeper = CheckpointKeeper(
        store,
        start,
        background.failure,
        clock,
        always_safe=settings.safe_mode,
        maps=settings.maps_positions,
    )
    tables, waiting_tables = (TableReader(target, sync_mode=settings.sync_mode) for _ in range(2))
    early = open_early(quarantine_setup, keeper, ddl_runner, clock)
    lane = settings.lane if early is None else replace(settings.lane, on_refused=early.ask)
    highest_ts = max(position.commit_ts for position in start.positions)
    quarantine = open_quarantine(
        quarantine_setup,
        highest_ts,
        start.intent.commit_ts if start.intent else 0,
        keeper,
        target,
        lane,
        waiting_tables,
        clock,
        on_change=background.wake,
        log_kept=feed.log_kept,
    )
    if early is not None:
        early.controller = quarantine
    lanes = Lanes(
        start.positions,
        target,
        keeper,
        replace(settings, lane=replace(lane, logged=relay.mark if relay is not None else None)),
        clock,
        background,
        after_ts=start.floor_ts if quarantine.waits else None,
    )
    settling = Settling(feed, lanes, keeper, background, highest_ts)
    return MysqlSink(
        start,
        background,
        feed,
        ddl_runner,
        keeper,
        CheckpointUpkeep(keeper, ddl_runner.purge, clock),
        quarantine,
        DdlBarrier(ddl_runner, keeper, start.intent, clock, settings, quarantine, feed, early),
        lanes,
        settling,
        TableLearning(tables, keeper, start, lanes, settling.settle, rows_may_wait=lane.rows_may_wait),
        (tables, waiting_tables),
    )
