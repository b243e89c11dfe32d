"""Settling: lanes come to stand at one place of the stream, and that is stored.

Owns    how far the stream was given
Stops   raises what ended a lane, or what works beside the stream

Tests   tests/drainer/sink/mysql/test_mysql_sink_mariadb.py, tests/drainer/sink/mysql/test_mysql_sink_modes.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.mysql.rows.change import COMPLETE, Position
from drainer.sink.background import Background
from drainer.sink.mysql.lane_feed import LaneFeed
from drainer.sink.mysql.lanes import Lanes
from drainer.sink.traced_items import TRACK
from tidb_binlog.observe import trace
from tidb_binlog.tso import Ts


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
