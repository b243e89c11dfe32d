"""Lane feed: what was cut goes to the lanes and, with a relay log, to its disk at the same time.

Holds   lanes get chunks in the order in which they were cut, and commit none before it is durable in the log.
        While one lot is being synced the next one is cut, but not a third: the log bounds what waits
Stops   `settled` returns when nothing is under way; it raises what made it impossible to feed the lanes

Tests  tests/drainer/sink/mysql/test_lane_feed.py, tests/drainer/app/test_recovery.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.relay.relay_log import RelayLog
from drainer.sink.background import Background
from drainer.sink.mysql.lane_set import LaneSet
from drainer.sink.mysql.lanes import Lanes
from drainer.sink.traced_items import TRACK
from drainer.stream.pull.merged import Spilled
from drainer.txn import Ddl, TableVersion, Transaction
from tidb_binlog.observe import trace
from tidb_binlog.tso import Ts

# Transactions go to the lanes at the latest after this many row events, so that lanes work while more are
# being cut. With a relay log more of them share a sync, and the thread switches around it.
ROWS: Final = 400
ROWS_LOGGED: Final = 1600


class LaneFeed:
    """`on_failed` is called with an error at once."""

    def __init__(self, relay: RelayLog | None, on_failed: Callable[[BaseException], None]) -> None:
        self._relay = relay
        self._on_failed = on_failed
        self._under_way: asyncio.Future[None] | None = None
        if relay is not None:
            relay.watch(on_failed)
        self.rows = ROWS if relay is None else ROWS_LOGGED
        """So many row events are enough to feed the lanes."""

    @property
    def logs(self) -> bool:
        return self._relay is not None

    @property
    def waiting_for(self) -> str:
        """What the log waits for, "" if nothing."""
        return self._relay.waiting_for if self._relay is not None else ""

    def append(self, transaction: Transaction) -> None:
        """Into the log with it, before it is dispatched."""
        if self._relay is not None:
            self._relay.append(transaction)

    async def log_large(self, spilled: Spilled, pieces: AsyncIterator[Transaction]) -> None:
        """A large transaction, of which nothing may go to a lane before this returns; not without its last
        piece."""
        relay = self._relay
        if relay is None:
            return
        if relay.keeps_payloads:
            tables, rows, whole = set[TableVersion](), 0, False
            async for piece in pieces:
                tables.update(events.table for events in piece.tables)
                rows += sum(len(events.rows) for events in piece.tables)
                whole = piece.last
            if whole and tables:
                relay.append_large(spilled, tables, rows)
        else:
            async for piece in pieces:
                relay.append(piece)
                if not relay.has_room:
                    await relay.sync()
        await relay.sync()

    async def log_ddl(self, ddl: Ddl, text: str | None) -> None:
        """It will run, with `text` if not with its own."""
        if self._relay is not None:
            self._relay.append(ddl, text)
            await self._relay.sync()

    async def log_kept(self, ddl: Ddl) -> None:
        """It waits, and nothing is known yet of what will run."""
        await self.log_ddl(ddl, None)

    async def give(self, lanes: LaneSet, upto_ts: Ts) -> None:
        """Everything cut so far, every change at or below `upto_ts`, and maybe more."""
        if self._relay is None:
            lanes.hand_over(upto_ts)
            return
        await self.settled()
        cut = lanes.cut()
        if cut:
            lanes.offer(cut, upto_ts)
        logged_ts = max((chunk.position.commit_ts for _, chunk in cut), default=0)
        self._under_way = asyncio.ensure_future(self._log(lanes, upto_ts, logged_ts))
        self._under_way.add_done_callback(self._note)

    async def _log(self, lanes: LaneSet, upto_ts: Ts, logged_ts: Ts) -> None:
        assert self._relay is not None
        await self._relay.sync(logged_ts)
        if not logged_ts:  # no lane commits anything by which the place would be reached
            lanes.offer([], upto_ts)

    def _note(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self._on_failed(error)

    async def settled(self) -> None:
        """What was given is in the log."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)
            self._under_way = None

    def done(self, stored_ts: Ts) -> None:
        """The stored checkpoint: what lies below it is not needed any more."""
        if self._relay is not None:
            self._relay.done(stored_ts)

    async def close(self) -> None:
        if self._relay is not None:
            await self._relay.close()


# Settling: lanes come to stand at one place of the stream, and that is stored.
# Owns    how far the stream was given
# Stops   raises what ended a lane, or what works beside the stream


class Settling:
    """`highest_ts`: where the foremost lane was at the start."""

    def __init__(
        self,
        feed: LaneFeed,
        lanes: Lanes,
        keeper: CheckpointKeeper,
        background: Background,
        highest_ts: Ts,
    ) -> None:
        self._feed = feed
        self._lanes = lanes
        self._keeper = keeper
        self._background = background
        self.highest_ts = highest_ts
        self.last_ts = lanes.now.resolved_ts
        """All at or below it was given: the last whole transaction, DDL or watermark. Never falls."""

    async def flush(self) -> None:
        """Give the lanes everything cut so far, once it is in the relay log."""
        await self._feed.give(self._lanes.now, self.last_ts)

    async def drained(self) -> None:
        """Everything that was flushed is committed."""
        lanes = self._lanes.now
        with trace.span("drains lanes", TRACK):
            await self._feed.settled()
            await self._background.until(lambda: lanes.drained)

    def place(self) -> Position:
        """Where the stream is: in a large transaction, or after a whole one."""
        reached = self._lanes.now.reached
        if reached.rows != COMPLETE:
            return reached
        return Position(max(self.last_ts, self.highest_ts))

    async def settle(self, work: Callable[[Any], None]) -> Position:
        """Drain the lanes, and store that they stand here in one transaction with `work`; where it is."""
        await self.flush()
        await self.drained()
        place = self.place()
        await self._keeper.together(work, lanes_at=place, upto_ts=place.complete_ts)
        return place
