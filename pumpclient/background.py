"""Background: the tasks that an owner runs beside its callers.

Owns    the tasks, from `spawn` to their end
Stops   `end` cancels them and waits
Never   lets one die unheard: what nobody caught is logged, with its trace
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

logger: Final = logging.getLogger("pumpclient")


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
