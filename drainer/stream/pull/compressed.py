"""Compressed messages of a pump: what may be in one, and what is.

In     what the operator asked for, `Compressed` of a reply
Out    the names that a pump may use, the message
Holds  a message that says it is larger than what was asked for is refused before it is made
Tests  tests/drainer/stream/pull/test_pump_source.py
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidb_binlog import compression
from tidb_binlog.wire import pump_pb2

_PAYLOAD_BYTES_MAX: Final = 1 << 31  # that of gRPC
_TAGS_BYTES: Final = 1 << 20


class Compressed:
    """What one pump is asked for. `compressor`: "zstd", "gzip", or "" for messages as they are;
    `credit_bytes`, `above_bytes`: the most that it may send ahead, and in one payload (0: no limit)."""

    def __init__(self, compressor: str, credit_bytes: int, above_bytes: int) -> None:
        self.takes = tuple(dict.fromkeys((compressor, compression.GZIP))) if compressor else ()
        # The first payload of a message may exceed the credit. Tags and timestamps are no more than payloads.
        self._bytes_max = 2 * max(credit_bytes, above_bytes or _PAYLOAD_BYTES_MAX) + _TAGS_BYTES

    async def message(self, found: pump_pb2.Compressed) -> bytes:
        """The serialized message. Raises `ValueError`."""
        name, size, frame = found.compression, found.size, found.data
        if name not in self.takes or not 0 < size <= self._bytes_max:
            raise ValueError(f"{size} bytes compressed as {name!r} were not asked for")
        if size > compression.INLINE_BYTES_MAX:
            return await asyncio.to_thread(compression.decompress, name, frame, size)
        return compression.decompress(name, frame, size)
