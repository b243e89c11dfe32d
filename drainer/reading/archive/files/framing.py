"""Framing: records of a stretch of a file, one after the other, each compared with its checksum.

Out    (offset of the record, payload); `RecordError` where no whole record is
Why    a file is read in chunks, each byte once: that is what a count costs
Tests  tests/drainer/reading/archive/decode/test_reading.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from drainer.formats.binlog_file import OPEN_LENGTH, Read
from tidb_binlog.record import (
    BINLOG_FILE_MAGIC,
    FILE_HEADER,
    FILE_HEADER_SIZE,
    FILE_OVERHEAD,
    VALUE_HEADER,
    VALUE_HEADER_SIZE,
    RecordError,
    decode_file,
    decode_value,
)

CHUNK: Final = 4 << 20
_NO_END: Final = 1 << 62

Decode = Callable[[bytes, int], tuple[bytes, int]]


def file_records(read: Read, start: int = 0, stop: int = 0) -> Iterator[tuple[int, bytes]]:
    """Of a binlog file. `stop` 0: to its end."""
    return _records(read, start, stop, decode_file, _file_size)


def after_damage(read: Read, offset: int) -> int | None:
    """Where the next record of a binlog file begins, if that at `offset` is damaged inside: its length leads
    to a record, or to the end of the file. None where nothing tells."""
    header = read(offset, FILE_HEADER_SIZE)
    if len(header) < FILE_HEADER_SIZE:
        return None
    magic, length = FILE_HEADER.unpack(header)
    if magic != BINLOG_FILE_MAGIC or length >= _NO_END:
        return None
    after: int = offset + FILE_OVERHEAD + length
    following = read(after - 1, 1 + FILE_HEADER_SIZE)
    is_there = len(following) == 1 or following[1:5] == header[:4]
    return after if following and is_there else None


def value_records(read: Read, start: int = 0, stop: int = 0) -> Iterator[tuple[int, bytes]]:
    """Of a value log."""
    return _records(read, start, stop, decode_value, _value_size)


def _file_size(data: bytes, at: int) -> int:
    """Bytes of the record, as far as its header tells."""
    if len(data) - at < FILE_HEADER_SIZE:
        return FILE_HEADER_SIZE
    length: int = FILE_HEADER.unpack_from(data, at)[1]
    return 0 if length == OPEN_LENGTH else FILE_OVERHEAD + length


def _value_size(data: bytes, at: int) -> int:
    if len(data) - at < VALUE_HEADER_SIZE:
        return VALUE_HEADER_SIZE
    length: int = VALUE_HEADER.unpack_from(data, at)[1]
    return VALUE_HEADER_SIZE + length


def _records(
    read: Read,
    start: int,
    stop: int,
    decode: Callable[..., tuple[bytes, int]],
    size_of: Callable[[bytes, int], int],
) -> Iterator[tuple[int, bytes]]:
    base, data, at, stop = start, b"", 0, stop or _NO_END
    while base + at < stop:
        try:
            payload, end = decode(data, at, base=base)
        except RecordError as error:
            if not error.torn:
                raise
            have, size = len(data) - at, size_of(data, at)
            more = read(base + at, max(CHUNK, size)) if size <= _NO_END else b""
            if len(more) <= have:
                if not more and not have:
                    return
                raise
            base, data, at = base + at, more, 0
            continue
        yield base + at, payload
        at = end
