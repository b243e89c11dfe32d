"""Block reader: random reads of the value log in an order that is nearly the order of writing.

A puller that reads history walks the index by commit timestamp and jumps to and fro between a commit and
its prewrite, both near each other in the log. Blocks of 256 KiB are read once and kept, a few at a time, so
a record rarely costs a system call. Records that do not lie in one block are read directly.

One reader belongs to one puller and is used by one thread at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from common.record import VALUE_HEADER_SIZE, RecordError, decode_value
from pump.segment import Segment
from pump.value_log import ValueLog
from pump.value_pointer import ValuePointer

BLOCK_SIZE: Final = 256 << 10
_BLOCKS_MAX: Final = 16


class BlockReader:
    """Reads payloads; keeps at most `_BLOCKS_MAX` blocks."""

    def __init__(self, log: ValueLog) -> None:
        self._log = log
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def payload(self, place: ValuePointer) -> bytes:
        """Whole payload, verified; `Corruption` if there is no valid record."""
        found = self._log.segment(place.fid)
        block, at = self._block(found, place.offset)
        try:
            return decode_value(block, at, base=place.offset - at)[0]
        except RecordError as error:
            if not error.torn:
                raise found.corruption(error) from None
        return found.read(place.offset)

    def first_byte(self, place: ValuePointer, which: int) -> int:
        """One byte near the beginning of the payload, not verified: enough to tell a prewrite."""
        found = self._log.segment(place.fid)
        block, at = self._block(found, place.offset)
        at += VALUE_HEADER_SIZE + which
        if at < len(block):
            return block[at]
        start = found.read_start(place.offset, which + 1)
        return start[which] if len(start) > which else 0

    def _block(self, found: Segment, offset: int) -> tuple[bytes, int]:
        """The block with this offset and the position in it; a short block where the file still grows."""
        number, at = divmod(offset, BLOCK_SIZE)
        key = (found.fid, number)
        block = self._blocks.get(key)
        if block is None or (len(block) < BLOCK_SIZE and at + VALUE_HEADER_SIZE > len(block)):
            size = min(BLOCK_SIZE, max(found.end - number * BLOCK_SIZE, 0))
            block = found.file.read(number * BLOCK_SIZE, size)
            self._blocks[key] = block
            if len(self._blocks) > _BLOCKS_MAX:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        return block, at
