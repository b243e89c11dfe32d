"""Daemon call: a blocking function of the host, awaited, on a thread that no end of a program waits for.

Why    a database that hangs answers when it likes. A thread of an executor would be joined when the program
       ends, and so the program would not end before the database answers
Never  stops the function: the awaiting task may be cancelled, the thread then works for nothing
Tests  tests/pumpclient/publish/test_publisher_crashes.py
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[..., T], *arguments: object) -> T:
    """What `function` returns or raises, from a thread of its own."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(result)  # type: ignore[arg-type]
        else:  # a future takes no StopIteration
            ended.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed: no call waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="pumpclient database", daemon=True).start()
    return await ended
