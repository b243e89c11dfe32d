"""Readers of the value log for pullers: records in nearly the order of writing, and large ones in parts.

A puller that reads history walks the index by commit timestamp and jumps to and fro between a commit and
its prewrite, both near each other in the log. Blocks of 256 KiB are read once and kept for a while
(`log.block_cache`), so a record rarely costs a system call. Records that do not lie in one block are read
directly. A large transaction is read from front to back: a part is all that is in memory.

Holds   the part that completes a payload is given out only after the checksum of the stored record was found
        right, so that no reader ever has a whole payload that is damaged

A reader belongs to one puller. All calls block; one at a time, from any thread.

Tests  tests/pump/pull/test_parts.py
"""

from __future__ import annotations

from collections.abc import Set

from pump.log.block_cache import BLOCK_BYTES
from pump.log.delivery import LargeDelivery, StoredTail
from pump.log.record import ValuePointer
from pump.log.value_log import ValueLog
from tidb_binlog import binlog
from tidb_binlog.record import VALUE_HEADER_SIZE, RecordError, crc32c, crc32c_extend, decode_value


class BlockReader:
    """Reads payloads. `block` is the one used last, of file `fid` from offset `base` on."""

    def __init__(self, log: ValueLog) -> None:
        self._log = log
        self.fid = self.base = -1
        self.block = b""

    def payload(self, fid: int, offset: int) -> bytes:
        """Whole payload, verified; `Corruption` if there is no valid record."""
        self.turn_to(fid, offset)
        try:
            return decode_value(self.block, offset - self.base, base=self.base)[0]
        except RecordError as error:
            if not error.torn:  # the block may be of before the disk was mended
                self._log.blocks.forget(fid, self.base)
                self.fid = -1
        return self._log.read(ValuePointer(fid, offset))

    def turn_to(self, fid: int, offset: int) -> None:
        """Make the block with this place the one used; shorter than a block where the file still grows."""
        base = offset - offset % BLOCK_BYTES
        if base != self.base or fid != self.fid:
            self.block = self._log.blocks.get(fid, base)
            self.fid, self.base = fid, base
        if offset - base + VALUE_HEADER_SIZE > len(self.block) and len(self.block) < BLOCK_BYTES:
            segment = self._log.segment(fid)
            size = min(BLOCK_BYTES, max(segment.end - base, 0))
            self.block = segment.file.read(base, size)
            self._log.blocks.put(fid, base, self.block)


class PartReader:
    """`offset`: how much has been given out."""

    def __init__(self, log: ValueLog, large: LargeDelivery) -> None:
        self.large = large
        self.offset = 0
        self._log = log
        self._checksum: int | None = None

    @property
    def begin_bytes(self) -> int:
        """The first part must hold more than this: the fields in front of the rows."""
        return len(self.large.head)

    def touches(self, tables: Set[int]) -> bool:
        """Tell whether it has rows of one of these tables; rows are stepped over."""
        tail = self.large.tail
        if not isinstance(tail, StoredTail):
            return binlog.touches(tables, tail)
        file, payload = self._log.segment(tail.fid).file, tail.offset + VALUE_HEADER_SIZE
        return binlog.touches_stored(
            tables, lambda at, size: file.read(payload + at, size), tail.begin, tail.length
        )

    def next(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end. Raises `Corruption`, `OSError`."""
        head, begin = self.large.head, self.offset
        part = head[begin : begin + size]
        if len(part) < size:
            part += self._tail(max(begin - len(head), 0), size - len(part))
        self.offset = begin + len(part)
        return part

    def _tail(self, at: int, size: int) -> bytes:
        tail = self.large.tail
        if not isinstance(tail, StoredTail):
            return bytes(tail[at : at + size])
        segment = self._log.segment(tail.fid)
        file, payload = segment.file, tail.offset + VALUE_HEADER_SIZE
        if self._checksum is None:
            self._checksum = crc32c(file.read(payload, tail.begin))
        at += tail.begin
        data = file.read(payload + at, min(size, tail.length - at))
        self._checksum = crc32c_extend(self._checksum, data)
        if at + len(data) == tail.length and self._checksum != tail.checksum:
            raise segment.corruption(RecordError(tail.offset, "checksum mismatch", False))
        if not data:
            raise segment.corruption(
                RecordError(tail.offset, f"record of {tail.length} bytes ends early", True)
            )
        return data
