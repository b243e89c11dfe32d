"""Pauses: waiting that ends early when something happens. The only room that sleeps.

Drives  nothing
Owns    no task beyond a call; `sleep` is passed in, so tests decide what time it is
Stops   every wait ends when its event is set
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from common.clock import Clock

Sleep = Callable[[float], Awaitable[None]]


class Pauses:
    """Waits on a clock and an event."""

    def __init__(self, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep

    async def pause(self, seconds: float, wake: asyncio.Event) -> None:
        """Return after `seconds`, or as soon as `wake` is set."""
        await self.until(self._clock.monotonic_s() + seconds, wake)

    async def until(self, due_s: float | None, wake: asyncio.Event) -> None:
        """Return at `due_s` on the monotonic clock (None: never), or as soon as `wake` is set."""
        if wake.is_set():
            return
        if due_s is None:
            await wake.wait()
            return
        remaining_s = due_s - self._clock.monotonic_s()
        if remaining_s <= 0:
            return
        sleeping = asyncio.ensure_future(self._sleep(remaining_s))
        waking = asyncio.ensure_future(wake.wait())
        try:
            await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()
