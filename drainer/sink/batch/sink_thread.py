"""Sink thread: the methods of somebody's sink, on a thread and an event loop of their own.

Why     what blocks there, or never returns, holds neither the event loop of the Drainer nor its heartbeat
Order   calls run one after the other
Holds   whatever a method raises comes back as `Raised`; nothing of it ends the thread
Stops   `end` waits for nothing: a method that hangs is left behind, and cannot keep the process

Tests  tests/drainer/sink/batch/test_sink_thread.py
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any


class Raised(Exception):
    """A method of a sink raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class SinkThread:
    """Begins at once."""

    def __init__(self, name: str) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._begun = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._thread.start()
        self._begun.wait()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._begun.set()
            self._loop.run_forever()

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """What it returns, or what it returns is awaited to. Raises `Raised`; after `end` who calls is
        cancelled."""
        if self._ended:
            raise asyncio.CancelledError
        future = asyncio.run_coroutine_threadsafe(_called(method, arguments), self._loop)
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """No call from now on; one that runs may go on for as long as the process."""
        if not self._ended:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """After `end`: until the last call is over."""
        self._thread.join()


async def _called(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        result = method(*arguments)
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise Raised(error) from error
    except BaseException as error:
        raise Raised(error) from error
