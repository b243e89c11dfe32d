"""Spill: binlogs that are too large to wait in memory, each in a file of its own below the data directory.

Owns    the directory, and descriptors of files that have no name: a crash leaves nothing there
Holds   a file is there as long as something refers to it; what each pump has in such files is counted
Waits   for space on the disk, and says so: a full disk delays large transactions and loses nothing
Never   syncs: what is here can be pulled again
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from drainer.stream.pull.merged import Spilled
from tidb_binlog import binlog
from tidb_binlog.observe import log, metrics
from tidb_binlog.record import crc32c_extend
from tidb_binlog.tso import Ts

ABOVE_BYTES: Final = 8 << 20
AHEAD_BYTES: Final = 1 << 30
RETRY_S: Final = 1.0
_PREFIX: Final = "spill-"
_SLICE_BYTES: Final = 1 << 20

T = TypeVar("T")
_logger = log.get("spill")

SPILLED_BYTES: Final = metrics.counter(
    "binlog_drainer_spill_written_bytes_total", "Bytes of large transactions that were put on disk."
)
HELD_BYTES: Final = metrics.gauge("binlog_drainer_spill_bytes", "Bytes of large transactions on disk.")

Write = Callable[[int, bytes, int], int]
"""`os.pwrite`: descriptor, bytes, offset; how many were written."""


class Account:
    """What one pump has in files that are still to be read. `on_less` is called, on any thread, whenever
    that got less."""

    def __init__(self, on_less: Callable[[], None]) -> None:
        self.bytes = 0
        self._on_less = on_less
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count bytes that are held from now on."""
        with self._lock:
            self.bytes += size
        HELD_BYTES.inc(size)

    def remove(self, size: int) -> None:
        """Count bytes that are held no longer, and tell who waits for room."""
        with self._lock:
            self.bytes -= size
        HELD_BYTES.dec(size)
        self._on_less()


class SpillFile:
    """One binlog. Written by one thread at a time from front to back, then read by any."""

    def __init__(self, descriptor: int, account: Account, write: Write) -> None:
        self._descriptor = descriptor
        self._account = account
        self._write = write
        self._contents_offset = 0
        self._checksum = 0
        self._released = False
        self.size = 0

    def __del__(self) -> None:
        os.close(self._descriptor)
        self.release()

    def release(self) -> None:
        """It does not count any more."""
        if not self._released:
            self._released = True
            self._account.remove(self.size)

    def append(self, data: bytes) -> None:
        """Write all of it, or raise `OSError` and be as before. The first bytes hold the fields 1 to 4."""
        at, rest = self.size, data
        while rest:
            written = self._write(self._descriptor, rest, at)
            at, rest = at + written, rest[written:]
        if not self.size:
            self._contents_offset = binlog.contents_offset(data)
            data = data[self._contents_offset :]
        self._checksum = crc32c_extend(self._checksum, data)
        SPILLED_BYTES.inc(at - self.size)
        self._account.add(at - self.size)
        self.size = at

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes, fewer at the end. Raises `OSError`."""
        return os.pread(self._descriptor, max(min(size, self.size - offset), 0), offset)

    def spilled(self, start_ts: Ts, commit_ts: Ts) -> Spilled:
        """The whole, now that it is written."""
        begin, checksum = self._contents_offset, self._checksum
        return Spilled(commit_ts, start_ts, self.size, begin, checksum, self.read, self.release)


class SpillDirectory:
    """`above_bytes`: larger binlogs go here. `ahead_bytes`: a pump that has more than that here is not read
    further; one transaction of any size always fits. `waiting`: why nothing can be written, "" if it can."""

    def __init__(
        self,
        path: str,
        *,
        above_bytes: int = ABOVE_BYTES,
        ahead_bytes: int = AHEAD_BYTES,
        retry_s: float = RETRY_S,
        write: Write = os.pwrite,
    ) -> None:
        assert above_bytes > 0
        self.path = path
        self.above_bytes = above_bytes
        self.ahead_bytes = ahead_bytes
        self.waiting = ""
        self._retry_s = retry_s
        self._write = write

    def clean(self) -> None:
        """Remove what a process that was killed while it made a file may have left. Raises `OSError`."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                if name.startswith(_PREFIX):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.path, name))

    async def begin(self, account: Account) -> SpillFile:
        """An empty file; waits for as long as none can be made."""
        return await self._patiently(lambda: SpillFile(self._open(), account, self._write))

    async def append(self, file: SpillFile, data: bytes) -> None:
        """Write on a thread; waits for as long as the disk takes nothing."""
        await self._patiently(lambda: file.append(data))

    async def keep(self, account: Account, data: memoryview) -> SpillFile:
        """A file with all of `data`."""
        file = await self.begin(account)
        for at in range(0, len(data), _SLICE_BYTES):
            await self.append(file, bytes(data[at : at + _SLICE_BYTES]))
        return file

    def _open(self) -> int:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        descriptor, path = tempfile.mkstemp(prefix=_PREFIX, dir=self.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return descriptor

    async def _patiently(self, function: Callable[[], T]) -> T:
        while True:
            try:
                result = await asyncio.to_thread(function)
            except OSError as error:
                if not self.waiting:
                    _logger.warning(
                        "large transaction cannot be put on disk, trying again",
                        directory=self.path,
                        error=error,
                        hint="free space there; nothing is lost meanwhile",
                    )
                self.waiting = f"room in {self.path}: {error.strerror}"
                await asyncio.sleep(self._retry_s)
                continue
            if self.waiting:
                _logger.info("large transactions are put on disk again", directory=self.path)
                self.waiting = ""
            return result
