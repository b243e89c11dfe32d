"""Recordings: what clients send after the preface, octet for octet in their manner."""

from __future__ import annotations

import gzip
import struct
from functools import cache

import hpack as oracle

from tests.common.door.support.model import asking, data, ping, prefixed, rst
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    frame,
)

Field = tuple[bytes, bytes]


class Client:
    """Encodes blocks as one client does."""

    def __init__(self, *, huffman: bool, first_id: int = 1) -> None:
        self.encoder = oracle.Encoder()
        self.huffman = huffman
        self.next_id = first_id
        self.octets = b""

    def block(self, *fields: Field) -> bytes:
        return self.encoder.encode(list(fields), huffman=self.huffman)

    def stream(self) -> int:
        self.next_id += 2
        return self.next_id - 2

    def send(self, *parts: bytes) -> None:
        self.octets += b"".join(parts)


def _grpc(method: str, *more: Field) -> tuple[Field, ...]:
    return (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/test.Door/{method}".encode()),
        (b":authority", b"localhost:8250"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"user-agent", b"grpc/1"),
        *more,
    )


def _headers(stream_id: int, block: bytes, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream_id, block)


def c_core() -> bytes:
    """grpcio: large windows, a WINDOW_UPDATE for stream and connection each call, no Huffman."""
    client = Client(huffman=False)
    client.send(frames.settings({2: 0, 3: 0, 4: 4 << 20, 5: 4 << 20, 6: 16384, 0xFE03: 1}))
    client.send(frames.window_update(0, 4_128_769), frames.SETTINGS_ACK)
    for size in (0, 300, 5):
        stream = client.stream()
        client.send(_headers(stream, client.block(*_grpc("Echo", (b"grpc-timeout", b"10100m")))))
        client.send(frames.window_update(stream, 5), data(stream, prefixed(bytes(size)), end=True))
        client.send(frames.window_update(0, 5))
    client.send(ping(b"\x8a\x01\x93random"[:8]))
    return client.octets


def go() -> bytes:
    """grpc-go with deadlines: Huffman, a new value each call, a PING each call; a call is cancelled."""
    client = Client(huffman=True)
    client.send(frames.settings({}), frames.SETTINGS_ACK)
    for call in range(3):
        stream = client.stream()
        timeout = (b"grpc-timeout", b"%du" % (9_999_731 - 37 * call))
        client.send(_headers(stream, client.block(*_grpc("Echo", timeout))))
        client.send(data(stream, prefixed(b"request %d" % call), end=True))
        client.send(ping(bytes.fromhex("02041010090e0707")))
    stream = client.stream()
    client.send(_headers(stream, client.block(*_grpc("Park"))), data(stream, prefixed(b"long"), end=True))
    client.send(rst(stream), ping(bytes.fromhex("02041010090e0707")))
    return client.octets


def java() -> bytes:
    """grpc-java: ids from 3, an empty DATA frame with END_STREAM, a client's stream."""
    client = Client(huffman=False, first_id=3)
    client.send(frames.settings({2: 0, 3: 0, 4: 1 << 20, 6: 8192}), frames.window_update(0, 983_041))
    client.send(frames.SETTINGS_ACK)
    stream = client.stream()
    client.send(_headers(stream, client.block(*_grpc("Echo"))))
    client.send(data(stream, prefixed(b"from java")), data(stream, end=True))
    stream = client.stream()
    client.send(_headers(stream, client.block(*_grpc("Up"))))
    client.send(*(data(stream, prefixed(b"piece %d" % piece)) for piece in range(3)), data(stream, end=True))
    client.send(ping(bytes.fromhex("00000000000004d2")))
    return client.octets


def padded() -> bytes:
    """CONTINUATION, priority, padding, request trailers, fields of many kinds."""
    client = Client(huffman=True)
    client.send(frames.settings({1: 0}), frames.SETTINGS_ACK)
    stream = client.stream()
    block = client.block(*_grpc("Chat", (b"trace-bin", b"AAEC"), (b"cookie", b"a=b"), (b"cookie", b"c=d")))
    first = bytes([3]) + struct.pack(">LB", 0, 200) + block[:10] + bytes(3)
    client.send(frame(HEADERS, PADDED | HAS_PRIORITY, stream, first))
    client.send(
        frame(CONTINUATION, 0, stream, block[10:11]), frame(CONTINUATION, END_HEADERS, stream, block[11:])
    )
    client.send(frame(DATA, PADDED, stream, bytes([7]) + prefixed(b"padded") + bytes(7)))
    client.send(frame(DATA, PADDED, stream, bytes([0]) + prefixed(b"")))
    client.send(frames.settings({1: 4096, 4: 10}))
    client.send(_headers(stream, client.block((b"checksum", b"1")), END_HEADERS | END_STREAM))
    client.send(frames.window_update(stream, 100), frame(0xBE, 0xFF, 0, b"unknown"), ping())
    return client.octets


def cut() -> bytes:
    """Messages cut at odd places, two in one frame, and one in gzip."""
    client = Client(huffman=False)
    client.send(frames.settings({4: 3, 5: 1 << 20}), frames.SETTINGS_ACK)
    stream = client.stream()
    client.send(_headers(stream, client.block(*_grpc("Chat"))))
    body = prefixed(b"one") + prefixed(b"") + prefixed(b"three " * 9)
    for start, stop in ((0, 1), (1, 4), (4, 9), (9, 12), (12, 20), (20, len(body))):
        client.send(data(stream, body[start:stop], end=stop == len(body)))
    client.send(frames.window_update(stream, 60))
    packed = client.stream()
    fields = ((b"grpc-encoding", b"gzip"), (b"grpc-accept-encoding", b"identity,gzip"))
    client.send(_headers(packed, client.block(*_grpc("Park", *fields))))
    message = prefixed(gzip.compress(b"zip " * 50, mtime=0), flag=1)
    client.send(data(packed, message[:7]), data(packed, message[7:], end=True))
    client.send(frames.settings({4: 65_535}))
    return client.octets


def mixed() -> bytes:
    """Server streams, failures, unknown methods, plain HTTP, a farewell."""
    client = Client(huffman=True)
    client.send(frames.settings({4: 70}), frames.SETTINGS_ACK)
    down = client.stream()
    client.send(_headers(down, client.block(*_grpc("Down"))), data(down, prefixed(asking(3, 40)), end=True))
    for method in ("Fail", "Gone"):
        stream = client.stream()
        client.send(_headers(stream, client.block(*_grpc(method))), data(stream, prefixed(b"x"), end=True))
    plain = client.block((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"h"))
    client.send(_headers(client.stream(), plain, END_HEADERS | END_STREAM))
    late = client.stream()
    client.send(_headers(late, client.block(*_grpc("Echo", (b"grpc-timeout", b"0n")))))
    client.send(frames.window_update(down, 1000), frames.goaway(0, frames.NO_ERROR, "bye"))
    return client.octets


@cache
def recordings() -> dict[str, bytes]:
    return {make.__name__: make() for make in (c_core, go, java, padded, cut, mixed)}
