"""Open file: a file of a place, read at any offset; unpacked where its name says that it is compressed.

Owns    the file that it opened, until it is closed
Holds   a compressed file that is cut off is damage, not an end
Tests   tests/drainer/places/test_place.py
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from typing import TYPE_CHECKING, Any, Final

from tidb_binlog.errors import Corruption
from tidb_binlog.filesystem import read_at

if TYPE_CHECKING:
    from pyarrow import fs

COMPRESSED: Final = (".zst", ".gz")
_STREAM_CHUNK: Final = 1 << 20
_PACKED_CHUNK: Final = 128 << 10
"""Of a compressed file: what it becomes, often ten times as much, is in memory."""


class File(contextlib.AbstractContextManager["File"]):
    """An open file. `size` is None where only reading tells (compressed ones)."""

    size: int | None

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes only at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Close it; the end of a `with` does it, too."""
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalFile(File):
    """Of this machine."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        assert self.size is not None
        size = min(size, self.size - offset)  # it may grow meanwhile; and a damaged length is no size
        return read_at(self._descriptor, offset, size) if size > 0 else b""

    def close(self) -> None:
        os.close(self._descriptor)


class RemoteFile(File):
    """Of a file system of pyarrow."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._file = filesystem.open_input_file(path)
        self.size = int(self._file.size())

    def read(self, offset: int, size: int) -> bytes:
        assert self.size is not None
        size = min(size, self.size - offset)
        return bytes(self._file.read_at(size, offset)) if size > 0 else b""

    def close(self) -> None:
        self._file.close()


class _Raw(io.RawIOBase):
    """A file as a stream from its beginning, for what unpacks it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Frames:
    """What zstd frames hold: of many, and none that is cut off."""

    def __init__(self, packed: io.BufferedReader[_Raw]) -> None:
        self._packed = packed
        self._frame: Any = None
        self._rest = self._ready = b""

    def read(self, size: int) -> bytes:
        """Raises `EOFError` for a frame without an end, `ValueError` for what is none."""
        from tidb_binlog.compression import zstd

        while not self._ready:
            data, self._rest = self._rest or self._packed.read(_PACKED_CHUNK), b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                break
            if self._frame is None:
                self._frame = zstd.unpacker()
            try:
                self._ready = self._frame.decompress(data)
            except zstd.Error as error:
                raise ValueError(str(error)) from None
            if self._frame.eof:
                self._frame, self._rest = None, self._frame.unused_data
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


class Unpacked(File):
    """A compressed file, read from its beginning to its end; going back begins anew."""

    def __init__(self, name: str, packed: File) -> None:
        self._name = name
        self._packed = packed
        self.size = None
        self._begin()

    def _begin(self) -> None:
        raw = io.BufferedReader(_Raw(self._packed), _STREAM_CHUNK)
        if self._name.endswith(".gz"):
            self._stream: Any = gzip.GzipFile(fileobj=raw)
        else:
            self._stream = _Frames(raw)
        self._base = 0
        self._kept = b""

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._base:
            self._begin()
        try:
            if not self._packed.size:
                raise EOFError("it is empty, which no compressed file is")
            while self._base + len(self._kept) < offset:
                self._base += len(self._kept)
                self._kept = self._stream.read(min(_STREAM_CHUNK, offset - self._base))
                if not self._kept:
                    return b""
            pieces = [self._kept[offset - self._base :]]
            have = len(pieces[0])
            while have < size:
                data = self._stream.read(min(_STREAM_CHUNK, size - have))
                if not data:
                    break
                pieces.append(data)
                have += len(data)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise self._broken(error) from None
        self._base, self._kept = offset, b"".join(pieces)
        return self._kept[:size]

    def _broken(self, error: Exception) -> Corruption:
        return Corruption(f"{self._name} cannot be unpacked: {error}", hint="restore the file from a backup")

    def close(self) -> None:
        self._packed.close()
