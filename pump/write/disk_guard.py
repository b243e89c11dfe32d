"""Disk guard: how many bytes the data directory's file system has left.

Asks every few seconds from a worker thread; admission compares with the floor. Where a file system does not
answer, the last figure counts.

Tests  tests/pump/test_server.py
"""

from __future__ import annotations

import asyncio
import os

from pump import metrics
from pump.write.admission import Disk
from tidb_binlog.clock import look_later
from tidb_binlog.observe import log

_PERIOD_S = 3.0
_logger = log.get("disk_guard")


class DiskGuard:
    """`disk` is the last answer."""

    def __init__(self, path: str, floor: int) -> None:
        self._path = path
        self.disk = Disk(0, floor)
        metrics.SIZE_BYTES.labels("floor").set(floor)

    def change_floor(self, floor: int) -> None:
        """Prewrites are refused at this from now on."""
        self.disk = Disk(self.disk.available, floor)
        metrics.SIZE_BYTES.labels("floor").set(floor)

    async def refresh(self) -> None:
        """Ask once; raises `OSError`."""
        space = await asyncio.to_thread(os.statvfs, self._path)
        before, self.disk = self.disk, Disk(space.f_bavail * space.f_frsize, self.disk.floor)
        metrics.SIZE_BYTES.labels("capacity").set(space.f_blocks * space.f_frsize)
        metrics.SIZE_BYTES.labels("available").set(self.disk.available)
        if self.disk.is_full and not before.is_full:
            _logger.warning(
                "no available space, you may want to free up some space: prewrites are refused",
                available=self.disk.available,
                floor=self.disk.floor,
            )
        elif before.is_full and not self.disk.is_full and before.available:
            _logger.info("space is available again", available=self.disk.available)

    async def free_bytes(self) -> int:
        """Ask now. Raises `OSError`."""
        await self.refresh()
        return self.disk.available

    async def run(self) -> None:
        """Ask again and again; until cancelled."""
        while True:
            await look_later(_PERIOD_S)
            try:
                await self.refresh()
            except OSError as error:
                _logger.warning("file system of the data directory does not answer", error=error)
