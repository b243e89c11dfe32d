"""The one queue between tasks of an event loop: bounded in bytes and in items.

When a limit is reached `put` waits and `put_nowait` says no. An item larger than the whole queue passes
alone, when the queue is empty: it must not block for ever. Closing wakes everyone: readers get what is
left and then `QueueClosed`, writers `QueueClosed` at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueClosed(Exception):
    """The queue was closed: nothing will come, nothing is taken any more."""


class BoundedQueue(Generic[T]):
    """First in, first out; for one event loop, any number of readers and writers."""

    def __init__(self, *, bytes_max: int, items_max: int) -> None:
        assert bytes_max > 0
        assert items_max > 0
        self._bytes_max = bytes_max
        self._items_max = items_max
        self._entries: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._readers: deque[asyncio.Future[None]] = deque()
        self._writers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes_queued(self) -> int:
        return self._bytes

    @property
    def closed(self) -> bool:
        return self._closed

    def _has_room(self, size: int) -> bool:
        if not self._entries:
            return True
        return self._bytes + size <= self._bytes_max and len(self._entries) < self._items_max

    def put_nowait(self, item: T, size: int) -> bool:
        """Append if there is room; `size` in bytes. False: a limit is reached. Raises `QueueClosed`."""
        assert size >= 0
        if self._closed:
            raise QueueClosed
        if not self._has_room(size):
            return False
        self._entries.append((item, size))
        self._bytes += size
        _wake_one(self._readers)
        return True

    async def put(self, item: T, size: int) -> None:
        """Append, waiting for room. Writers that wait are served in their order. Raises `QueueClosed`."""
        first = True
        while (self._writers and first) or not self.put_nowait(item, size):
            await self._wait(self._writers, at_front=not first)
            first = False
        if self._entries and self._has_room(0):
            _wake_one(self._writers)

    async def get(self) -> T:
        """The oldest item, waiting for one. Raises `QueueClosed` when closed and empty."""
        await self._wait_for_item()
        return self._take()

    def get_nowait(self) -> T | None:
        """The oldest item, None if there is none (items should not be None themselves)."""
        return self._take() if self._entries else None

    async def get_batch(self, *, bytes_max: int, items_max: int) -> list[T]:
        """At least one item, and all that follow up to the limits; waits only for the first."""
        await self._wait_for_item()
        total = self._entries[0][1]
        batch = [self._take()]
        while self._entries and len(batch) < items_max:
            total += self._entries[0][1]
            if total > bytes_max:
                break
            batch.append(self._take())
        return batch

    def close(self) -> None:
        """Take nothing more. Idempotent."""
        self._closed = True
        for waiters in (self._readers, self._writers):
            while waiters:
                _wake_one(waiters)

    def _take(self) -> T:
        item, size = self._entries.popleft()
        self._bytes -= size
        _wake_one(self._writers)
        if self._entries:
            _wake_one(self._readers)
        return item

    async def _wait_for_item(self) -> None:
        while not self._entries:
            if self._closed:
                raise QueueClosed
            await self._wait(self._readers, at_front=False)

    async def _wait(self, waiters: deque[asyncio.Future[None]], *, at_front: bool) -> None:
        if self._closed and waiters is self._writers:
            raise QueueClosed
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if at_front:
            waiters.appendleft(future)
        else:
            waiters.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in waiters:
                waiters.remove(future)
            else:  # it had been woken: pass the wake-up on
                _wake_one(waiters)
            raise


def _wake_one(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        future = waiters.popleft()
        if not future.done():
            future.set_result(None)
            return
