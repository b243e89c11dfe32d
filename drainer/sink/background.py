"""Background: what works beside a stream reports its progress and its failure there.

Holds   the first failure stays, and ends every wait for a condition
Used    by one event loop; threads come through `call_soon_threadsafe`

Tests  tests/drainer/sink/test_background.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Background:
    """Made on the event loop that uses it."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with the first error, or never."""
        self._changed = asyncio.Event()

    def fail(self, error: BaseException) -> None:
        """The stream ends with this error, if it is the first one."""
        if not self.failure.done():
            self.failure.set_exception(error)
        self._changed.set()

    def wake(self) -> None:
        """Something that a wait depends on has changed."""
        self._changed.set()

    async def watch(self) -> None:
        """Ends with the first error."""
        await asyncio.shield(self.failure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition is true; raises the first error while it is not."""
        while not condition():
            if self.failure.done():
                await self.failure
            self._changed.clear()
            if not condition():
                await self._changed.wait()
