"""gRPC over HTTP/2 (P): what each request is answered with; calls from their head to their end."""

from __future__ import annotations

import base64
import gzip
import struct

import pytest

from tests.cases import case
from tests.common.door.support.model import (
    GRPC,
    NOW_S,
    Door,
    Reply,
    asking,
    block,
    call_block,
    data,
    get,
    headers,
    opened,
    prefixed,
    pseudo,
    rst,
    unary,
)
from tidb_binlog.door.calls.session import GROWING_BYTES
from tidb_binlog.door.http2 import grpc_headers
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, RST_STREAM
from tidb_binlog.rpc import service as codes
from tidb_binlog.rpc.service import RpcStatus

Field = tuple[bytes, bytes]


def answered(*parts: bytes, limits: Limits | None = None) -> Reply:
    """The whole reply of stream 1."""
    door = Door(limits)
    door.receive(*parts, hello=True)
    assert door.fault is None
    reply = door.reply(1)
    assert reply.ended == 1
    door.check_empty()
    return reply


def request(path: bytes, *fields: Field, method: bytes = b"POST", body: bytes = prefixed(b"hi")) -> bytes:
    return headers(1, block((*pseudo(path, method), *fields))) + data(1, body, end=True)


# -- heads -------------------------------------------------------------------------------------------


def test_method_other_than_post_is_405() -> None:
    reply = answered(request(b"/test.Door/Echo", *GRPC, method=b"GET"))
    assert (reply.http, reply.heads[0][b"allow"]) == (405, b"POST")


def test_an_unknown_path_is_unimplemented_in_one_block() -> None:
    door = Door()
    found = door.receive(headers(1, block((*pseudo(b"/test.Door/Gone"), *GRPC)), 5), hello=True)
    assert [(item.kind, item.flags) for item in found[1:]] == [(HEADERS, END_HEADERS | END_STREAM)]
    reply = door.reply(1)
    assert (reply.http, reply.status, reply.text) == (200, 12, "unknown method /test.Door/Gone")
    assert reply.heads[0][b"content-type"] == b"application/grpc"


CONTENT_TYPES = {
    b"application/grpc": 0,
    b"application/grpc+proto": 0,
    b"application/grpc+json": 0,
    b"application/grpc;charset=utf-8": 0,
    b"application/grpc-web": 415,
    b"application/grpcx": 415,
    b"application/json": 415,
    b"Application/grpc": 415,
    b"": 415,
}


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_content_type(content_type: bytes) -> None:
    reply = answered(request(b"/test.Door/Echo", (b"content-type", content_type)))
    if CONTENT_TYPES[content_type]:
        assert (reply.http, reply.status) == (415, None)
    else:
        assert (reply.http, reply.status, reply.messages) == (200, 0, [b"hi"])


def test_no_content_type_at_all_on_a_method_is_415() -> None:
    assert answered(request(b"/test.Door/Echo")).http == 415
    assert answered(request(b"/test.Door/Echo", method=b"GET")).http == 405


def test_te_is_not_demanded() -> None:
    assert answered(request(b"/test.Door/Echo", GRPC[0])).status == 0


def test_no_authority_or_host_instead() -> None:
    fields = [field for field in (*pseudo(b"/test.Door/Echo"), *GRPC) if field[0] != b":authority"]
    for more in ([], [(b"host", b"door")]):
        assert answered(headers(1, block([*fields, *more])), data(1, prefixed(b""), end=True)).status == 0


def test_other_metadata_does_not_matter() -> None:
    odd = (
        (b"x-Odd".lower(), b"\xff\x80"),
        (b"a.b_c-d", b"~ !"),
        (b"some-bin", b"not base64!"),
        (b"grpc-new", b"1"),
    )
    assert answered(unary(1, "Echo", b"hi", *odd)).status == 0


TIMEOUTS = {
    b"1H": 3600.0,
    b"2M": 120.0,
    b"3S": 3.0,
    b"4m": 0.004,
    b"5u": 0.000005,
    b"6n": 6e-9,
    b"99999999H": 99999999 * 3600.0,
    b"00000001S": 1.0,
    b"0S": 0.0,
    b"": None,
    b"S": None,
    b"1": None,
    b"1s": None,
    b"1h": None,
    b"123456789S": None,
    b"-1S": None,
    b"+1S": None,
    b"1.5S": None,
    b" 1S": None,
    b"1S ": None,
    b"1 S": None,
    b"1SS": None,
    b"1S\n": None,
    b"\xd9\xa1S": None,
}


@pytest.mark.parametrize("value", TIMEOUTS)
def test_grpc_timeout(value: bytes) -> None:
    expected = TIMEOUTS[value]
    assert grpc_headers.timeout_s(value) == (None if expected is None else pytest.approx(expected))
    if value != value.strip():
        return  # R8.2.1 has refused it before
    door = Door()
    door.receive(unary(1, "Park", b"", (b"grpc-timeout", value)), hello=True)
    if expected is None:
        assert (door.reply(1).status, door.reply(1).text) == (13, "malformed grpc-timeout")
    elif expected == 0.0:
        assert (door.reply(1).status, door.reply(1).text) == (4, "the call's deadline has passed")
        assert door.runner.seen == []
    else:
        assert door.connection.streams[1].call.deadline_s == pytest.approx(NOW_S + expected)


# -- messages ----------------------------------------------------------------------------------------

GZIP = (b"grpc-encoding", b"gzip")
PACKED = gzip.compress(b"hello" * 9, mtime=0)

UNPACKABLE = "a compressed message without grpc-encoding"
LARGER = "grpc: received message larger than max (1001 vs. 1000)"  # Go's words: old clients match on them
INSIDE = "the request ends inside a message"
ZLIB = "gzip message cannot be unpacked: Error -3 while decompressing data: incorrect header check"

BODIES: dict[str, tuple[bytes, tuple[Field, ...], str, int, str]] = {
    # body, fields, method, status, text
    "flag above 1": (prefixed(b"x", 2), (), "Echo", 13, "message flag 2 is not known"),
    "flag 1 without encoding": (prefixed(PACKED, 1), (), "Echo", 13, UNPACKABLE),
    "flag 1 with identity": (prefixed(PACKED, 1), ((GZIP[0], b"identity"),), "Echo", 13, UNPACKABLE),
    "flag 0 under gzip": (prefixed(b"hi"), (GZIP,), "Echo", 0, ""),
    "encoding unknown": (
        prefixed(b"x"),
        ((GZIP[0], b"snappy"),),
        "Echo",
        12,
        "grpc-encoding 'snappy' is not supported",
    ),
    "broken gzip": (prefixed(b"not gzip", 1), (GZIP,), "Echo", 13, ZLIB),
    "gzip cut short": (prefixed(PACKED[:-3], 1), (GZIP,), "Echo", 13, "gzip message ends early"),
    "too large, by prefix": (prefixed(bytes(1001)), (), "Echo", 8, LARGER),
    "too large when unpacked": (prefixed(gzip.compress(bytes(1001), mtime=0), 1), (GZIP,), "Echo", 8, LARGER),
    "of exactly the limit": (prefixed(bytes(1000)), (), "Echo", 0, ""),
    "end inside a prefix": (b"\x00\x00\x00", (), "Echo", 13, INSIDE),
    "end inside a message": (prefixed(b"abc")[:-1], (), "Echo", 13, INSIDE),
    "end inside the second message": (prefixed(b"abc") + b"\x00", (), "Echo", 13, INSIDE),
    "unary without a message": (b"", (), "Echo", 12, "a unary call without a message"),
    "unary with two": (prefixed(b"a") * 2, (), "Echo", 12, "a unary call with more than one message"),
    "client's stream without any": (b"", (), "Up", 0, ""),
    "client's stream, end inside a message": (prefixed(b"a") + b"\x00", (), "Up", 13, INSIDE),
    "server's stream without a message": (b"", (), "Down", 12, "a call without a message"),
    "both streams, flag 1": (prefixed(b"x", 1), (), "Chat", 13, UNPACKABLE),
    "stream, too large": (prefixed(b"ok") + b"\x00\x00\x00\x03\xe9", (), "Chat", 8, LARGER),
}


def test_body() -> None:
    for size in [16_384, 1000, 3, 1]:
        for what in BODIES:
            with case(size, what):
                body, fields, method, status, text = BODIES[what]
                cut = 7 if len(body) > 200 and size == 1 else size
                pieces = [body[at : at + cut] for at in range(0, len(body), cut)] or [b""]
                frames_ = [
                    data(1, piece, end=number == len(pieces)) for number, piece in enumerate(pieces, 1)
                ]
                reply = answered(opened(1, method, *fields), *frames_, limits=Limits(message_bytes_max=1000))
                assert (reply.status, reply.text) == (status, text)
                if "encoding unknown" in what:
                    assert reply.heads[-1][b"grpc-accept-encoding"] == b"identity,gzip"


def test_a_message_that_is_too_large_is_refused_before_it_comes() -> None:
    door = Door(Limits(message_bytes_max=1000))
    door.receive(opened(1, "Echo"), data(1, struct.pack(">BL", 0, 1001)), hello=True)
    assert (door.reply(1).status, door.reply(1).ended, door.reply(1).reset) == (8, 1, NO_ERROR)
    assert door.receive(data(1, bytes(16384)), data(1, b"", end=True)) == [], "the rest is discarded"
    door.check_empty()


def test_request_trailers_end_a_request() -> None:
    trailers = headers(1, block([(b"x-checksum", b"1")]), 5)
    assert answered(opened(1, "Echo"), data(1, prefixed(b"hi")), trailers).messages == [b"hi"]
    assert answered(opened(1, "Echo"), data(1, prefixed(b"hi")[:-1]), trailers).status == 13
    assert answered(opened(1, "Up"), data(1, prefixed(b"hi") * 3), trailers).messages == [b"3"]


# -- replies -----------------------------------------------------------------------------------------


def test_a_good_reply_is_head_data_trailers() -> None:
    door = Door()
    found = door.receive(
        unary(1, "Echo", b"hi"), unary(3, "Echo", b""), unary(5, "Echo", b"x" * 5000), hello=True
    )
    for stream in (1, 3, 5):
        kinds = [(item.kind, item.flags) for item in found if item.stream == stream]
        assert kinds == [(HEADERS, END_HEADERS), (DATA, 0), (HEADERS, END_HEADERS | END_STREAM)]
        assert door.reply(stream).heads == [
            {b":status": b"200", b"content-type": b"application/grpc"},
            {b"grpc-status": b"0"},
        ]
    assert [door.reply(stream).messages for stream in (1, 3, 5)] == [[b"hi"], [b""], [b"x" * 5000]]


def test_later_replies_are_as_short_as_they_can_be() -> None:
    door = Door()
    door.receive(unary(1, "Echo", b""), hello=True)
    blocks = [item.payload for item in door.receive(unary(3, "Echo", b"")) if item.kind == HEADERS]
    assert blocks == [b"\x88\xbf", b"\xbe"]


def test_a_failure_is_one_block_with_its_details() -> None:
    reply = answered(unary(1, "Fail", b""))
    assert len(reply.heads) == 1
    assert reply.heads[0] == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"9",
        b"grpc-message": b"not now: 100%25 busy %C3%A9",
        b"grpc-status-details-bin": b"AQI",  # without padding
    }


TEXTS = {
    "plain ~ text!": b"plain ~ text!",
    "100%": b"100%25",
    "a\nb\x00\x7f": b"a%0Ab%00%7F",
    "\u00e9\u20ac": b"%C3%A9%E2%82%AC",
    "\ud800": b"?",
    "x" * 4096: b"x" * 4096,
    "x" * 4097: b"x" * 4093 + b"...",
    "x" * 4091 + "\u00e9\u00e9": b"x" * 4091 + b"...",
    "x" * 4092 + "\u00e9\u00e9": b"x" * 4092 + b"...",
    "x" * 4090 + "\u00e9\u00e9": b"x" * 4090 + b"%C3" + b"...",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:10] + text[-4:]))
def test_grpc_message(text: str) -> None:
    assert grpc_headers.percent_encoded(text) == TEXTS[text]


@pytest.mark.parametrize("size", range(1, 7))
def test_details_are_base64_without_padding(size: int) -> None:
    details = bytes(range(size))
    encoded = hpack.Decoder(lambda name, value: None).decode(grpc_headers.status_fields(5, "", details))
    assert [name for name, _, _ in encoded] == [b"grpc-status", b"grpc-status-details-bin"]
    value = encoded[1][1]
    assert b"=" not in value
    assert base64.b64decode(value + b"=" * (-len(value) % 4)) == details


def test_a_reply_before_the_end_of_the_request_is_followed_by_a_reset() -> None:
    door = Door()
    found = door.receive(opened(1, "Gone"), hello=True)[1:]
    assert [(item.kind, item.flags) for item in found] == [(HEADERS, 5), (RST_STREAM, 0)]
    assert found[1].word == NO_ERROR
    door.receive(opened(3, "Hold"))
    door.runner.held[0].complete()
    found = door.settle()
    assert [(item.kind, item.flags) for item in found] == [(HEADERS, 4), (HEADERS, 5), (RST_STREAM, 0)]
    door.check_empty()


ACCEPTS = {None: True, b"gzip": True, b"identity,deflate,gzip": True, b"identity": False, b"": False}


@pytest.mark.parametrize("accepts", ACCEPTS)
def test_replies_are_packed_for_who_packs_and_accepts_it(accepts: bytes | None) -> None:
    body = b"hello " * 400
    fields = (GZIP,) if accepts is None else (GZIP, (b"grpc-accept-encoding", accepts))
    reply = answered(unary(1, "Echo", body, *fields))
    flag, size = struct.unpack_from(">BL", reply.body)
    assert len(reply.body) == 5 + size
    if ACCEPTS[accepts]:
        assert (flag, reply.heads[0][b"grpc-encoding"]) == (1, b"gzip")
        assert gzip.decompress(reply.body[5:]) == body
    else:
        assert (flag, reply.heads[0].get(b"grpc-encoding"), reply.body[5:]) == (0, None, body)
    # Small ones go as they are.
    assert answered(unary(1, "Echo", b"hi", *fields)).messages == [b"hi"]


def test_a_packed_request_is_unpacked_for_its_handler() -> None:
    door = Door()
    door.receive(opened(1, "Park", GZIP), data(1, prefixed(PACKED, 1), end=True), hello=True)
    assert door.runner.seen == [(1, "Park", b"hello" * 9)]
    door.runner.parked[0].succeed(b"")
    door.settle()
    door.check_empty()


# -- streams of messages -----------------------------------------------------------------------------


def test_a_servers_stream() -> None:
    reply = answered(unary(1, "Down", asking(5, 3)))
    assert (reply.messages, reply.status) == ([bytes(3)] * 5, 0)


def test_a_servers_stream_without_messages() -> None:
    reply = answered(unary(1, "Down", asking(0, 3)))
    assert (reply.messages, reply.status, len(reply.heads)) == ([], 0, 2)


def test_a_clients_stream() -> None:
    parts = [data(1, prefixed(b"%d" % number)) for number in range(5)]
    assert answered(opened(1, "Up"), *parts, data(1, end=True)).messages == [b"5"]


def test_a_stream_both_ways_answers_as_it_goes() -> None:
    door = Door()
    door.receive(opened(1, "Chat"), hello=True)
    for number in range(3):
        door.receive(data(1, prefixed(b"%d" % number)))
        assert door.reply(1).messages[-1] == b"%d" % number
    assert door.reply(1).ended == 0
    door.receive(data(1, end=True))
    assert (door.reply(1).status, door.reply(1).ended) == (0, 1)
    door.check_empty()


def test_a_failure_behind_messages_comes_in_the_trailers() -> None:
    door = Door()
    door.receive(opened(1, "Hold"), hello=True)
    call = door.runner.held[0]
    call.send(b"one")
    call.fail(codes.DATA_LOSS, "lost")
    door.settle()
    reply = door.reply(1)
    assert (reply.messages, reply.status, reply.text, len(reply.heads)) == ([b"one"], 15, "lost", 2)
    assert reply.reset == NO_ERROR
    door.check_empty()


def test_a_stream_whose_service_does_not_read_pushes_back() -> None:
    limits = Limits(stream_window_bytes=1000)
    door = Door(limits)
    door.receive(opened(1, "Hold"), hello=True)
    call = door.runner.held[0]
    for _ in range(9):
        assert door.receive(data(1, prefixed(bytes(95)))) == []
    assert door.session.held == call.held == 9 * (100 + 64)
    while call.take() is not None:
        pass
    door.settle()
    assert (
        door.reader.updates == {0: limits.connection_window_bytes - 65_535, 1: 900}
        or door.reader.updates[1] == 900
    )
    assert door.session.held == 0
    call.complete()
    door.settle()
    door.check_empty()


def test_a_large_unary_message_is_let_come_in_large_steps() -> None:
    door = Door(Limits(stream_window_bytes=1000))
    door.receive(opened(1, "Echo"), data(1, struct.pack(">BL", 0, 100_000) + bytes(600)), hello=True)
    assert door.reader.updates[1] >= 90_000
    assert door.connection.streams[1].receive_window <= 100_000
    left = 100_000 - 600
    while left:
        size = min(left, 16_000)
        left -= size
        door.receive(data(1, bytes(size), end=not left))
    assert door.reply(1).status is None  # its own window holds it back
    door.receive(frames.window_update(1, 100_000), frames.window_update(0, 100_000))
    assert door.reply(1).messages == [bytes(100_000)]
    door.check_empty()


def test_large_messages_of_a_stream_are_let_come_at_once_and_the_window_shrinks_behind_them() -> None:
    door = Door(Limits(stream_window_bytes=1000))
    door.receive(opened(1, "Hold"), hello=True)
    call = door.runner.held[0]
    stream = door.connection.streams[1]
    for size in (100_000, 50_000, 300):
        began = min(size, 600)
        before = stream.receive_window
        door.receive(data(1, struct.pack(">BL", 0, size) + bytes(began)))
        left = size - began
        assert (stream.receive_window > before) == (size > 1000)
        if left:
            assert stream.receive_window + stream.owed == left
        while left:
            step = min(left, 16_000)
            left -= step
            door.receive(data(1, bytes(step)))
        assert call.take() == (0, bytes(size))
        assert call.take() is None
        assert stream.receive_window + stream.owed == 1000
    door.receive(rst(1, CANCEL))
    door.check_empty()


def test_large_requests_of_a_connection_come_one_after_the_other() -> None:
    """Once it holds much: one continues, the others get no more window until that one is gone."""
    door = Door()
    claim = struct.pack(">BL", 0, 1 << 29)
    door.receive(opened(1, "Echo"), data(1, claim), opened(3, "Echo"), data(3, claim), hello=True)
    piece = bytes(1 << 14)
    sent = 0
    while sent < GROWING_BYTES:
        assert door.connection.streams[1].receive_window >= len(piece)
        door.receive(data(1, piece))
        sent += len(piece)
    window = door.connection.streams[3].receive_window
    assert window <= Limits().stream_window_bytes
    for _ in range(window // len(piece)):
        door.receive(data(3, piece))
    assert 3 not in door.reader.updates  # starved
    door.receive(data(1, piece))  # while the first continues
    assert door.connection.streams[1].receive_window >= len(piece)
    door.receive(rst(1, CANCEL))
    assert door.reader.updates[3] >= 1 << 20
    door.receive(rst(3, CANCEL))
    door.check_empty()


# -- ends --------------------------------------------------------------------------------------------


def test_a_reset_of_any_code_cancels_the_handler() -> None:
    for code in (0, 2, CANCEL, 0xFFFF):
        door = Door()
        door.receive(unary(1, "Park", b""), opened(3, "Chat"), rst(1, code), rst(3, code), hello=True)
        assert len(door.runner.cancelled) == 2
        assert 1 not in door.reader.replies
        assert 3 not in door.reader.replies
        door.check_empty()


def test_a_reset_before_the_request_was_complete() -> None:
    door = Door()
    door.receive(opened(1, "Park"), data(1, prefixed(bytes(100))[:50]), rst(1), hello=True)
    assert door.runner.seen == []
    assert door.runner.cancelled == []
    door.check_empty()


def test_a_handler_that_ends_after_its_cancellation_sends_nothing() -> None:
    door = Door()
    door.runner.stubborn = True
    door.receive(
        unary(1, "Park", b""), opened(3, "Hold"), opened(5, "Hold"), rst(1), rst(3), rst(5), hello=True
    )
    assert door.connection.lingering == 3
    unary_call, (first, second) = door.runner.parked[0], door.runner.held
    unary_call.succeed(b"too late")
    first.send(b"too late")
    first.complete()
    second.fail(codes.INTERNAL, "too late")
    assert door.settle() == []
    door.check_empty()


def test_a_lost_connection_cancels_all() -> None:
    door = Door()
    parts = (
        unary(1, "Park", b""),
        opened(3, "Hold"),
        opened(5, "Echo"),
        data(5, b"\x00\x00"),
        get(7, end=False),
    )
    door.receive(*parts, hello=True)
    door.session.end()
    door.runner.run()
    assert len(door.runner.cancelled) == 2
    door.check_empty()
    assert [method.failed for method in door.methods.values() if method.started] == [{1: 1}] * 3


def test_a_deadline_that_passes_ends_the_call_and_cancels_its_handler() -> None:
    door = Door()
    timeout = (b"grpc-timeout", b"2S")
    door.receive(
        unary(1, "Park", b"", timeout), opened(3, "Hold", timeout), opened(5, "Echo", timeout), hello=True
    )
    door.runner.held[0].send(b"one")
    door.settle()
    assert door.pass_time(NOW_S + 1.99) == []
    door.tick(NOW_S + 2)
    for stream in (1, 3, 5):
        assert (door.reply(stream).status, door.reply(stream).text) == (4, "the call's deadline has passed")
    assert [door.reply(stream).reset for stream in (1, 3, 5)] == [None, NO_ERROR, NO_ERROR]
    assert door.reply(3).messages == [b"one"]
    assert len(door.runner.cancelled) == 2
    door.check_empty()
    assert door.methods[b"/test.Door/Park"].failed == {4: 1}


def test_a_deadline_of_a_reply_that_is_only_waiting_to_be_sent_does_not_matter() -> None:
    door = Door()
    door.receive(frames.settings({4: 0}), unary(1, "Park", b"", (b"grpc-timeout", b"2S")), hello=True)
    door.runner.parked[0].succeed(b"done")
    door.settle()
    door.pass_time(NOW_S + 5)
    door.receive(frames.window_update(1, 100))
    assert (door.reply(1).messages, door.reply(1).status) == ([b"done"], 0)
    door.check_empty()


def test_a_call_is_counted_once() -> None:
    door = Door()
    door.receive(unary(1, "Echo", b""), unary(3, "Fail", b""), unary(5, "Park", b""), hello=True)
    door.receive(rst(5))
    door.now_s += 3.0
    counted = {
        method.path: (method.started, method.succeeded, method.failed) for method in door.methods.values()
    }
    assert counted["/test.Door/Echo"] == (1, 1, {})
    assert counted["/test.Door/Fail"] == (1, 0, {9: 1})
    assert counted["/test.Door/Park"] == (1, 0, {1: 1})


def test_plain_requests_are_answered_beside_calls() -> None:
    door = Door()
    post = headers(3, block(pseudo(b"/x"))) + data(3, b"body") + data(3, end=True)
    head = headers(5, block(pseudo(b"/", b"HEAD")), 5)
    door.receive(get(1), post, head, hello=True)
    assert [(door.reply(stream).http, door.reply(stream).body) for stream in (1, 3, 5)] == [
        (200, b"hello\n"),
        (200, b"hello\n"),
        (200, b""),
    ]
    door.check_empty()


def test_a_plain_body_above_its_limit_is_413() -> None:
    for size, status in ((100, 200), (101, 413)):
        door = Door(Limits(http_body_bytes_max=100))
        door.receive(headers(1, block(pseudo(b"/x"))), data(1, bytes(size)), hello=True)
        door.receive(data(1, end=True))
        assert door.reply(1).http == status
        door.check_empty()


def test_heads_of_calls_are_planned_once() -> None:
    door = Door()
    encoded = call_block("Park")
    for stream in (1, 3):
        door.receive(headers(stream, encoded), data(stream, prefixed(b""), end=True), hello=stream == 1)
    first, second = door.runner.parked
    assert first.plan is second.plan


def test_hold_raises_for_a_call_that_asks_too_much() -> None:
    door = Door(Limits(connection_receive_bytes_max=1000))
    door.receive(unary(1, "Park", b"", (b"x-a", b"1")), opened(3, "Hold"), hello=True)
    call = door.runner.parked[0]
    call.hold(1000)
    with pytest.raises(RpcStatus) as caught:
        call.hold(1)
    assert caught.value.code == codes.UNAVAILABLE
    call.fail(caught.value.code, str(caught.value))
    door.settle()
    assert door.session.held == 0
