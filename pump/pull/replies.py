"""Pull replies: deliveries as messages of the two pull services, their bytes put together once.

    PullBatchesResp    0a length payload ...  10 watermark  20 waits_for_start_ts  2a length commit_ts ...
                       10 watermark  1a length { 08 commit_ts 10 size 18 offset 22 length data }
    PullBinlogResp     0a length { 0a 00  12 length payload  22 length { 08 start_ts 10 commit_ts } }

Why    a serializer wants the payload in one piece and copies it again; here each half is copied once, into
       the message
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence

from pump.log.delivery import Delivery
from pump.pull.session import PartMessage
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.tso import Ts

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
