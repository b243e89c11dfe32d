"""Packer: the messages of one pull stream, compressed as its puller asked.

In     serialized `PullBatchesResp`s, one at a time
Out    the same, or one with only `compressed` where that is smaller
Holds  each message is a frame of its own; its caller has room for message and frame
Tests  tests/pump/pull/test_packer.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidb_binlog import compression
from tidb_binlog.rowcodec.varint import put_uvarint


class Packer:
    """`share`: what is left of all messages so far, of 1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._compress = compression.compressor(name)
        self._head = b"\x0a" + put_uvarint(len(name)) + name.encode() + b"\x10"
        self._taken = self._made = 0

    @classmethod
    def of(cls, taken: Iterable[str]) -> Packer | None:
        """For a puller that takes these; None if it takes none of ours."""
        name = compression.choose(taken)
        return cls(name) if name else None

    @property
    def share(self) -> float:
        return round(self._made / self._taken, 3) if self._taken else 1.0

    async def packed(self, message: bytes) -> bytes:
        """The message to send. `PullBatchesResp.compressed`: 32 length { name 10 size 1a length frame }"""
        size = len(message)
        if size < compression.SMALL_BYTES:
            return message
        if size > compression.INLINE_BYTES_MAX:
            frame = await asyncio.to_thread(self._compress, message)
        else:
            frame = self._compress(message)
        head = self._head + put_uvarint(size) + b"\x1a" + put_uvarint(len(frame))
        packed = b"".join((b"\x32", put_uvarint(len(head) + len(frame)), head, frame))
        if len(packed) >= size:
            packed = message
        self._taken += size
        self._made += len(packed)
        return packed
