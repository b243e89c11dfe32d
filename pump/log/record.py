"""Record: one record of the value log as the later stages see it, and where it begins.

    value pointer    fid u32 LE | offset i64 LE      12 bytes; fid 1, offset 16: 01000000 1000000000000000

The indexer files a record under its timestamp, the sorter decides from it, both in log order. The payload
itself travels only where it is needed.

Pointers are ordered by file, then by offset: that is the order in which records were written. The index
reads an absent pointer as (0, 0), which is also the place of the first record of all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidb_binlog.binlog import PREWRITE, Head
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts

POINTER: Final = struct.Struct("<Iq")


class ValuePointer(NamedTuple):
    """Start of a record: number of the log file, bytes from its beginning."""

    fid: int
    offset: int


START: Final = ValuePointer(0, 0)


class LogRecord(NamedTuple):
    """Type and timestamps of a payload, and the place of its record."""

    tp: int
    start_ts: Ts
    commit_ts: Ts
    place: ValuePointer

    @property
    def index_ts(self) -> Ts:
        """Timestamp under which the index files it; 0 (a real rollback) is not filed."""
        return self.start_ts if self.tp == PREWRITE else self.commit_ts

    @property
    def is_mark(self) -> bool:
        """A time mark (fake binlog): both timestamps are equal."""
        return self.start_ts == self.commit_ts and self.tp != PREWRITE


def none_above(heads: Iterable[Head], limit_ts: Ts) -> bool:
    """Whether no timestamp is above `limit_ts`."""
    return not [head for head in heads if head[1] > limit_ts or head[2] > limit_ts]


def encode_pointer(pointer: ValuePointer) -> bytes:
    return POINTER.pack(pointer.fid, pointer.offset)


def decode_pointer(data: bytes) -> ValuePointer:
    """`Corruption` if the bytes are no pointer."""
    if len(data) < POINTER.size:
        raise Corruption(f"value pointer of {len(data)} bytes: not enough data, {POINTER.size} are needed")
    fid, offset = POINTER.unpack_from(data)
    if offset < 0:
        raise Corruption(f"value pointer with negative offset {offset}")
    return ValuePointer(fid, offset)
