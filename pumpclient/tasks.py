"""Tasks: what an owner runs beside its callers, and waiting that ends early when something happens.

Owns    the tasks of a `Background`, from `spawn` to their end; a wait of `Pauses` is the only sleep, and the
        function that sleeps is passed in, so tests decide what time it is
Stops   `Background.end` cancels its tasks and waits; a wait ends when its event is set
Never   lets a task fail in silence: what it did not catch is logged, with its trace
Tests   tests/pumpclient/publish/test_publisher_crashes.py
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from tidb_binlog.clock import Clock

logger: Final = logging.getLogger("pumpclient")
Sleep = Callable[[float], Awaitable[None]]


class Background:
    """One event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many run."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run it; `name` is for logs."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until all that run now have ended; False when time ran out first."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not pending

    async def end(self) -> None:
        """Cancel all of them. May be called again, and from several tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s stopped", task.get_name(), exc_info=error)


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
