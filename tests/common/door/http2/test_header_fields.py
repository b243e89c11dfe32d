"""Header fields of requests (R8.1 to R8.5), header lists and blocks at their limits (R10.5.1)."""

from __future__ import annotations

import pytest

from tests.cases import case
from tests.common.door.support.model import GRPC, Door, block, continuation, data, get, headers, ping, pseudo
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import hpack
from tidb_binlog.http2.frames import (
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    PROTOCOL_ERROR,
    RST_STREAM,
)

BOTH = END_HEADERS | END_STREAM
METHOD, SCHEME, PATH, AUTHORITY = pseudo(b"/", b"GET")
Fields = tuple[tuple[bytes, bytes], ...]

MALFORMED: dict[str, Fields] = {
    **{
        f"R8.2.1 name with {octet:#04x}": (METHOD, SCHEME, PATH, (b"na" + bytes([octet]) + b"me", b"v"))
        for octet in (*range(0x21), *b"AMZ", 0x7F, 0x80, 0xFF)
    },
    "R8.2.1 name with a colon": (METHOD, SCHEME, PATH, (b"na:me", b"v")),
    "R8.2.1 empty name": (METHOD, SCHEME, PATH, (b"", b"v")),
    **{
        f"R8.2.1 value {value!r}": (METHOD, SCHEME, PATH, (b"name", value))
        for value in (b"a\x00b", b"a\rb", b"a\nb", b" a", b"a ", b"\ta", b"a\t", b" ", b"\x00", b"\n")
    },
    "R8.2.1 value of a pseudo-header field": (METHOD, SCHEME, (b":path", b"/a\n")),
    **{
        f"R8.2.2 {name.decode()}": (METHOD, SCHEME, PATH, (name, b"x"))
        for name in (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
    },
    "R8.2.2 te other than trailers": (METHOD, SCHEME, PATH, (b"te", b"gzip")),
    "R8.2.2 te with more than trailers": (METHOD, SCHEME, PATH, (b"te", b"trailers, gzip")),
    "R8.3 unknown pseudo-header field": (METHOD, SCHEME, PATH, (b":test", b"x")),
    "R8.3 pseudo-header field of a response": (METHOD, SCHEME, PATH, (b":status", b"200")),
    "R8.3 after a regular field": (METHOD, SCHEME, (b"name", b"v"), PATH),
    "R8.3 after a known regular field": (METHOD, SCHEME, (b"content-type", b"v"), PATH),
    "R8.3.1 :method twice": (METHOD, METHOD, SCHEME, PATH),
    "R8.3.1 :scheme twice": (METHOD, SCHEME, SCHEME, PATH),
    "R8.3.1 :path twice": (METHOD, SCHEME, PATH, PATH),
    "R8.3.1 :authority twice": (METHOD, SCHEME, PATH, AUTHORITY, AUTHORITY),
    "R8.3.1 no :method": (SCHEME, PATH, AUTHORITY),
    "R8.3.1 no :scheme": (METHOD, PATH, AUTHORITY),
    "R8.3.1 no :path": (METHOD, SCHEME, AUTHORITY),
    "R8.3.1 empty :path": (METHOD, SCHEME, (b":path", b"")),
    "R8.3.1 nothing": (),
    "R8.3.1 host unlike :authority": (METHOD, SCHEME, PATH, AUTHORITY, (b"host", b"other")),
    "A41 host twice": (METHOD, SCHEME, PATH, (b"host", b"a"), (b"host", b"a")),
    "R8.5 CONNECT with :path": ((b":method", b"CONNECT"), PATH, AUTHORITY),
    "R8.5 CONNECT with :scheme": ((b":method", b"CONNECT"), SCHEME, AUTHORITY),
    "R8.5 CONNECT without :authority": ((b":method", b"CONNECT"),),
    "R8.1.1 content-length twice, unlike": (
        METHOD,
        SCHEME,
        PATH,
        (b"content-length", b"1"),
        (b"content-length", b"2"),
    ),
    "R8.1.1 content-length empty": (METHOD, SCHEME, PATH, (b"content-length", b"")),
    "R8.1.1 content-length negative": (METHOD, SCHEME, PATH, (b"content-length", b"-1")),
    "R8.1.1 content-length of 19 digits": (METHOD, SCHEME, PATH, (b"content-length", b"1" * 19)),
}

LEGAL: dict[str, Fields] = {
    "no :authority": (METHOD, SCHEME, PATH),
    "host takes its place": (METHOD, SCHEME, PATH, (b"host", b"door")),
    "host like :authority": (METHOD, SCHEME, PATH, AUTHORITY, (b"host", b"door")),
    "any order": (AUTHORITY, PATH, SCHEME, METHOD),
    "te: trailers": (METHOD, SCHEME, PATH, (b"te", b"trailers")),
    "R8.2.3 cookie crumbs": (METHOD, SCHEME, PATH, (b"cookie", b"a=1"), (b"cookie", b"b=2")),
    "empty value": (METHOD, SCHEME, PATH, (b"name", b"")),
    "value of one octet": (METHOD, SCHEME, PATH, (b"name", b"v")),
    "octets from 0x80": (METHOD, SCHEME, PATH, (b"name", b"\x80\xff")),
    "blanks inside": (METHOD, SCHEME, PATH, (b"name", b"a \t b")),
    "control octets that R8.2.1 lets pass": (METHOD, SCHEME, PATH, (b"name", b"a\x01\x7fb")),
    "names that tokens may have": (METHOD, SCHEME, PATH, (b"!#$%&'*+-.^_`|~09az", b"v")),
    "content-length twice, alike": (
        METHOD,
        SCHEME,
        PATH,
        (b"content-length", b"0"),
        (b"content-length", b"0"),
    ),
}


def test_malformed() -> None:
    for what in MALFORMED:
        with case(what):
            door = Door()
            answer = door.receive(headers(1, block(MALFORMED[what]), BOTH), hello=True)
            assert [(item.kind, item.word) for item in answer[1:]] == [(RST_STREAM, PROTOCOL_ERROR)]
            assert door.fault is None
            # A field keeps its verdict in the table, and the stream is the only one that suffers.
            door.receive(
                headers(3, b"".join(hpack.insert(*field) for field in MALFORMED[what]), BOTH), get(5)
            )
            assert (door.reply(3).reset, door.reply(5).http) == (PROTOCOL_ERROR, 200)
            if MALFORMED[what]:
                again = b"".join(hpack.indexed(62 + at) for at in reversed(range(len(MALFORMED[what]))))
                door.receive(headers(7, again, BOTH), headers(9, again, BOTH))
                assert door.reply(7).reset == door.reply(9).reset == PROTOCOL_ERROR
            door.check_empty()


@pytest.mark.parametrize("what", LEGAL)
def test_legal(what: str) -> None:
    door = Door()
    encoded = block(LEGAL[what])
    door.receive(headers(1, encoded, BOTH), headers(3, encoded, BOTH), hello=True)
    assert (door.reply(1).http, door.reply(3).http) == (200, 200)
    assert (door.reply(1).reset, door.reply(3).reset) == (None, None)


def test_R8_5_a_good_connect_is_a_request() -> None:
    door = Door()
    door.receive(headers(1, block(((b":method", b"CONNECT"), (b":authority", b"door"))), BOTH), hello=True)
    assert door.reply(1).reset is None
    assert door.reply(1).http == 200  # the fake routes answer anything


# -- R10.5.1: lists and blocks -----------------------------------------------------------------------

START = (*pseudo(b"/test.Door/Echo"), *GRPC)


def list_bytes(fields: Fields) -> int:
    return sum(len(name) + len(value) + 32 for name, value in fields)


def padded_to(size: int) -> bytes:
    """A call whose header list has this size."""
    rest = size - list_bytes(START) - 32 - len(b"x-fill")
    return block((*START, (b"x-fill", b"v" * rest)))


def test_R10_5_1_a_list_to_its_last_octet() -> None:
    door = Door(Limits(header_list_bytes_max=1000))
    for stream, size in ((1, 1000), (3, 1001)):
        door.receive(headers(stream, padded_to(size)), data(stream, bytes(5), end=True), hello=stream == 1)
    assert door.reply(1).status == 0
    # 431, which is refused before the body came.
    assert (door.reply(3).http, door.reply(3).ended, door.reply(3).reset) == (431, 1, 0)
    assert door.refusals == ["header_list_bytes"]
    door.check_empty()


def test_R10_5_1_a_list_of_so_many_fields() -> None:
    door = Door(Limits(header_fields_max=20))
    for stream, more in ((1, 14), (3, 15)):
        fields = (*START, *[(b"x-%d" % number, b"") for number in range(more)])
        door.receive(headers(stream, block(fields)), data(stream, bytes(5), end=True), hello=stream == 1)
    assert door.reply(1).status == 0
    assert door.reply(3).http == 431


def test_R10_5_1_a_list_that_is_too_large_is_decoded_to_its_end() -> None:
    door = Door(Limits(header_list_bytes_max=1000))
    encoded = padded_to(2000) + hpack.insert(b"x-new", b"1")
    door.receive(headers(1, encoded, BOTH), hello=True)
    assert door.reply(1).http == 431
    door.receive(headers(3, block(START) + hpack.indexed(62)), data(3, bytes(5), end=True))
    assert door.reply(3).status == 0


@pytest.mark.parametrize(("size", "ends"), [(4000, False), (4001, True)])
def test_R10_5_1_a_list_far_above_ends_the_connection(size: int, ends: bool) -> None:
    door = Door(Limits(header_list_bytes_max=1000))
    door.receive(headers(1, padded_to(size), BOTH), hello=True)
    assert door.fault == ((ENHANCE_YOUR_CALM, "header_list_bytes") if ends else None)


def test_a_known_block_that_is_too_large_stays_so() -> None:
    door = Door(Limits(header_fields_max=20))
    encoded = hpack.indexed(16) * 21
    door.receive(headers(1, encoded, BOTH), headers(3, encoded, BOTH), hello=True)
    assert (door.reply(1).http, door.reply(3).http) == (431, 431)


@pytest.mark.parametrize(("frames", "ends"), [(8, False), (9, True)])
def test_continuations_of_a_block(frames: int, ends: bool) -> None:
    door = Door()
    encoded = block(START)
    parts = [continuation(1, encoded[at : at + 1], last=False) for at in range(frames - 1)]
    door.receive(headers(1, b"", 0), *parts, continuation(1, encoded[frames - 1 :]), hello=True)
    assert door.fault == ((ENHANCE_YOUR_CALM, "continuations") if ends else None)


def test_an_empty_continuation_that_is_not_the_last() -> None:
    door = Door()
    door.receive(headers(1, b"\x82", 0), continuation(1, b"", last=False), hello=True)
    assert door.fault == (ENHANCE_YOUR_CALM, "continuations")


@pytest.mark.parametrize(("size", "ends"), [(500, False), (501, True)])
@pytest.mark.parametrize("cut", [False, True])
def test_octets_of_a_block(size: int, ends: bool, cut: bool) -> None:
    door = Door(Limits(header_block_bytes_max=500))
    encoded = block(START)
    fill = size - len(encoded) - len(hpack.literal(b"x-fill", b"v" * 300)) + 300
    encoded += hpack.literal(b"x-fill", b"v" * fill)
    assert len(encoded) == size
    if cut:
        parts = [headers(1, encoded[:100], 0), continuation(1, encoded[100:])]
    else:
        parts = [headers(1, encoded)]
    door.receive(*parts, data(1, bytes(5), end=True), hello=True)
    assert door.fault == ((ENHANCE_YOUR_CALM, "header_block_bytes") if ends else None)


def test_octets_of_trailers() -> None:
    door = Door(Limits(header_block_bytes_max=500))
    start = headers(1, block(START)) + data(1, bytes(5))
    door.receive(start, headers(1, hpack.literal(b"x-fill", b"v" * 500), BOTH), hello=True)
    assert door.fault == (ENHANCE_YOUR_CALM, "header_block_bytes")


def test_a_known_block_means_the_same_until_the_table_changes() -> None:
    """The cache of heads: filled, used, and dropped by inserts, evictions and table updates."""
    door = Door()
    path = hpack.insert(b":path", b"/test.Door/Echo")
    rest = b"".join(hpack.literal(*field) for field in START if field[0] != b":path")
    door.receive(headers(1, path + rest), data(1, bytes(5), end=True), hello=True)
    known = hpack.indexed(62) + rest
    for stream in (3, 5):
        door.receive(headers(stream, known), data(stream, bytes(5), end=True))
    other = hpack.insert(b":path", b"/test.Door/Fail") + rest
    door.receive(headers(7, other), data(7, bytes(5), end=True))
    for stream in (9, 11):
        door.receive(headers(stream, known), data(stream, bytes(5), end=True))
    assert [door.reply(stream).status for stream in (1, 3, 5, 7, 9, 11)] == [0, 0, 0, 9, 9, 9]
    # Trailers change the table too.
    door.receive(headers(13, known), data(13, bytes(5)), headers(13, hpack.insert(b"x-trailer", b"1"), BOTH))
    door.receive(headers(15, known, BOTH))
    assert door.reply(15).reset == PROTOCOL_ERROR  # no :path any more
    # And a table of no octets.
    door.receive(headers(17, hpack.size_update(0) + hpack.size_update(4096) + block(START)))
    door.receive(data(17, bytes(5), end=True), ping())
    door.receive(headers(19, known, BOTH))
    assert door.fault == (9, "")


def test_many_different_blocks_are_not_all_kept() -> None:
    door = Door()
    door.receive(hello=True)
    for number in range(200):
        encoded = block((*START, (b"x-number", b"%d" % number)))
        door.receive(headers(2 * number + 1, encoded), data(2 * number + 1, bytes(5), end=True))
    assert len(door.connection.blocks.said) <= 64
    assert all(door.reply(2 * number + 1).status == 0 for number in range(200))
