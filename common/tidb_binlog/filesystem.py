"""File system: what logs, archives and small state files ask of the operating system.

Holds  `read_at` gives fewer bytes only at the end of the file; `append` and `renew` write all or raise. A
       small file is there whole or as it was before, whatever happens in between: its bytes come to the
       medium first, then the name, then the directory that holds the name
Never  decides what bytes mean
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tidb_binlog.errors import BinlogError, ConfigError

_JOIN_BYTES_MAX: Final = 1 << 20  # below this one copy is cheaper than many buffers
_BUFFERS_MAX: Final = 512  # IOV_MAX is 1024 on Linux
_RENEWED_AT_ONCE: Final = 8 << 20
_OF_THE_DISK: Final = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EMFILE, errno.ENFILE)
)


class Naming:
    """Errors of the operating system inside name the file: those of calls with a descriptor do not."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = self._path


def mending(error: OSError, otherwise: str) -> str:
    """What to do about an error of a file; `otherwise` where the error itself does not say."""
    if error.errno == errno.ESTALE:
        return (
            "the NFS server does not know this file any more: it was restored, removed by another host, or "
            "exported anew; unmount and mount the directory, then start again (docs/nfs.md)"
        )
    return otherwise


def unusable(what: str, error: OSError, otherwise: str) -> BinlogError:
    """What a start ends with for which a path is of no use: a disk that fails or is full is no fault of the
    configuration, and the same start may do later. `otherwise`: what to do about one that is."""
    if error.errno in _OF_THE_DISK:
        return BinlogError(f"{what}: {error.strerror}", hint=mending(error, "check its disk, and its room"))
    return ConfigError(f"{what}: {error.strerror}", hint=otherwise)


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """`size` bytes of the file from `offset` on, fewer only at its end. Raises `OSError`."""
    data = os.pread(descriptor, size, offset)
    if len(data) in (size, 0):
        return data
    pieces, have = [data], len(data)
    while have < size:  # one call returns at most 2 GiB
        data = os.pread(descriptor, size - have, offset + have)
        if not data:
            break
        pieces.append(data)
        have += len(data)
    return b"".join(pieces)


def read_file(path: str) -> bytes:
    """A small file as a whole. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Naming(path):
            return read_at(descriptor, 0, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def append(descriptor: int, parts: Sequence[bytes]) -> int:
    """Write all parts to a file that is open for appending; their bytes. Raises `OSError`, after which any
    number of them may be in the file."""
    total = sum(map(len, parts))
    if total <= _JOIN_BYTES_MAX:
        _write_all(descriptor, [b"".join(parts)])
        return total
    for at in range(0, len(parts), _BUFFERS_MAX):
        _write_all(descriptor, parts[at : at + _BUFFERS_MAX])
    return total


def _write_all(descriptor: int, parts: Sequence[bytes]) -> None:
    buffers = [memoryview(part) for part in parts if part]
    while buffers:
        written = os.writev(descriptor, buffers)
        while buffers and written >= len(buffers[0]):
            written -= len(buffers.pop(0))
        if written:
            buffers[0] = buffers[0][written:]


def write_at(path: str, offset: int, data: bytes) -> None:
    """Replace bytes of a file, not durably. Raises `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # O_APPEND would append
    try:
        at = 0
        with Naming(path):
            while at < len(data):
                at += os.pwrite(descriptor, data[at:], offset + at)
    finally:
        os.close(descriptor)


def renew(path: str, descriptor: int, start: int, stop: int) -> None:
    """Bring to the medium what the file, which `descriptor` reads, has in [start, stop). It is written again:
    if an earlier sync failed, the kernel takes the pages for clean, and another sync alone would do nothing.
    Raises `OSError`."""
    with Naming(path):
        for at in range(start, stop, _RENEWED_AT_ONCE):
            write_at(path, at, read_at(descriptor, at, min(_RENEWED_AT_ONCE, stop - at)))
        os.fsync(descriptor)


def lock(descriptor: int) -> bool:
    """Whether this process has the file's exclusive lock (`flock`) from now until it closes the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def replace_file(path: str, data: bytes, mode: int = 0o600) -> None:
    """Put `data` in the place of the file; durable when this returns. Raises `OSError`."""
    descriptor = _new_file(path + ".new", mode)
    try:
        view = memoryview(data)
        with Naming(path):
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_directory(os.path.dirname(path) or ".")


def _new_file(path: str, mode: int) -> int:
    """A file that no process has open and no link leads to; what a killed process left is removed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


def make_directory(path: str, mode: int) -> None:
    """Make a directory and what is missing above it; its name is on the medium when this returns, also where
    a process that was killed made it. Raises `OSError`."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(path):
        make_directory(parent, 0o777)
        try:
            os.mkdir(path, mode)
        except FileExistsError:  # made meanwhile, or no directory
            if not os.path.isdir(path):
                raise
        sync_directory(parent)
        return
    with suppress(PermissionError):  # a process that may not open the parent did not make this
        sync_directory(parent)


def sync_directory(path: str) -> None:
    """Bring the entries of a directory to the medium. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with Naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
