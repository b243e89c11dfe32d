"""Abandonable thread: work that blocks, on threads that nothing waits for.

Why     a name server, a server behind a dead link or a network file system may hold a thread for minutes; the
        event loop's own threads are waited for at its end, these are not
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_abandonable_thread(function: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
    """The function's value. Raises what it raises, or `TimeoutError`: the thread is abandoned then."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = function(*arguments)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, value, failure)
        except RuntimeError:  # nothing waits any more: the loop is closed
            return

    threading.Thread(target=work, name="abandonable", daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
