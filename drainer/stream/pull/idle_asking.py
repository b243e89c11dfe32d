"""Idle asking: the pumps that the position rests on are asked for a higher one, even if nothing is written.

Drives  the collector's question, from one task
Pace    `ask_s` while binlogs come and for ten seconds after the last of them, and while a pump closes: it
        leaves when the checkpoint has passed what it has. Then `QUIET_ASK_S`. At once by `hurry`. Heartbeats
        and signs of life reset nothing: they come all the time
Why     each question costs a pump a timestamp of the upstream, and us a message, a turn of the stream and a
        checkpoint: most of what nodes spend that have nothing to do. No row waits for it: a pump that holds
        one back is asked at once. Nor is a quiet stream ever shown as one that is behind (`lag.IDLE_S`)
Tests   tests/drainer/stream/pull/test_collector_quiet.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

ASK_S: Final = 0.5
QUIET_ASK_S: Final = 1.5
QUIET_AFTER_S: Final = 10.0


class IdleAsking:
    """`ask` puts the question. One event loop."""

    def __init__(self, ask: Callable[[], None], ask_s: float) -> None:
        self._ask = ask
        self._closing = False
        self._ask_s = ask_s
        self._time = asyncio.get_running_loop().time
        self._busy_s = self._time()
        self._hurry = asyncio.Event()

    def busy(self) -> None:
        """Binlogs arrived."""
        self._busy_s = self._time()

    def hurry(self) -> None:
        """Somebody waits for the stream to move on, and not for its rows."""
        self._busy_s = self._time()
        self._hurry.set()

    def close(self, closing: bool) -> None:
        """Whether a pump is about to leave."""
        if closing and not self._closing:
            self.hurry()
        self._closing = closing

    async def run(self) -> None:
        """Ask again and again; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._hurry.wait()
            self._hurry.clear()
            self._ask()

    def _pause_s(self) -> float:
        quiet = self._time() - self._busy_s >= QUIET_AFTER_S and not self._closing
        return max(self._ask_s, QUIET_ASK_S) if quiet else self._ask_s
