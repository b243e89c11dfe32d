"""A gRPC client: mutated replies into its connection. Each call ends once, what it keeps is bounded."""

from __future__ import annotations

import gzip
import random
from typing import Final

from tests.common.rpc.support.replies import END, GOOD_HEAD, Heard, framed, reply
from tests.fuzz.octets import below
from tidb_binlog.http2 import frames
from tidb_binlog.rpc.connection import STREAM_WINDOW_BYTES, Call, Connection

CALLS: Final = 3
_SETTINGS: Final = frames.settings({})
_MESSAGE_KEEPS: Final = 64 << 10  # a message may be unpacked to a thousand times of what was sent


def _good(stream_id: int, *bodies: bytes) -> bytes:
    head = GOOD_HEAD[:5] + stream_id.to_bytes(4, "big") + GOOD_HEAD[9:]
    data = b"".join(frames.frame(frames.DATA, 0, stream_id, body) for body in bodies)
    return head + data + reply(stream_id, (b"grpc-status", b"0"), flags=END)


def replies() -> list[bytes]:
    return [
        _SETTINGS + _good(1, framed(b"hello")) + _good(3, framed(b"a"), framed(b"b" * 40)) + _good(5),
        _SETTINGS + _good(1, framed(gzip.compress(b"x" * 100), 1)) + frames.rst_stream(3, 7),
        frames.settings({1: 0, 3: 2, 4: 9, 5: 1 << 15})
        + frames.window_update(0, 99)
        + _good(3, framed(b"w")),
        _SETTINGS
        + frames.goaway(1, 0)
        + _good(1, framed(b"last"))
        + frames.frame(frames.PING, 0, 0, bytes(8)),
        _SETTINGS + reply(1, (b":status", b"503")) + reply(3, (b":status", b"103")) + _good(3, framed(b"x")),
        _SETTINGS
        + frames.frame(frames.HEADERS, 0, 1, GOOD_HEAD[9:14])
        + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, GOOD_HEAD[14:])
        + frames.frame(frames.DATA, 0, 1, framed(b"cut")[:4])
        + frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"cut")[4:]),
    ]


def into_client(octets: bytes, rng: random.Random) -> str:
    connection = Connection("t:1", secure=False)
    calls: list[tuple[Call, Heard]] = []
    for number in range(CALLS):
        heard = Heard()
        call = connection.begin(heard, "/t.S/Call", 5.0)
        connection.send(call, bytes(100 * number))
        if number:
            connection.end_requests(call)
        calls.append((call, heard))
    at, answered = 0, 0
    while at < len(octets):
        stop = len(octets) if rng.random() < 0.3 else min(len(octets), at + 1 + below(rng, 40))
        connection.receive(octets[at:stop])
        connection.produce(1 << 10)
        answered += sum(map(len, connection.out))
        connection.out.clear()
        at = stop
    assert answered <= 3 * len(octets) + 4096
    for call, heard in calls:
        assert len(heard.ends) <= 1
        assert (call.id in connection.calls) == (not heard.ends)
        assert sum(heard.sizes) == call.unread <= min(len(octets), 2 * STREAM_WINDOW_BYTES)
        assert sum(map(len, heard.messages)) <= len(octets) + _MESSAGE_KEEPS * len(heard.messages)
    assert bool(connection.fault) <= (not connection.calls)
    connection.lose("over")
    assert all(len(heard.ends) == 1 for _, heard in calls)
    ends = " ".join(str(heard.ends[0][0]) for _, heard in calls)
    return f"{connection.fault.partition(':')[0]}, {ends}" if connection.fault != "over" else f"open, {ends}"


ENDS: Final = ("open, 0 0 0", "open, 0 14", "the peer breaks HTTP/2, 14", "open, 13", "open, 2")
