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
from pump.value_log import ValueLog
from pump.value_pointer import ValuePointer

BLOCK_SIZE: Final = 256 << 10
_BLOCKS_MAX: Final = 16


class BlockReader:
    """Reads payloads; keeps at most `_BLOCKS_MAX` blocks."""

    def __init__(self, log: ValueLog) -> None:
        self._log = log
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._number = self._fid = -1  # the block used last
        self._block = b""

    def payload(self, place: ValuePointer) -> bytes:
        """Whole payload, verified; `Corruption` if there is no valid record."""
        at = place[1] % BLOCK_SIZE
        block = self._block_of(place)
        try:
            return decode_value(block, at, base=place[1] - at)[0]
        except RecordError as error:
            if not error.torn:
                raise self._log.segment(place[0]).corruption(error) from None
        return self._log.read(place)

    def start(self, place: ValuePointer) -> bytes:
        """The first two bytes of the payload, not verified: enough to tell a prewrite."""
        at = place[1] % BLOCK_SIZE + VALUE_HEADER_SIZE
        start = self._block_of(place)[at : at + 2]
        if len(start) == 2:
            return start
        return self._log.segment(place[0]).read_start(place[1], 2)

    def _block_of(self, place: ValuePointer) -> bytes:
        """The block with this place; shorter than a block where the file still grows."""
        fid, number = place[0], place[1] // BLOCK_SIZE
        if number != self._number or fid != self._fid:
            self._block = self._blocks.get((fid, number), b"")
            self._fid, self._number = fid, number
            if self._block:
                self._blocks.move_to_end((fid, number))
        short = place[1] % BLOCK_SIZE + VALUE_HEADER_SIZE - len(self._block)
        if short > 0 and len(self._block) < BLOCK_SIZE:
            self._load(fid, number)
        return self._block

    def _load(self, fid: int, number: int) -> None:
        found = self._log.segment(fid)
        size = min(BLOCK_SIZE, max(found.end - number * BLOCK_SIZE, 0))
        self._block = self._blocks[(fid, number)] = found.file.read(number * BLOCK_SIZE, size)
        if len(self._blocks) > _BLOCKS_MAX:
            self._blocks.popitem(last=False)
