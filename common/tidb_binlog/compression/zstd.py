"""zstd: Python's own from 3.14 on (`compression.zstd`), before that the package zstandard; here alike.

Errors of either are `Error`. Imported where it is needed: embedded clients are installed without the package.

Tests   tests/common/test_compression.py, tests/drainer/sink/file/test_archive.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, cast

if sys.version_info >= (3, 14):
    from compression import zstd

    Error = zstd.ZstdError
else:
    import zstandard

    Error = zstandard.ZstdError

__all__ = ["Error"]


class Packer(Protocol):
    """Makes one frame in pieces."""

    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class Unpacker(Protocol):
    """Reads one frame in pieces. `eof`: it is whole; what came after it is `unused_data`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def compressor(level: int) -> Callable[[bytes], bytes]:
    """Makes a frame of each piece, which says how much is in it; not for two threads at once."""
    if sys.version_info >= (3, 14):
        whole = zstd.ZstdCompressor(level=level)
        return lambda data: whole.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return zstandard.ZstdCompressor(level=level).compress


def decompress(frame: bytes, size: int) -> bytes | None:
    """What is in a frame; None if it does not say that these are `size` octets. Raises `Error`."""
    if sys.version_info >= (3, 14):
        if zstd.get_frame_info(frame).decompressed_size != size:
            return None
        unpacker = zstd.ZstdDecompressor()
        data = unpacker.decompress(frame, size + 1)
        if len(data) != size or not unpacker.eof or unpacker.unused_data:
            raise Error("it does not hold what it says")
        return data
    # The one-shot decompressor makes room for what the frame says, so that is looked at first.
    if cast(Any, zstandard).frame_content_size(frame) != size:
        return None
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=size, allow_extra_data=False)


def packer(level: int) -> Packer:
    """With a checksum at the end of the frame."""
    if sys.version_info >= (3, 14):
        parameter = zstd.CompressionParameter
        return zstd.ZstdCompressor(options={parameter.compression_level: level, parameter.checksum_flag: 1})
    return cast(Packer, zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj())


def unpacker() -> Unpacker:
    if sys.version_info >= (3, 14):
        return zstd.ZstdDecompressor()
    return cast(Unpacker, zstandard.ZstdDecompressor().decompressobj())


def reader(file: BinaryIO) -> Any:
    """A file with what is in a frame. Where that is cut off it ends, or `EOFError`."""
    if sys.version_info >= (3, 14):
        return zstd.ZstdFile(file)
    return zstandard.ZstdDecompressor().stream_reader(file, closefd=False)
