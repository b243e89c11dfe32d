"""Block reader: random reads of the value log in an order that is nearly the order of writing.

A puller that reads history walks the index by commit timestamp and jumps to and fro between a commit and
its prewrite, both near each other in the log. Blocks of 256 KiB are read once and kept for a while
(`block_cache`), so a record rarely costs a system call. Records that do not lie in one block are read
directly.

One reader belongs to one puller and is used by one thread at a time.
"""

from __future__ import annotations

from typing import Final

from common.record import VALUE_HEADER_SIZE, RecordError, decode_value
from pump.log.block_cache import BLOCK_BYTES
from pump.log.record import ValuePointer
from pump.log.value_log import ValueLog

BLOCK_SIZE: Final = BLOCK_BYTES


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
            if not error.torn:
                raise self._log.segment(fid).corruption(error) from None
        return self._log.read(ValuePointer(fid, offset))

    def turn_to(self, fid: int, offset: int) -> None:
        """Make the block with this place the one used; shorter than a block where the file still grows."""
        base = offset - offset % BLOCK_SIZE
        if base != self.base or fid != self.fid:
            self.block = self._log.blocks.get(fid, base)
            self.fid, self.base = fid, base
        if offset - base + VALUE_HEADER_SIZE > len(self.block) and len(self.block) < BLOCK_SIZE:
            found = self._log.segment(fid)
            size = min(BLOCK_SIZE, max(found.end - base, 0))
            self.block = found.file.read(base, size)
            self._log.blocks.put(fid, base, self.block)
