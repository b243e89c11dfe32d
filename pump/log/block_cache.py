"""Block cache: what was read of the value log lately, one for all pullers.

Holds   at most `BLOCKS_MAX` blocks, however many pullers read
Why     pullers that read the same history read it from memory, and a puller more costs no blocks of its own
Tests   tests/pump/storage/test_storage.py
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

BLOCK_BYTES: Final = 256 << 10
BLOCKS_MAX: Final = 64


class BlockCache:
    """Blocks by file and place. Used by several threads."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, fid: int, base: int) -> bytes:
        """What is known of a block; empty if nothing is."""
        with self._lock:
            block = self._blocks.get((fid, base), b"")
            if block:
                self._blocks.move_to_end((fid, base))
            return block

    def put(self, fid: int, base: int, block: bytes) -> None:
        with self._lock:
            self._blocks[(fid, base)] = block
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)

    def forget(self, fid: int, base: int) -> None:
        """Who wants this block next reads it again."""
        with self._lock:
            self._blocks.pop((fid, base), None)
