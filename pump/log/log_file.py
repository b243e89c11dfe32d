"""Log file: the few things a value log asks of a file system, and the operating system's answer.

What a caller may rely on:

    append   all bytes or an OSError; after an error the end of the file is unknown
    sync     returns only when every appended byte is on the medium; never repeated after an error
    create   the new file and its directory entry are on the medium before it returns
    remove   the entry goes, durably after `sync`; a reader that is inside a call finishes it
    read     exactly the bytes asked for, fewer only at the end of the file

Never decides what bytes mean.

Tests  tests/crash/test_pump_log.py
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

from tidb_binlog import filesystem
from tidb_binlog.filesystem import Naming, read_at, sync_directory

_OPEN_MAX: Final = 64  # log files open at once


class _Descriptor:
    """An open file. Closes itself when its last user lets go: a reader on another thread may be inside a
    call when the file is closed or removed, and the number must not mean another file by then."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OsLogFile:
    """A file of the operating system, opened for appending when it is first used. Reads may come from any
    thread."""

    def __init__(self, path: str, opened: _OpenFiles) -> None:
        self._path = path
        self._opened = opened
        self._descriptor: _Descriptor | None = None

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        held = self._held()
        with Naming(self._path):
            return os.fstat(held.number).st_size

    def append(self, parts: Sequence[bytes]) -> None:
        held = self._held()
        with Naming(self._path):
            filesystem.append(held.number, parts)

    def sync(self) -> None:
        held = self._held()
        with Naming(self._path):
            os.fdatasync(held.number)

    def read(self, offset: int, size: int) -> bytes:
        held = self._descriptor or self._held()
        with Naming(self._path):
            return read_at(held.number, offset, size)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, durably."""
        held = self._held()
        with Naming(self._path):
            os.ftruncate(held.number, size)
            os.fsync(held.number)

    def renew(self, start: int) -> None:
        """Bring what is there from `start` on to the medium, whatever an earlier sync said of it."""
        held = self._held()
        filesystem.renew(self._path, held.number, start, self.size())

    def adopt(self, descriptor: int) -> None:
        """Use a descriptor that is open already."""
        self._descriptor = _Descriptor(descriptor)
        self._opened.add(self)

    def let_go(self) -> None:
        """Close the file as soon as no thread is inside a call; the next use opens it again."""
        self._descriptor = None

    def close(self) -> None:
        self._opened.forget(self)

    def _held(self) -> _Descriptor:
        held = self._descriptor
        if held is None:
            held = _Descriptor(os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
            self._descriptor = held
            self._opened.add(self)
        return held


class _OpenFiles:
    """Which files of a directory are open: a bound, since a log of months has more files than a process may
    open. The one opened first goes first, except the newest of all, which is being written."""

    def __init__(self) -> None:
        self._files: dict[OsLogFile, None] = {}
        self._lock = threading.Lock()

    def add(self, file: OsLogFile) -> None:
        with self._lock:
            self._files.pop(file, None)
            self._files[file] = None
            newest = max(self._files, key=lambda candidate: (len(candidate.path), candidate.path))
            while len(self._files) > _OPEN_MAX:
                oldest = next(candidate for candidate in self._files if candidate not in (newest, file))
                del self._files[oldest]
                oldest.let_go()

    def forget(self, file: OsLogFile) -> None:
        with self._lock:
            self._files.pop(file, None)
            file.let_go()


class OsLogDirectory:
    """A directory of the operating system; made, durably, if it is not there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened = _OpenFiles()
        os.makedirs(path, mode=0o700, exist_ok=True)
        # Not only when it was made just now: a killed process may have made it or a file, and synced neither.
        sync_directory(os.path.dirname(path) or ".")
        sync_directory(path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path))

    def size(self, name: str) -> int:
        return os.stat(os.path.join(self._path, name)).st_size

    def open(self, name: str) -> OsLogFile:
        return OsLogFile(os.path.join(self._path, name), self._opened)

    def create(self, name: str) -> OsLogFile:
        path = os.path.join(self._path, name)
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags, 0o600)  # rows are in it
        try:
            with Naming(path):
                os.fsync(descriptor)
            sync_directory(self._path)
        except OSError:
            os.close(descriptor)
            raise
        file = OsLogFile(path, self._opened)
        file.adopt(descriptor)
        return file

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self._path, name))

    def sync(self) -> None:
        sync_directory(self._path)
