"""Checkpoint upkeep: what is checked downstream at intervals while rows are applied.

Drives  the checkpoint keeper, the purge of what was dropped
Owns    the pace of each
Tests   tests/drainer/sink/mysql/test_mysql_sink_modes.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drainer.checkpoint.keeper import CheckpointKeeper
from tidb_binlog.clock import Clock

PURGE_S: Final = 60.0
"""How often tables that were dropped upstream, and are kept for a while, are purged."""
HOLD_S: Final = 5.0
"""How often a drainer checks that the downstream has not gone back, which shows that it lives."""


class CheckpointUpkeep:
    """`purge` blocks, and is given what is stored: a DDL that waits may want what was dropped before it."""

    def __init__(self, keeper: CheckpointKeeper, purge: Callable[[int], None], clock: Clock) -> None:
        self._keeper = keeper
        self._purge = purge
        self._clock = clock
        self._purged_s = self._held_s = clock.monotonic_s()

    async def run_due(self) -> None:
        """Raises what makes storing impossible."""
        now_s = self._clock.monotonic_s()
        if now_s - self._held_s >= HOLD_S:
            self._held_s = now_s
            await self._keeper.call(self._keeper.store.hold)
        if now_s - self._purged_s >= PURGE_S:
            self._purged_s = now_s
            floor = self._keeper.floor() or (self._keeper.stored_ts,)
            await self._keeper.call(self._purge, min(self._keeper.stored_ts, floor[0]))
