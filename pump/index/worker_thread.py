"""Worker thread: runs functions one after the other; their results come back to the event loop.

Owns   one thread, begun with the first job
Why    a pool's futures, locks and callbacks cost more than a batch of the index takes
Stops  after the jobs that were given
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class WorkerThread:
    """Used from one event loop."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """`function(*arguments)` on the thread; the future has what it returns or raises."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._thread.is_alive():
            self._thread.start()
        self._jobs.put((result, function, arguments))
        return result

    async def stop(self) -> None:
        """Return when the thread has ended. Idempotent."""
        if self._thread.is_alive():
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            result, function, arguments = job
            deliver: Callable[[asyncio.Future[Any], Any], None] = _succeed
            try:
                outcome = function(*arguments)
            except BaseException as error:  # the waiting call gets it, whatever it is
                deliver, outcome = _fail, error
            try:
                result.get_loop().call_soon_threadsafe(deliver, result, outcome)
            except RuntimeError:
                return  # the loop is closed: no call waits any more


def _succeed(result: asyncio.Future[Any], value: Any) -> None:
    if not result.done():
        result.set_result(value)


def _fail(result: asyncio.Future[Any], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)
