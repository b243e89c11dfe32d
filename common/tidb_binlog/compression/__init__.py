"""Compression of messages between nodes: each one a frame of its own, made and read without a stream.

Holds  `decompress` makes no more octets than it was told, whatever the frame says of itself
Why    zstd at its quickest level takes a small part of gzip's CPU for about the same size; gzip is in Python,
       so a host without zstd (a Python before 3.14 without the package zstandard) has it
"""

from __future__ import annotations

import importlib.util
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Final

ZSTD: Final = "zstd"
GZIP: Final = "gzip"
NAMES: Final = (ZSTD, GZIP)
SMALL_BYTES: Final = 512
"""A message below this is sent as it is: a frame would not be smaller by what it costs."""
INLINE_BYTES_MAX: Final = 32 << 10
"""A larger one is compressed on a thread: others are served meanwhile."""

_GZIP_WINDOW: Final = 31  # zlib: gzip framing, largest window
_LEVEL: Final = 1
_ZSTD_MODULE: Final = "_zstd" if sys.version_info >= (3, 14) else "zstandard"

Compress = Callable[[bytes], bytes]


def available() -> tuple[str, ...]:
    """The names that this host can read and write."""
    return tuple(name for name in NAMES if name == GZIP or importlib.util.find_spec(_ZSTD_MODULE))


def choose(taken: Iterable[str]) -> str:
    """The first of a peer's names that this host has; "" for none."""
    names = available()  # once: a peer may send a million names
    return next((name for name in taken if name in names), "")


def compressor(name: str) -> Compress:
    """Makes frames; not for two threads at once."""
    if name == GZIP:
        return _gzip
    from tidb_binlog.compression import zstd

    return zstd.compressor(_LEVEL)


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def decompress(name: str, frame: bytes, size: int) -> bytes:
    """The `size` octets in a frame. Raises `ValueError` if it is none, or holds more or fewer."""
    return _gunzip(frame, size) if name == GZIP else _unzstd(frame, size)


def _gunzip(frame: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        data = unpacker.decompress(frame, size + 1)
    except zlib.error as error:
        raise ValueError(f"no gzip frame: {error}") from None
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise ValueError(f"a gzip frame that does not hold {size} bytes")
    return data


def _unzstd(frame: bytes, size: int) -> bytes:
    from tidb_binlog.compression import zstd

    try:
        data = zstd.decompress(frame, size)
    except zstd.Error as error:
        raise ValueError(f"no zstd frame: {error}") from None
    if data is None:
        raise ValueError(f"a zstd frame that does not hold {size} bytes")
    return data
