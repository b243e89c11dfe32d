"""Part reader: one large transaction, read from front to back a part at a time.

Owns    nothing but where it is; a part is all that is in memory
Holds   the part that completes the payload is given out only after the checksum of the stored record was
        found right, so that nobody ever has a whole payload that is damaged

Calls block; one at a time, from any thread.
"""

from __future__ import annotations

from common.record import VALUE_HEADER_SIZE, RecordError, crc32c, crc32c_extend
from pump.log.delivery import LargeDelivery, StoredTail
from pump.log.value_log import ValueLog


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
