"""Checkpoint upkeep: what is stored and looked at again and again while rows go on.

Drives  the applier's save, the checkpoint keeper, the purge of what was dropped
Owns    the pace of each
Stops   when cancelled, or with what made storing impossible
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from common.clock import Clock
from drainer.checkpoint.keeper import CheckpointKeeper

PURGE_S: Final = 60.0
"""So often tables that were dropped upstream, and are kept for a while, are looked through."""
HOLD_S: Final = 5.0
"""So often a drainer looks whether the downstream is where it was, and by that shows that it lives."""


class CheckpointUpkeep:
    """`save` stores the checkpoint if it has moved; `purge` blocks, and is given what is stored."""

    def __init__(
        self,
        keeper: CheckpointKeeper,
        save: Callable[[], Awaitable[None]],
        purge: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self._keeper = keeper
        self._save = save
        self._purge = purge
        self._clock = clock

    async def run(self, interval_s: Callable[[], float]) -> None:
        """Save at most once an interval."""
        purged_s = held_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(interval_s())
            await self._save()
            now_s = self._clock.monotonic_s()
            if now_s - held_s >= HOLD_S:
                held_s = now_s
                await self._keeper.call(self._keeper.store.hold)
            if now_s - purged_s >= PURGE_S:
                purged_s = now_s
                await self._keeper.call(self._purge, self._keeper.stored_ts)
