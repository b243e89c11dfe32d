"""Every rule of RFC 9113 that a client can breach, by section, with the level and code of the answer."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest

from tests.cases import case
from tests.common.door.support.model import (
    GREETING,
    HELLO,
    NOW_S,
    Door,
    Exchanges,
    Frame,
    block,
    continuation,
    data,
    frames_of,
    get,
    headers,
    ping,
    priority,
    pseudo,
    rst,
)
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    NO_ERROR,
    PADDED,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    frame,
)

GET = block(pseudo(b"/", b"GET"))
POST = block(pseudo(b"/", b"POST"))
LIMITS = Limits(streams_max=3)
MAX = (1 << 31) - 1


class Peer:
    """A connection, what is told above it, and what it answers."""

    def __init__(self, limits: Limits = LIMITS, *, greeted: bool = True) -> None:
        self.above = Exchanges()
        self.connection = Connection(lambda _: self.above, limits, Budget(), NOW_S)
        self.greeting = b"".join(self.connection.outbound.out)
        self.connection.outbound.out.clear()
        if greeted:
            assert [item.kind for item in self.send(GREETING)] == [SETTINGS]

    def send(self, *parts: bytes) -> list[Frame]:
        self.connection.receive(b"".join(parts), NOW_S)
        self.connection.produce(1 << 20)
        octets = b"".join(self.connection.outbound.out)
        self.connection.outbound.out.clear()
        return frames_of(octets)

    @property
    def events(self) -> list[tuple[object, ...]]:
        return self.above.events

    @property
    def reason(self) -> str:
        return "" if self.connection.fault is None else self.connection.fault.reason

    def answer(self, stream_id: int) -> None:
        """A reply that ends the stream."""
        stream = self.above.streams[stream_id]
        self.connection.outbound.only(stream, hpack.indexed(8))
        self.connection.finished(stream)


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in pairs))


def window(stream_id: int, increment: int) -> bytes:
    return frames.window_update(stream_id, increment)


@dataclass
class Breach:
    section: str
    what: str
    octets: bytes
    code: int
    stream: int = 0  # 0: the connection ends
    before: bytes = GREETING
    limits: Limits = LIMITS

    @property
    def name(self) -> str:
        return f"{self.section} {self.what}"


OPEN = GREETING + get(1, end=False)
HALF = GREETING + get(1)
BEGUN = GREETING + headers(1, GET[:5], END_STREAM)
COMPRESSION = {
    "H6.1 index 0": b"\x80",
    "H2.3.3 index past the table": b"\xbe",
    "H2.3.3 large index past the table": b"\xff\x80\x01",
    "H2.3.3 name index past the table": b"\x7f\x00\x01x",
    "H5.1 integer overflow": b"\xff" + b"\xff" * 5 + b"\x01",
    "H5.1 block ends inside an integer": b"\xff\xff",
    "H5.2 string longer than the block": b"\x00\x05ab",
    "H5.2 EOS inside a Huffman string": b"\x00\x84\xff\xff\xff\xff\x01x",
    "H5.2 Huffman padding of 8 bits": b"\x00\x82\x1f\xff\x01x",
    "H5.2 Huffman padding of zeros": b"\x00\x81\x18\x01x",
    "H6.3 table update above our setting": b"\x3f\xe2\x1f",
    "H4.2 table update after a field": b"\x82\x20",
}

BREACHES = [
    Breach("R3.4", "first frame is not SETTINGS", ping(), PROTOCOL_ERROR, before=b""),
    Breach(
        "R3.4", "first frame is a SETTINGS acknowledgement", frames.SETTINGS_ACK, PROTOCOL_ERROR, before=b""
    ),
    Breach("R4.2", "frame of 16385 octets", data(1, bytes(16385)), FRAME_SIZE_ERROR, before=OPEN),
    Breach("R4.2", "its head alone", data(1, bytes(16385))[:9], FRAME_SIZE_ERROR, before=OPEN),
    Breach("R4.3", "DATA of the stream inside a block", data(1), PROTOCOL_ERROR, before=BEGUN),
    Breach("R4.3", "HEADERS of another stream inside a block", get(3), PROTOCOL_ERROR, before=BEGUN),
    Breach("R4.3", "PRIORITY inside a block", priority(1), PROTOCOL_ERROR, before=BEGUN),
    Breach("R5.5", "unknown frame inside a block", frame(0x42, 0, 0), PROTOCOL_ERROR, before=BEGUN),
    Breach("R6.10", "CONTINUATION of another stream", continuation(3, b""), PROTOCOL_ERROR, before=BEGUN),
    Breach("R6.10", "CONTINUATION on stream 0", continuation(0, b""), PROTOCOL_ERROR),
    Breach("R6.10", "CONTINUATION without HEADERS", continuation(1, b"\x82"), PROTOCOL_ERROR),
    Breach("R6.10", "CONTINUATION after END_HEADERS", continuation(1, b"\x82"), PROTOCOL_ERROR, before=OPEN),
    *(
        Breach("R4.3", f"({what})", headers(1, octets), COMPRESSION_ERROR)
        for what, octets in COMPRESSION.items()
    ),
    Breach("R4.3", "trailers that do not decode", headers(1, b"\x80", 5), COMPRESSION_ERROR, before=OPEN),
    Breach(
        "R4.3",
        "late HEADERS that do not decode",
        headers(1, b"\x80"),
        COMPRESSION_ERROR,
        before=OPEN + rst(1),
    ),
    Breach("R5.1.1", "even id", get(2), PROTOCOL_ERROR),
    Breach("R5.1.1", "id below the last", get(3), PROTOCOL_ERROR, before=GREETING + get(5)),
    Breach("R5.1.1", "first id below the first one used", get(1), PROTOCOL_ERROR, before=GREETING + get(3)),
    Breach("R5.1.2", "one stream too many", get(7), REFUSED_STREAM, 7, GREETING + get(1) + get(3) + get(5)),
    Breach("R6.1", "DATA on stream 0", data(0), PROTOCOL_ERROR),
    Breach("R6.2", "HEADERS on stream 0", get(0), PROTOCOL_ERROR),
    Breach("R6.3", "PRIORITY on stream 0", priority(0, 1), PROTOCOL_ERROR),
    Breach("R6.4", "RST_STREAM on stream 0", rst(0), PROTOCOL_ERROR),
    Breach("R6.5", "SETTINGS on a stream", frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    Breach("R6.7", "PING on a stream", ping(stream_id=1), PROTOCOL_ERROR),
    Breach("R6.8", "GOAWAY on a stream", frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    Breach(
        "R6.1", "padding as long as the rest", frame(DATA, PADDED, 1, b"\x03ab"), PROTOCOL_ERROR, before=OPEN
    ),
    Breach(
        "R6.1",
        "padding of a discarded frame",
        frame(DATA, PADDED, 1, b"\x01"),
        PROTOCOL_ERROR,
        before=OPEN + rst(1),
    ),
    Breach("R6.1", "no room for the pad length", frame(DATA, PADDED, 1), FRAME_SIZE_ERROR, before=OPEN),
    Breach(
        "R6.2", "padding of HEADERS", frame(HEADERS, PADDED | END_HEADERS, 1, b"\x02\x82"), PROTOCOL_ERROR
    ),
    Breach("R6.2", "no room for the pad length", frame(HEADERS, PADDED | END_HEADERS, 1), FRAME_SIZE_ERROR),
    Breach(
        "R6.2",
        "too short for priority",
        frame(HEADERS, HAS_PRIORITY | END_HEADERS, 1, bytes(4)),
        FRAME_SIZE_ERROR,
    ),
    Breach("R6.3", "PRIORITY of 4 octets", frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR, 1, OPEN),
    Breach("R6.3", "PRIORITY of 6 octets", frame(PRIORITY, 0, 1, bytes(6)), FRAME_SIZE_ERROR, 1, OPEN),
    Breach(
        "R6.3, 6.4", "PRIORITY of 4 octets, idle stream", frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR
    ),
    Breach("7540-5.3.1", "PRIORITY on itself", priority(1, 1), PROTOCOL_ERROR, 1, OPEN),
    Breach("7540-5.3.1", "PRIORITY on itself, idle stream", priority(1, 1), PROTOCOL_ERROR),
    Breach(
        "7540-5.3.1",
        "HEADERS on themselves",
        frame(HEADERS, HAS_PRIORITY | END_HEADERS, 1, struct.pack(">LB", 1, 0) + POST),
        PROTOCOL_ERROR,
        1,
    ),
    Breach(
        "R6.4", "RST_STREAM of 3 octets", frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR, before=OPEN
    ),
    Breach(
        "R6.4", "RST_STREAM of 5 octets", frame(RST_STREAM, 0, 1, bytes(5)), FRAME_SIZE_ERROR, before=OPEN
    ),
    Breach("R6.4", "RST_STREAM on the last of all streams, idle", rst(MAX), PROTOCOL_ERROR, before=OPEN),
    Breach("R5.1", "DATA on the last of all, idle", data(MAX), PROTOCOL_ERROR, before=OPEN),
    Breach("R5.1", "WINDOW_UPDATE on the last of all, idle", window(MAX, 1), PROTOCOL_ERROR, before=OPEN),
    Breach("R6.4", "RST_STREAM on an idle stream", rst(3), PROTOCOL_ERROR, before=OPEN),
    Breach("R6.5", "acknowledgement with payload", frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    Breach("R6.5", "length of 7", frame(SETTINGS, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    Breach("R6.5.2", "ENABLE_PUSH of 2", settings((2, 2)), PROTOCOL_ERROR),
    Breach("R6.5.2", "MAX_FRAME_SIZE of 16383", settings((5, 16383)), PROTOCOL_ERROR),
    Breach("R6.5.2", "MAX_FRAME_SIZE of 2^24", settings((5, 1 << 24)), PROTOCOL_ERROR),
    Breach("R6.5.2", "INITIAL_WINDOW_SIZE of 2^31", settings((4, 1 << 31)), FLOW_CONTROL_ERROR),
    Breach(
        "R6.9.2",
        "a stream window through INITIAL_WINDOW_SIZE",
        settings((4, MAX)),
        FLOW_CONTROL_ERROR,
        before=OPEN + window(1, 1),
    ),
    Breach(
        "R6.5.3",
        "settings apply in order: a bad one among good ones",
        settings((4, 1), (2, 2), (4, 9)),
        PROTOCOL_ERROR,
    ),
    Breach(
        "R8.4", "PUSH_PROMISE", frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL_ERROR, before=OPEN
    ),
    Breach("R6.7", "PING of 7 octets", ping(bytes(7)), FRAME_SIZE_ERROR),
    Breach("R6.7", "PING of 9 octets", ping(bytes(9)), FRAME_SIZE_ERROR),
    Breach("R6.8", "GOAWAY of 7 octets", frame(GOAWAY, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    Breach("R6.9", "WINDOW_UPDATE of 3 octets", frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    Breach(
        "R6.9",
        "WINDOW_UPDATE of 5 octets, on a stream",
        frame(WINDOW_UPDATE, 0, 1, bytes(5)),
        FRAME_SIZE_ERROR,
        before=OPEN,
    ),
    Breach("R6.9", "WINDOW_UPDATE of 0", window(0, 0), PROTOCOL_ERROR),
    Breach("R6.10", "CONTINUATION on stream 0", continuation(0, GET), PROTOCOL_ERROR),
    Breach("R6.9", "WINDOW_UPDATE of 0 on a stream", window(1, 0), PROTOCOL_ERROR, 1, OPEN),
    Breach("R6.9.1", "connection window of 2^31", window(0, MAX - 65535 + 1), FLOW_CONTROL_ERROR),
    Breach("R6.9.1", "stream window of 2^31", window(1, MAX - 65535 + 1), FLOW_CONTROL_ERROR, 1, OPEN),
    Breach(
        "R6.9.1",
        "DATA beyond the stream window",
        data(1, bytes(11)),
        FLOW_CONTROL_ERROR,
        1,
        OPEN,
        Limits(stream_window_bytes=10),
    ),
    Breach(
        "R6.9.1",
        "padding beyond the stream window",
        frame(DATA, PADDED, 1, b"\x05" + bytes(10)),
        FLOW_CONTROL_ERROR,
        1,
        OPEN,
        Limits(stream_window_bytes=10),
    ),
    Breach(
        "R8.1",
        "second HEADERS without END_STREAM",
        headers(1, block([(b"a", b"b")])),
        PROTOCOL_ERROR,
        1,
        OPEN,
    ),
    Breach(
        "R8.1",
        "pseudo-header field in trailers",
        headers(1, GET, END_HEADERS | END_STREAM),
        PROTOCOL_ERROR,
        1,
        OPEN,
    ),
    Breach(
        "R8.2.1",
        "malformed trailers",
        headers(1, block([(b"A", b"b")]), END_HEADERS | END_STREAM),
        PROTOCOL_ERROR,
        1,
        OPEN,
    ),
    Breach(
        "R10.5.1",
        "trailers above the limit",
        headers(1, block([(b"a", b"b")] * 101), END_HEADERS | END_STREAM),
        PROTOCOL_ERROR,
        1,
        OPEN,
    ),
]


def length_post(length: bytes, *, end: bool = False) -> bytes:
    fields = (*pseudo(b"/"), (b"content-length", length))
    return headers(1, block(fields), END_HEADERS | (END_STREAM if end else 0))


BREACHES += [
    Breach("R8.1.1", "content-length without a body", length_post(b"1", end=True), PROTOCOL_ERROR, 1),
    Breach("R8.1.1", "body too long", data(1, b"abc"), PROTOCOL_ERROR, 1, GREETING + length_post(b"2")),
    Breach(
        "R8.1.1", "body too short", data(1, b"a", end=True), PROTOCOL_ERROR, 1, GREETING + length_post(b"2")
    ),
    Breach(
        "R8.1.1",
        "too short, by trailers",
        headers(1, b"", 5),
        PROTOCOL_ERROR,
        1,
        GREETING + length_post(b"2"),
    ),
    Breach(
        "R8.1.1",
        "too short in spite of padding",
        frame(DATA, PADDED | END_STREAM, 1, b"\x01a\x00"),
        PROTOCOL_ERROR,
        1,
        GREETING + length_post(b"2"),
    ),
    Breach("R8.1.1", "no number", length_post(b"1x"), PROTOCOL_ERROR, 1),
]


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
def test_breach(breach: Breach) -> None:
    peer = Peer(breach.limits, greeted=False)
    assert all(item.kind in (SETTINGS, WINDOW_UPDATE) for item in peer.send(breach.before))
    assert peer.connection.fault is None
    answer = peer.send(breach.octets)
    if breach.stream:
        assert answer == [Frame(RST_STREAM, 0, breach.stream, struct.pack(">L", breach.code))]
        assert not peer.connection.ended
        # The connection continues, its decoder too.
        assert peer.send(ping()) == [Frame(PING, ACK, 0, b"12345678")]
        assert breach.stream not in peer.connection.streams
        cancelled = [event for event in peer.events if event[0] == "cancel"]
        known = any(event[:2] == ("request", breach.stream) for event in peer.events)
        assert cancelled == ([("cancel", breach.stream)] if known else [])
        return
    assert [item.kind for item in answer] == [GOAWAY]
    assert answer[0].word == peer.connection.last_id
    assert int.from_bytes(answer[0].payload[4:8], "big") == breach.code
    assert answer[0].payload[8:].decode() == peer.reason
    assert peer.connection.ended
    events = list(peer.events)
    assert peer.send(ping(), get(99)) == []
    assert peer.events == events, "nothing more is read"


def test_R4_3_1_our_table_stays_at_4096_so_that_no_update_is_due() -> None:
    assert (1, 4096) in frames.read_settings(frames_of(Peer().greeting)[0].payload)


def test_R3_4_our_settings_come_first_and_say_our_limits() -> None:
    first, second = frames_of(Peer(Limits()).greeting)
    assert dict(frames.read_settings(first.payload)) == {1: 4096, 3: 1024, 4: 32 << 10, 5: 16384, 6: 16384}
    assert (second.kind, second.stream, second.word) == (WINDOW_UPDATE, 0, (64 << 20) - 65535)
    assert len(frames_of(Peer(Limits(connection_window_bytes=65535)).greeting)) == 1, "none of 0 (R6.9)"


def test_R6_9_1_data_beyond_the_connection_window() -> None:
    # The window is restored on receipt: only one frame can pass it.
    peer = Peer(Limits(connection_window_bytes=65_535, frame_bytes_max=1 << 17, stream_window_bytes=1 << 20))
    peer.send(get(1, end=False))
    assert [item.kind for item in peer.send(data(1, bytes(65_535)))] == [WINDOW_UPDATE]
    answer = peer.send(data(1, bytes(65_536)))
    assert int.from_bytes(answer[0].payload[4:8], "big") == FLOW_CONTROL_ERROR


def test_R6_9_1_a_stream_window_to_its_last_octet() -> None:
    peer = Peer(Limits(stream_window_bytes=10))
    peer.send(get(1, end=False))
    assert peer.send(data(1, bytes(10)), data(1)) == []
    assert peer.send(data(1, b"x"))[0].kind == RST_STREAM


def test_R6_9_1_windows_of_2_31_less_1_are_legal() -> None:
    peer = Peer()
    assert peer.send(get(1, end=False), window(1, MAX - 65535), window(0, MAX - 65535)) == []
    assert not peer.connection.ended


# -- R5.1: states ------------------------------------------------------------------------------------

KINDS = {
    "DATA": data(1),
    "HEADERS": get(1),
    "PRIORITY": priority(1, 3),
    "RST_STREAM": rst(1),
    "WINDOW_UPDATE": window(1, 5),
}
FINE = None
STATES: dict[str, dict[str, tuple[str, int] | None]] = {
    "idle": {
        "DATA": ("C", PROTOCOL_ERROR), "HEADERS": FINE, "PRIORITY": FINE,
        "RST_STREAM": ("C", PROTOCOL_ERROR), "WINDOW_UPDATE": ("C", PROTOCOL_ERROR),
    },
    "open": {
        "DATA": FINE, "HEADERS": ("S", PROTOCOL_ERROR),  # GET's fields are no trailers
        "PRIORITY": FINE, "RST_STREAM": FINE, "WINDOW_UPDATE": FINE,
    },
    "half-closed (remote)": {
        "DATA": ("S", STREAM_CLOSED), "HEADERS": ("S", STREAM_CLOSED),
        "PRIORITY": FINE, "RST_STREAM": FINE, "WINDOW_UPDATE": FINE,
    },
    "closed, reset by us": dict.fromkeys(KINDS, FINE),
    "closed, reset by us after the reply": dict.fromkeys(KINDS, FINE),
    "closed, reset by peer": {
        "DATA": ("S", STREAM_CLOSED), "HEADERS": ("S", STREAM_CLOSED),
        "PRIORITY": FINE, "RST_STREAM": FINE, "WINDOW_UPDATE": ("S", STREAM_CLOSED),
    },
    "closed by END_STREAM both ways": {
        "DATA": ("C", STREAM_CLOSED), "HEADERS": ("C", STREAM_CLOSED),
        "PRIORITY": FINE, "RST_STREAM": FINE, "WINDOW_UPDATE": FINE,
    },
    "closed, skipped": {
        "DATA": ("C", STREAM_CLOSED), "HEADERS": ("C", PROTOCOL_ERROR),
        "PRIORITY": FINE, "RST_STREAM": FINE, "WINDOW_UPDATE": FINE,
    },
}  # fmt: skip


def in_state(state: str) -> Peer:
    peer = Peer(Limits())
    if state == "open":
        peer.send(get(1, end=False))
    elif state == "half-closed (remote)":
        peer.send(get(1))
    elif state == "closed, reset by us":
        assert peer.send(get(1, end=False), window(1, 0))[0].kind == RST_STREAM
    elif state == "closed, reset by us after the reply":
        peer.send(get(1, end=False))
        peer.answer(1)
        assert [(item.kind, item.flags, item.payload) for item in peer.send()] == [
            (HEADERS, END_STREAM | END_HEADERS, b"\x88"),
            (RST_STREAM, 0, bytes(4)),
        ]
    elif state == "closed, reset by peer":
        peer.send(get(1, end=False), rst(1))
    elif state == "closed by END_STREAM both ways":
        peer.send(get(1))
        peer.answer(1)
        assert [item.kind for item in peer.send()] == [HEADERS]
    elif state == "closed, skipped":
        peer.send(get(3))
    return peer


def test_R5_1_state() -> None:
    for state, kind in [(state, kind) for state in STATES for kind in KINDS]:
        with case(state, kind):
            peer = in_state(state)
            told = len(peer.events)
            answer = peer.send(KINDS[kind])
            expected = STATES[state][kind]
            if expected is None:
                assert answer == []
                assert not peer.connection.ended
                if state.startswith("closed"):
                    assert len(peer.events) == told, "nobody hears of it"
            elif expected[0] == "S":
                assert answer == [Frame(RST_STREAM, 0, 1, struct.pack(">L", expected[1]))]
                assert not peer.connection.ended
            else:
                assert answer[0].kind == GOAWAY
                assert int.from_bytes(answer[0].payload[4:8], "big") == expected[1]


def test_R5_1_a_block_on_a_stream_reset_by_us_is_decoded() -> None:
    peer = in_state("closed, reset by us")
    assert peer.send(headers(1, hpack.insert(b"x-new", b"1"), 5)) == []
    assert peer.send(headers(3, GET + hpack.indexed(62))) == []
    assert peer.events[-1][:2] == ("request", 3)


def test_R5_1_data_on_a_stream_reset_by_us_counts_on_the_connection_window() -> None:
    peer = Peer(Limits(connection_window_bytes=65_535, stream_window_bytes=65_535))
    peer.send(get(1, end=False), window(1, 0))
    answer = peer.send(*(data(1, bytes(16384)) for _ in range(3)))
    assert answer == [Frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", 3 * 16384))]


def test_R5_1_how_streams_were_reset_is_remembered_for_the_last_thousand() -> None:
    peer = Peer(Limits(resets_burst=10_000, glitches_burst=10_000))
    peer.send(*(get(stream) + rst(stream) for stream in range(1, 2003, 2)))  # 1,001 of them
    assert peer.send(data(3))[0].word == STREAM_CLOSED
    # The oldest one: discarded, as any that old.
    assert peer.send(data(1)) == []
    assert not peer.connection.ended


@pytest.mark.parametrize(
    ("stream", "code"), [(1, STREAM_CLOSED), (3, PROTOCOL_ERROR), (5, PROTOCOL_ERROR), (7, STREAM_CLOSED)]
)
def test_R5_1_1_what_was_skipped_is_told_from_what_has_ended(stream: int, code: int) -> None:
    peer = Peer()
    for used in (1, 7):
        peer.send(get(used))
        peer.answer(used)
        peer.send()
    (goaway,) = peer.send(get(stream))
    assert int.from_bytes(goaway.payload[4:8], "big") == code


def test_R5_1_1_the_last_of_all_ids_opens_a_stream() -> None:
    peer = Peer()
    assert peer.send(get(MAX)) == []
    assert peer.events == [("request", MAX, b"/", True)]


@pytest.mark.parametrize("end", [0, END_STREAM])
def test_R6_2_what_stands_around_a_block_changes_nothing(end: int) -> None:
    prior = struct.pack(">LB", 3, 16)
    for flags, payload in {
        0: GET,
        frames.HAS_PRIORITY: prior + GET,
        PADDED: b"\x02" + GET + bytes(2),
        PADDED | frames.HAS_PRIORITY: b"\x02" + prior + GET + bytes(2),
    }.items():
        for reserved in (0, 1 << 31):
            peer = Peer()
            assert peer.send(frame(HEADERS, flags | END_HEADERS | end, reserved | 1, payload)) == []
            assert peer.events == [("request", 1, b"/", bool(end))]
    peer = Peer()
    assert peer.send(frame(HEADERS, frames.HAS_PRIORITY | END_HEADERS, 1, prior))[0].kind == RST_STREAM


def test_R8_1_a_request_ends_with_its_trailers() -> None:
    peer = Peer()
    assert peer.send(get(1, end=False), headers(1, b"", 5)) == []
    assert peer.send(data(1, b"x"))[0] == Frame(RST_STREAM, 0, 1, struct.pack(">L", STREAM_CLOSED))


def test_R4_1_a_frame_is_answered_with_its_last_octet_and_refused_with_its_head() -> None:
    octets = settings()
    for at in range(1, len(octets)):
        peer = Peer()
        assert peer.send(octets[:at]) == []
        assert [item.flags for item in peer.send(octets[at:])] == [ACK]
    longest = Limits().frame_bytes_max
    for size in (longest, longest + 1):
        octets = frame(0x20, 0, 0, bytes(size))
        for at in (4, 8, 9):
            peer = Peer(Limits())
            answer = peer.send(octets[:at]) + peer.send(octets[at:10])
            assert [item.kind for item in answer] == [GOAWAY] * (size - longest)


def test_R5_1_1_an_id_closes_the_idle_ones_below() -> None:
    peer = Peer()
    peer.send(get(9))
    assert peer.send(get(5))[0].kind == GOAWAY


def test_R5_1_2_a_stream_counts_until_it_is_gone() -> None:
    peer = Peer()
    peer.send(get(1), get(3), get(5))
    assert peer.send(get(7))[0].word == REFUSED_STREAM
    peer.answer(1)
    peer.send()
    assert peer.send(get(9)) == []
    peer.connection.lingering += 1  # a handler of a stream that is gone
    peer.answer(3)
    peer.send()
    assert peer.send(get(11))[0].word == REFUSED_STREAM
    peer.connection.lingering -= 1
    assert peer.send(get(13)) == []
    assert peer.connection.abuse.refusals == ["streams", "streams"]


def test_R5_1_2_bodies_of_refused_streams_are_discarded() -> None:
    peer = Peer()
    peer.send(get(1), get(3), get(5))
    assert [item.kind for item in peer.send(get(7, end=False), data(7, b"x"), headers(7, b"", 5))] == [
        RST_STREAM
    ]


# -- R5.5 and others: what is tolerated --------------------------------------------------------------

TOLERATED = {
    "R5.5 unknown frame type": frame(0xFF, 0xFF, 1, b"whatever"),
    "R5.5 unknown flags": frame(PING, 0xFE, 0, bytes(8)),
    "R5.5 unknown settings": settings((0xFE03, 1), (0, 9), (0xFFFF, MAX)),
    "R4.1 reserved bit of a stream id": frame(WINDOW_UPDATE, 0, 1 << 31, struct.pack(">L", 5)),
    "R6.9 reserved bit of an increment": frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", 1 << 31 | 5)),
    "R6.3 PRIORITY on an idle stream": priority(9, 7),
    "R6.7 PING acknowledgement unasked": ping(flags=ACK),
    "R6.5 ENABLE_PUSH": settings((2, 1), (2, 0), (3, 0), (6, 0)),
    "R6.5.2 extremes": settings((4, MAX), (4, 0), (5, 16384), (5, (1 << 24) - 1), (1, 0xFFFFFFFF)),
    "R6.1 empty DATA with END_STREAM": get(1, end=False) + data(1, end=True),
    "R6.1 padding that fills the frame": get(1, end=False) + frame(DATA, PADDED, 1, b"\x02\x00\x00"),
    "R6.2 padding that fills the frame": frame(HEADERS, PADDED | 5, 1, b"\x02" + GET + bytes(2)),
    "R6.10 an empty last CONTINUATION": headers(1, GET, 1) + continuation(1, b""),
    "R8.1 request trailers": get(1, end=False) + headers(1, block([(b"a", b"b")]), 5),
    "R8.1 empty trailers": get(1, end=False) + headers(1, b"", 5),
    "R6.8 a client's GOAWAY": frames.goaway(0, 0, "bye") + get(1),
    "R8.1.1 content-length that is right": length_post(b"3")
    + data(1, b"ab")
    + frame(DATA, PADDED | END_STREAM, 1, b"\x01c\x00"),
    "R8.1.1 content-length of 0": length_post(b"0", end=True),
    "H4.2 table size updates": headers(1, b"\x20\x3f\xe1\x1f" + GET, 5),
}  # fmt: skip


@pytest.mark.parametrize("what", TOLERATED)
def test_tolerated(what: str) -> None:
    peer = Peer()
    answer = peer.send(TOLERATED[what])
    assert not peer.connection.ended
    assert all(item.kind in (SETTINGS, PING) and item.flags == ACK for item in answer)
    assert not any(event[0] == "cancel" for event in peer.events)


def test_R3_4_headers_before_our_settings_are_acknowledged() -> None:
    peer = Peer(greeted=False)
    assert [item.kind for item in peer.send(HELLO, get(1))] == [SETTINGS]
    assert peer.events == [("request", 1, b"/", True)]


def test_R6_8_the_streams_of_a_client_that_leaves_go_on() -> None:
    peer = Peer()
    peer.send(get(1), frames.goaway(0, NO_ERROR))
    assert peer.connection.peer_leaves
    peer.answer(1)
    assert peer.send()[0].kind == HEADERS


def test_R6_5_3_settings_are_acknowledged_one_by_one() -> None:
    assert peer_acks(settings((4, 1)), settings(), settings((4, 3), (4, 5))) == 3


def peer_acks(*parts: bytes) -> int:
    return sum(item.kind == SETTINGS and item.flags == ACK for item in Peer().send(*parts))


def test_R5_4_1_the_answers_before_a_fault_are_sent() -> None:
    answer = Peer().send(ping(), get(1), data(0))
    assert [item.kind for item in answer] == [PING, GOAWAY]
    assert answer[1].word == 1


def test_R4_3_blocks_that_need_no_continuation_and_such_that_do_are_alike() -> None:
    whole, cut = Peer(), Peer()
    whole.send(headers(1, GET, 5))
    cut.send(headers(1, GET[:1], 1), continuation(1, GET[1:4], last=False), continuation(1, GET[4:]))
    assert whole.events == cut.events == [("request", 1, b"/", True)]
    assert CONTINUATION == 9


def test_R10_5_1_far_above_the_list_limit() -> None:
    peer = Peer(Limits(header_list_bytes_max=100))
    many = block([*pseudo(b"/"), *[(b"name", bytes(b"v" * 60))] * 4])
    assert peer.send(headers(1, many))[0].kind == GOAWAY
    assert peer.connection.fault is not None
    assert (peer.connection.fault.code, peer.connection.fault.limit) == (
        ENHANCE_YOUR_CALM,
        "header_list_bytes",
    )


def test_large_heads_are_not_kept_for_the_next_request() -> None:
    one = Door(Limits())
    for at, stream in enumerate(range(1, 401, 2)):
        encoded = block((*pseudo(b"/"), (b"x-long", b"%05d" % at + b"v" * 15_000)))
        one.receive(headers(stream, encoded, END_HEADERS | END_STREAM), hello=at == 0)
    kept = one.connection.blocks
    assert not kept.said
    assert sum(len(value) for said in kept._heads for _, value, *_ in said) < 1 << 14


@pytest.mark.parametrize("knows", [False, True])
def test_R6_5_3_settings_bind_once_they_are_acknowledged(knows: bool) -> None:
    """A client may call before it has read them: until then its header table has the default size."""
    peer = Peer(Limits(header_table_bytes=100), greeted=False)
    assert [item.kind for item in peer.send(HELLO)] == [SETTINGS]
    table = hpack.size_update(4096) + hpack.insert(b"a", b"b" * 100)
    if knows:
        peer.send(frames.SETTINGS_ACK)
        peer.send(headers(1, table + GET, END_HEADERS | END_STREAM))
        assert peer.reason == "table size update to 4096, above 100 (R4.3)"
        return
    peer.send(headers(1, GET + hpack.insert(b"a", b"b" * 100)))
    peer.send(headers(3, GET + hpack.indexed(62)))
    assert peer.reason == ""
    peer.send(frames.SETTINGS_ACK, headers(5, hpack.size_update(100) + GET))
    assert peer.reason == ""
    peer.send(headers(7, GET + hpack.indexed(62)))
    assert "past the table" in peer.reason
