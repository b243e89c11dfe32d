"""Compression: closed segments of an archive as one zstd frame each, records and all.

    binlog-<index>-<time>   becomes   binlog-<index>-<time>-<first commit_ts>.zst

Order   written beside it, synced, read back and compared, renamed, and only then the segment is removed.
        Killed in between both are there, and the segment counts
Holds   time of the last write (retention goes by it), mode, index and definitions stay as they were
Why     the name is what Go nodes once gave to compressed files: who cannot read it says so and stops, where a
        name that is not known would be passed over
Tests   tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import BinaryIO, Final

from tidb_binlog.compression import zstd
from tidb_binlog.errors import Corruption
from tidb_binlog.filesystem import sync_directory
from tidb_binlog.tso import Ts

SUFFIX: Final = ".zst"
UNFINISHED: Final = ".tmp"
_LEVEL: Final = 3
_CHUNK: Final = 1 << 20


class Stopped(Exception):
    """The caller does not want it any more; nothing has changed."""


def compressed_name(name: str, first_ts: Ts) -> str:
    """Of a segment; readers take the first commit_ts from it."""
    return f"{name}-{first_ts}{SUFFIX}"


def compress(directory: str, name: str, first_ts: Ts, stopped: Callable[[], bool]) -> tuple[int, int]:
    """Replace a segment that is not written any more by a compressed file: its size before and after.

    Blocks for seconds. Raises `OSError`; `Corruption` if what was written does not read back; `Stopped`.
    """
    path = os.path.join(directory, name)
    packed = os.path.join(directory, compressed_name(name, first_ts))
    try:
        with open(path, "rb") as source:
            status = os.fstat(source.fileno())
            checksum = _write(source, packed + UNFINISHED, stopped)
        os.utime(packed + UNFINISHED, ns=(status.st_atime_ns, status.st_mtime_ns))
        if _read_back(packed + UNFINISHED, stopped) != (status.st_size, checksum):
            raise Corruption(
                f"{packed}{UNFINISHED} does not give back {name}",
                hint="check the disk; the segment is as it was",
            )
    except BaseException:
        if os.path.exists(packed + UNFINISHED):
            os.unlink(packed + UNFINISHED)
        raise
    size = os.stat(packed + UNFINISHED).st_size
    os.rename(packed + UNFINISHED, packed)
    sync_directory(directory)
    os.unlink(path)
    return status.st_size, size


def _write(source: BinaryIO, path: str, stopped: Callable[[], bool]) -> bytes:
    """The checksum of what was read."""
    checksum = hashlib.blake2b()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        packer = zstd.packer(_LEVEL)
        while chunk := source.read(_CHUNK):
            if stopped():
                raise Stopped
            checksum.update(chunk)
            target.write(packer.compress(chunk))
        target.write(packer.flush())
        target.flush()
        os.fsync(target.fileno())
    return checksum.digest()


def _read_back(path: str, stopped: Callable[[], bool]) -> tuple[int, bytes]:
    """How much comes out, and its checksum."""
    checksum, size = hashlib.blake2b(), 0
    try:
        with open(path, "rb") as file, zstd.reader(file) as reader:
            while chunk := reader.read(_CHUNK):
                if stopped():
                    raise Stopped
                checksum.update(chunk)
                size += len(chunk)
    except (zstd.Error, EOFError):
        return -1, b""
    return size, checksum.digest()
