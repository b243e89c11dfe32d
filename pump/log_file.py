"""Log files: the few things a value log asks of a file system, and the operating system's answer.

Port `LogDirectory` and `LogFile`; adapter `OsLogDirectory`. What a caller may rely on:

    append   all bytes or an OSError; after an error the end of the file is unknown
    sync     returns only when every appended byte is on the medium; never repeated after an error
    create   the new file and its directory entry are on the medium before it returns
    read     exactly the bytes asked for, fewer only at the end of the file

Never decides what bytes mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol

_JOIN_BYTES_MAX: Final = 1 << 20  # below this one copy is cheaper than many buffers
_BUFFERS_MAX: Final = 512  # IOV_MAX is 1024 on Linux


class LogFile(Protocol):
    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, parts: Sequence[bytes]) -> None: ...

    def sync(self) -> None: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, durably."""
        ...

    def close(self) -> None: ...


class LogDirectory(Protocol):
    def names(self) -> list[str]: ...

    def open(self, name: str) -> LogFile: ...

    def create(self, name: str) -> LogFile: ...


class OsLogFile:
    """A file of the operating system, opened for appending. Reads may come from any thread."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def append(self, parts: Sequence[bytes]) -> None:
        total = sum(map(len, parts))
        if total <= _JOIN_BYTES_MAX:
            self._write_all([b"".join(parts)])
            return
        for at in range(0, len(parts), _BUFFERS_MAX):
            self._write_all(parts[at : at + _BUFFERS_MAX])

    def _write_all(self, parts: Sequence[bytes]) -> None:
        buffers = [memoryview(part) for part in parts if part]
        while buffers:
            written = os.writev(self._descriptor, buffers)
            while buffers and written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            if written:
                buffers[0] = buffers[0][written:]

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) in (size, 0):
            return data
        pieces, have = [data], len(data)
        while have < size:  # one call returns at most 2 GiB
            data = os.pread(self._descriptor, size - have, offset + have)
            if not data:
                break
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class OsLogDirectory:
    """A directory of the operating system; made, durably, if it is not there."""

    def __init__(self, path: str) -> None:
        self._path = path
        if not os.path.isdir(path):
            os.makedirs(path, mode=0o755, exist_ok=True)
            sync_directory(os.path.dirname(path) or ".")

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path))

    def open(self, name: str) -> OsLogFile:
        path = os.path.join(self._path, name)
        return OsLogFile(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))

    def create(self, name: str) -> OsLogFile:
        path = os.path.join(self._path, name)
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags, 0o666)
        try:
            os.fsync(descriptor)
            sync_directory(self._path)
        except OSError:
            os.close(descriptor)
            raise
        return OsLogFile(path, descriptor)


def sync_directory(path: str) -> None:
    """Bring the entries of a directory to the medium."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
