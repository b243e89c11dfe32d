"""The request bytes of the raw HTTP/2 clients: header blocks as real clients send them, and binlog writes.

Everything that can be made once is: a call costs one formatting.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Final

from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from tests.attacks.frames import POST, SCHEME, indexed, literal, message, text
from tidb_binlog import binlog
from tidb_binlog.wire import pump_pb2

WRITE_PATH: Final = "/binlog.Pump/WriteBinlog"
TABLE_BYTES: Final = 4096
TIMEOUTS: Final = 20_000
USUAL: Final = "usual"
NEW: Final = "new"
USUAL_TIMEOUTS: Final = 12
USUAL_SHARE: Final = 0.85
"""Of grpc-go's calls in a loop so many say a timeout that is in the table still: 9.6 octets a block.
`NEW` is the worst case: no value comes again while it is in the table."""
_TIMEOUT_ENTRY_BYTES: Final = len("grpc-timeout") + len("9999999u") + 32


class PlainBlocks:
    """As C-core sends them: everything a literal once, then eight octets."""

    def __init__(self, path: str, authority: str, scheme: str) -> None:
        front = literal(":path", path) + literal(":authority", authority) + POST + SCHEME[scheme]
        self.first = (
            front
            + literal("content-type", "application/grpc")
            + literal("te", "trailers")
            + literal("grpc-accept-encoding", "identity, deflate, gzip")
            + literal("user-agent", "grpc-raw/1.0")
        )
        self.later = (
            indexed(67) + indexed(66) + POST + SCHEME[scheme] + b"".join(map(indexed, (65, 64, 63, 62)))
        )


class DeadlineBlocks:
    """As grpc-go sends them: a grpc-timeout that is not in the table is put there, so that indices move.

    When the table is about to lose the fields of the first call, they are sent as literals again.
    """

    def __init__(self, path: str, authority: str, scheme: str, values: str = USUAL) -> None:
        fields = (
            (":path", path),
            (":authority", authority),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-raw/1.0"),
            ("te", "trailers"),
        )
        front = POST + SCHEME[scheme]
        size = sum(len(name) + len(value) + 32 for name, value in fields)
        fitting = (TABLE_BYTES - size) // _TIMEOUT_ENTRY_BYTES
        first = front + b"".join(literal(*field) for field in fields) + b"\x40" + text("grpc-timeout")
        # The newest timeout is entry 62; the name of the next one is taken from it.
        known = [
            front + b"".join(indexed(62 + calls + back) for back in (4, 3, 2, 1, 0))
            for calls in range(1, fitting + 1)
        ]
        self._known = [b"", *known]
        self._new = [first, *(block + b"\x7e" for block in known[:-1])]
        coder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
        coded = (coder.encode(b"%du" % (9_980_000 + number)) for number in range(TIMEOUTS))
        every = [bytes((0x80 | len(value),)) + value for value in coded]
        chance = random.Random(1)
        self._values = (
            every
            if values == NEW
            else [
                every[chance.randrange(USUAL_TIMEOUTS if chance.random() < USUAL_SHARE else TIMEOUTS)]
                for _ in range(TIMEOUTS)
            ]
        )

    def __iter__(self) -> Iterator[bytes]:
        inserted: dict[bytes, int] = {}
        count = 0
        while True:
            for value in self._values:
                number = inserted.get(value)
                if number is not None:
                    yield self._known[count] + indexed(62 + count - number)
                    continue
                if count == len(self._new):
                    inserted.clear()
                    count = 0
                yield self._new[count] + value
                count += 1
                inserted[value] = count


class Writes:
    """Prewrites and their commits by timestamp. A timestamp of our days is a varint of nine octets."""

    def __init__(self, cluster_id: int, first_ts: int, payload_bytes: int) -> None:
        self._value = os.urandom(payload_bytes)
        self._cluster_id = cluster_id
        self._next_ts = first_ts
        self._low = [bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << 14)]
        self._high_of = -1
        self._high = b""
        # The smallest and largest timestamps that take nine octets stand in for real ones.
        start, commit = 1 << 56, (1 << 56) + 1
        prewrite = binlog.prewrite(start, b"t%020d" % start, self._value)
        committed = binlog.commit(start, commit, b"t%020d" % start)
        self.prewrite = self._template(prewrite, start, commit)
        self.commit = self._template(committed, start, commit)

    def _template(self, payload: bytes, start: int, commit: int) -> bytes:
        """DATA's payload with holes: start varint, [commit varint,] start in digits."""
        request = pump_pb2.WriteBinlogReq(clusterID=self._cluster_id, payload=payload).SerializeToString()
        whole = message(request).replace(b"%", b"%%")
        whole = whole.replace(b"\x10" + self.varint(start), b"\x10%b", 1)
        whole = whole.replace(b"\x18" + self.varint(commit), b"\x18%b", 1)
        return whole.replace(b"%020d" % start, b"%020d", 1)

    def varint(self, ts: int) -> bytes:
        high = ts >> 14
        if high != self._high_of:
            self._high_of = high
            self._high = bytes([high >> 7 * octet & 0x7F | 0x80 for octet in range(6)] + [high >> 42])
        return self._low[ts & 0x3FFF] + self._high

    def timestamp(self) -> int:
        ts = self._next_ts
        self._next_ts = ts + 1
        return ts

    def length(self, template: bytes) -> int:
        """Of DATA's payload made from it."""
        holes = (b"123456789",) * template.replace(b"%%", b"").count(b"%b")
        return len(template % (*holes, 0))
