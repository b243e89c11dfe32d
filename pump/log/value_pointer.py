"""Value pointer: where a record begins, as the index stores it.

    fid u32 LE | offset i64 LE          12 bytes; fid 1, offset 16: 01000000 1000000000000000

Pointers are ordered by file, then by offset: that is the order in which records were written. The index
reads an absent pointer as (0, 0), which is also the place of the first record of all.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from common.errors import Corruption

FORMAT: Final = struct.Struct("<Iq")
SIZE: Final = FORMAT.size


class ValuePointer(NamedTuple):
    """Start of a record: number of the log file, bytes from its beginning."""

    fid: int
    offset: int


START: Final = ValuePointer(0, 0)


def encode(pointer: ValuePointer) -> bytes:
    return FORMAT.pack(pointer.fid, pointer.offset)


def decode(data: bytes) -> ValuePointer:
    """`Corruption` if the bytes are no pointer."""
    if len(data) < SIZE:
        raise Corruption(f"value pointer of {len(data)} bytes: not enough data, {SIZE} are needed")
    fid, offset = FORMAT.unpack_from(data)
    if offset < 0:
        raise Corruption(f"value pointer with negative offset {offset}")
    return ValuePointer(fid, offset)
