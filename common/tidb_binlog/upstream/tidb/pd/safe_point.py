"""Safe points: what PD keeps from being collected because it is still read, and what is collected.

Tests  tests/common/upstream/tidb/pd/test_pd.py
"""

from __future__ import annotations

import asyncio

from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.pd.pd import PdClient


class ServiceSafePoint:
    """GarbageHold of a real cluster. A hold that comes too late is not stored by PD."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def hold(self, name: str, ts: Ts, ttl_s: int) -> int:
        """See `GarbageHold`."""
        return await self._pd.update_safe_point(name, ttl_s, ts)


class CollectedUpTo:
    """The safe point of the garbage collection, read for many at once. One event loop."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd
        self._reading: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def now(self) -> int:
        """What it was at some time after this call began. Raises `Unavailable`, `Rejected`."""
        running = self._reading
        if running is None or running.done():
            task = self._reading = self._begin(None)
        elif self._next is None or self._next is running:
            task = self._next = self._begin(running)
        else:
            task = self._next
        return await asyncio.shield(task)

    def _begin(self, before: asyncio.Task[int] | None) -> asyncio.Task[int]:
        task = asyncio.get_running_loop().create_task(self._read(before), name="gc safe point")
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen, if nothing waits
        return task

    async def _read(self, before: asyncio.Task[int] | None) -> int:
        """Behind the one that is under way: that may have been answered already."""
        if before is not None:
            await asyncio.wait({before})
            self._reading, self._next = self._next, None
        return await self._pd.gc_safe_point()

    async def close(self) -> None:
        tasks = [task for task in (self._reading, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
