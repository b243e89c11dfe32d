"""Pull replies: deliveries as messages of the two pull services, their bytes put together once.

    PullBatchesResp    0a length payload ...  10 watermark  20 waits_for_start_ts  2a length commit_ts ...
                       10 watermark  1a length { 08 commit_ts 10 size 18 offset 22 length data }
    PullBinlogResp     0a length { 0a 00  12 length payload  22 length { 08 start_ts 10 commit_ts } }

Why    a serializer wants the payload in one piece and copies it again; here each half is copied once, into
       the message
"""

from __future__ import annotations

import asyncio
import operator
import struct
from collections.abc import Iterable, Sequence

from pump.log.delivery import Delivery
from pump.pull.session import PartMessage
from tidb_binlog import compression
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.tso import Ts


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


_commit_ts = operator.itemgetter(0)


class _PayloadTags(dict[int, bytes]):
    """Tag and length of a payload of a batch, by its size."""

    def __missing__(self, size: int) -> bytes:
        tag = b"\x0a" + put_uvarint(size)
        if size < 1 << 16:
            self[size] = tag
        return tag


_TAGS = _PayloadTags()


def batch(deliveries: Sequence[Delivery], watermark: int, waits_for_start_ts: Ts = 0) -> bytes:
    """A serialized `PullBatchesResp`."""
    parts: list[bytes | memoryview] = []
    append, tags = parts.append, _TAGS
    for _, _, head, tail in deliveries:
        append(tags[len(head) + len(tail)])
        append(head)
        append(tail)
    if watermark:
        append(b"\x10" + put_uvarint(watermark))
    if waits_for_start_ts:
        append(b"\x20" + put_uvarint(waits_for_start_ts))
    if deliveries:
        count = len(deliveries)
        append(b"\x2a" + put_uvarint(8 * count) + struct.pack(f"<{count}q", *map(_commit_ts, deliveries)))
    return b"".join(parts)


def part(message: PartMessage) -> bytes:
    """A serialized `PullBatchesResp` with a part of a large transaction."""
    large, data = message.large, message.data
    front = b"\x08" + put_uvarint(large.commit_ts) + b"\x10" + put_uvarint(large.size)
    if message.offset:
        front += b"\x18" + put_uvarint(message.offset)
    front += b"\x22" + put_uvarint(len(data))
    watermark = b"\x10" + put_uvarint(message.watermark) if message.watermark else b""
    return b"".join((watermark, b"\x1a", put_uvarint(len(front) + len(data)), front, data))


def entity(delivery: Delivery) -> bytes:
    """A serialized `PullBinlogResp`."""
    commit_ts, start_ts, head, tail = delivery
    meta = (b"\x08" + put_uvarint(start_ts) if start_ts else b"") + (
        b"\x10" + put_uvarint(commit_ts) if commit_ts else b""
    )
    front = b"\x0a\x00\x12" + put_uvarint(len(head) + len(tail))
    after = b"\x22" + put_uvarint(len(meta)) + meta
    size = len(front) + len(head) + len(tail) + len(after)
    return b"".join((b"\x0a" + put_uvarint(size), front, head, tail, after))
