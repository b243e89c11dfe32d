"""Waiters: tasks of any event loop that wait for what any thread may do.

Tests  tests/deploy/binlog_testing/test_cluster.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager


class Waiters:
    """Threads come in where a program under test is synchronous: its library has a loop of its own."""

    def __init__(self) -> None:
        self._events: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """An event that `wake` sets; who waits clears it."""
        event = asyncio.Event()
        self._events[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._events[event]

    def wake(self) -> None:
        """Set all of them."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for event, loop in list(self._events.items()):
            if loop is here:
                event.set()
            else:
                with contextlib.suppress(RuntimeError):  # that loop has ended
                    loop.call_soon_threadsafe(event.set)
