"""Flow control (R6.9) and settings (R6.5.2) both ways, and the order in which streams take turns."""

from __future__ import annotations

import struct

import hpack as oracle
import pytest

from tests.common.door.support.model import (
    GREETING,
    NOW_S,
    Exchanges,
    Frame,
    data,
    frames_of,
    get,
    opened,
    rst,
)
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.outbound import BACKLOG_BYTES, NO_TRAILERS, OK, TINY_WINDOW_BYTES, TURN_BYTES
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    WINDOW_UPDATE,
    frame,
)

WINDOW = 65_535


class Sender:
    """A connection whose streams send what the test says."""

    def __init__(self, *opening: bytes, streams: int = 1) -> None:
        self.above = Exchanges()
        self.budget = Budget()
        self.connection = Connection(lambda _: self.above, Limits(), self.budget, NOW_S)
        self.send(GREETING, *opening, *(get(2 * number + 1) for number in range(streams)))

    def send(self, *parts: bytes, bytes_max: int = 1 << 30) -> list[Frame]:
        self.connection.receive(b"".join(parts), NOW_S)
        return self.produce(bytes_max)

    def produce(self, bytes_max: int = 1 << 30) -> list[Frame]:
        self.connection.produce(bytes_max)
        octets = b"".join(self.connection.outbound.out)
        self.connection.outbound.out.clear()
        return frames_of(octets)

    def queue(self, stream_id: int, body: bytes) -> None:
        self.connection.outbound.data(self.above.streams[stream_id], body)

    def end(self, stream_id: int, block: bytes = NO_TRAILERS) -> None:
        stream = self.above.streams[stream_id]
        if self.connection.outbound.end(stream, block):
            self.connection.finished(stream)


def settings(**values: int) -> bytes:
    names = {"table": 1, "window": 4, "frame": 5}
    return frames.settings({names[name]: value for name, value in values.items()})


def sizes(found: list[Frame]) -> list[tuple[int, int]]:
    return [(item.stream, len(item.payload)) for item in found if item.kind == DATA]


def sent(found: list[Frame]) -> int:
    return sum(len(item.payload) for item in found if item.kind == DATA)


# -- what we send ------------------------------------------------------------------------------------


def test_R6_9_1_no_more_than_the_stream_window() -> None:
    peer = Sender(settings(window=10))
    peer.queue(1, bytes(25))
    peer.end(1)
    assert sizes(peer.produce()) == [(1, 10)]
    assert sizes(peer.send(frames.window_update(1, 3))) == [(1, 3)]
    last = peer.send(frames.window_update(1, 100))
    assert [(item.flags, len(item.payload)) for item in last] == [(0, 12), (END_STREAM, 0)]
    assert not peer.connection.streams
    assert peer.connection.outbound.queued == peer.budget.send_queued == 0


def test_R6_9_1_no_more_than_the_connection_window() -> None:
    peer = Sender(settings(window=1 << 20), streams=2)
    peer.queue(1, bytes(WINDOW - 5))
    peer.queue(3, bytes(100))
    assert sent(peer.produce()) == WINDOW
    assert sizes(peer.send(frames.window_update(1, 1000), frames.window_update(3, 1000))) == []
    assert not peer.connection.outbound.can_produce
    assert sizes(peer.send(frames.window_update(0, 1))) == [(3, 1)]
    assert peer.send(frames.window_update(0, 1), bytes_max=0) == []
    assert peer.connection.outbound.can_produce
    assert sizes(peer.send(frames.window_update(0, 93))) == [(3, 94)]


def test_R6_9_2_settings_never_touch_the_connection_window() -> None:
    peer = Sender()
    peer.queue(1, bytes(WINDOW + 10))
    assert sent(peer.produce()) == WINDOW
    assert sizes(peer.send(settings(window=WINDOW + 1000))) == []
    assert sizes(peer.send(frames.window_update(0, 4))) == [(1, 4)]


def test_R6_9_2_a_window_may_become_negative() -> None:
    peer = Sender(settings(window=100))
    peer.queue(1, bytes(200))
    assert sent(peer.produce()) == 100
    assert sizes(peer.send(settings(window=30))) == []  # -70
    assert sizes(peer.send(frames.window_update(1, 70))) == []  # 0
    assert sizes(peer.send(frames.window_update(1, 1))) == [(1, 1)]
    assert sizes(peer.send(settings(window=32))) == [(1, 2)]


def test_R6_9_2_a_change_holds_for_open_and_for_new_streams() -> None:
    peer = Sender(settings(window=5), streams=2)
    peer.queue(1, bytes(9))
    assert sizes(peer.produce()) == [(1, 5)]
    assert sizes(peer.send(settings(window=7), get(5))) == [(1, 2)]
    peer.queue(3, bytes(9))
    peer.queue(5, bytes(9))
    assert sizes(peer.produce()) == [(3, 7), (5, 7)]


def test_R6_9_a_window_smaller_than_a_grpc_prefix_cuts_it() -> None:
    peer = Sender(settings(window=1))
    stream = peer.above.streams[1]
    outbound = peer.connection.outbound
    assert not outbound.reply(stream, b"hi")
    body = b""
    found = peer.produce()
    for _ in range(8):
        body += b"".join(item.payload for item in found if item.kind == DATA)
        assert all(len(item.payload) == 1 for item in found if item.kind == DATA)
        found = peer.send(frames.window_update(1, 1))
    assert body == b"\x00\x00\x00\x00\x02hi"
    assert not peer.connection.streams


def test_R6_9_a_reply_that_fits_the_windows_exactly_is_not_queued() -> None:
    for window, whole in ((7, True), (6, False)):
        peer = Sender(settings(window=window), opened(1, "x"), streams=0)
        outbound = peer.connection.outbound
        assert not outbound.reply(peer.above.streams[1], b"")
        peer.produce()  # our fields are in the peer's table now
        peer.send(get(3))
        assert outbound.reply(peer.above.streams[3], b"hi") is whole
        assert outbound.queued == (0 if whole else 7)


def test_R6_9_a_reply_that_fits_the_connection_window_exactly_is_not_queued() -> None:
    for window, whole in ((7, True), (6, False)):
        peer = Sender(settings(window=1 << 20), opened(1, "x"), streams=0)
        assert not peer.connection.outbound.reply(peer.above.streams[1], bytes(WINDOW - window - 5))
        peer.produce()
        counted = peer.connection.outbound.data_frames
        peer.send(get(3))
        assert peer.connection.outbound.reply(peer.above.streams[3], b"hi") is whole
        found = peer.produce()
        assert [item.payload for item in found if item.kind == DATA] == [b"\0\0\0\0\2hi"[:window]]
        assert peer.connection.outbound.data_frames == counted + 1
        peer.send(get(5))
        assert not peer.connection.outbound.reply(peer.above.streams[5], b""), "nothing is left of it"


@pytest.mark.parametrize("message", [b"", b"x", b"hi"])
def test_a_whole_reply_is_three_frames(message: bytes) -> None:
    peer = Sender(streams=2)
    for stream in (1, 3):
        peer.connection.outbound.reply(peer.above.streams[stream], message)
        head, body, end = peer.produce()
        assert (head.kind, head.flags, head.stream) == (HEADERS, END_HEADERS, stream)
        assert body == Frame(DATA, 0, stream, bytes(4) + bytes((len(message),)) + message)
        assert (end.kind, end.flags, end.stream) == (HEADERS, END_HEADERS | END_STREAM, stream)


def test_R6_9_windows_of_a_stream_that_has_nothing_to_send_or_waits_already_change_no_turn() -> None:
    peer = Sender(settings(window=1 << 24, frame=1 << 20), frames.window_update(0, 1 << 24), streams=2)
    peer.send(frames.window_update(1, 1), bytes_max=0)
    assert not peer.connection.outbound.can_produce
    for stream in (1, 3):
        peer.queue(stream, bytes(4 * TURN_BYTES))
    peer.send(*[frames.window_update(1, 1)] * 3, bytes_max=0)
    assert [stream for stream, _ in sizes(peer.produce())] == [1, 3] * 4


def test_R4_2_frames_are_no_longer_than_the_peer_takes() -> None:
    peer = Sender(settings(window=1 << 20), frames.window_update(0, 1 << 20))
    peer.queue(1, bytes(40_000))
    assert sizes(peer.produce()) == [(1, 16384), (1, 16384), (1, 40_000 - 2 * 16384)]
    peer.send(settings(frame=30_000))
    peer.queue(1, bytes(40_000))
    assert sizes(peer.produce()) == [(1, 30_000), (1, 10_000)]
    peer.send(settings(frame=16384))
    peer.queue(1, bytes(20_000))
    assert sizes(peer.produce()) == [(1, 16384), (1, 20_000 - 16384)]


@pytest.mark.parametrize("size", [16384, 16385, 2 * 16384, 2 * 16384 + 1])
def test_R4_3_a_block_longer_than_a_frame_is_cut(size: int) -> None:
    peer = Sender()
    peer.connection.outbound.only(peer.above.streams[1], bytes(size))
    found = peer.produce()
    more = (size - 1) // 16384
    assert [item.kind for item in found] == [HEADERS] + [CONTINUATION] * more
    assert [item.flags & END_HEADERS for item in found] == [0] * more + [END_HEADERS]
    assert [item.flags & END_STREAM for item in found] == [END_STREAM] + [0] * more
    assert b"".join(item.payload for item in found) == bytes(size)


def test_streams_take_turns() -> None:
    peer = Sender(settings(window=1 << 24, frame=1 << 20), frames.window_update(0, 1 << 24), streams=3)
    for stream in (1, 3, 5):
        peer.queue(stream, bytes(3 * TURN_BYTES))
    turns = [stream for stream, _ in sizes(peer.produce())]
    assert turns == [1, 3, 5] * 3


def test_produce_stops_at_about_what_is_asked_for() -> None:
    peer = Sender(settings(window=1 << 24), frames.window_update(0, 1 << 24), streams=2)
    peer.queue(1, bytes(1 << 20))
    assert sent(peer.produce(1)) == TURN_BYTES
    assert peer.connection.outbound.can_produce


def test_a_stream_without_a_window_blocks_no_other() -> None:
    peer = Sender(settings(window=0), streams=2)
    peer.queue(1, b"x")
    peer.queue(3, b"y")
    assert sizes(peer.send(frames.window_update(3, 1))) == [(3, 1)]


def test_a_tiny_window_is_left_to_grow_behind_a_backlog() -> None:
    peer = Sender(settings(window=0), frames.window_update(0, 1 << 20))
    peer.queue(1, bytes(BACKLOG_BYTES + 1))
    assert sizes(peer.send(frames.window_update(1, TINY_WINDOW_BYTES - 1))) == []
    assert sizes(peer.send(frames.window_update(1, 1))) == [(1, TINY_WINDOW_BYTES)]
    assert sizes(peer.send(frames.window_update(1, 1))) == [(1, 1)], "no backlog any more"


def test_a_small_queue_takes_a_tiny_window() -> None:
    peer = Sender(settings(window=0), frames.window_update(0, 1 << 20))
    peer.queue(1, bytes(BACKLOG_BYTES))
    assert sizes(peer.send(frames.window_update(1, 1))) == [(1, 1)]


def test_a_reply_of_nothing_ends_at_once() -> None:
    peer = Sender()
    peer.end(1)
    assert peer.produce() == [Frame(DATA, END_STREAM, 1, b"")]


def test_a_stream_that_is_reset_loses_its_turn() -> None:
    peer = Sender(streams=2)
    peer.queue(1, b"x")
    peer.queue(3, b"y")
    assert sizes(peer.send(rst(1))) == [(3, 1)]


def test_queued_data_of_a_stream_that_is_reset_is_dropped() -> None:
    peer = Sender(settings(window=3), streams=2)
    peer.queue(1, bytes(10))
    peer.queue(3, bytes(10))
    peer.produce()
    assert peer.send(rst(1)) == []
    assert peer.connection.outbound.queued == peer.budget.send_queued == 7
    assert sizes(peer.send(frames.window_update(1, 50), frames.window_update(3, 50))) == [(3, 7)]


@pytest.mark.parametrize("end", [OK, NO_TRAILERS, hpack.literal(b"grpc-status", b"4")])
def test_what_ends_a_reply_waits_behind_its_data(end: bytes) -> None:
    peer = Sender(settings(window=2))
    peer.queue(1, b"abc")
    peer.end(1, end)
    assert sizes(peer.produce()) == [(1, 2)]
    last = peer.send(frames.window_update(1, 1))
    assert last[0] == Frame(DATA, 0, 1, b"c")
    assert last[1].flags & END_STREAM
    assert last[1].kind == (DATA if end is NO_TRAILERS else HEADERS)


def test_H4_2_trailers_behind_a_queue_are_encoded_when_they_are_sent() -> None:
    """The table changes while an OK waits: blocks refer to what the peer has when they arrive."""
    peer = Sender(settings(window=1), streams=3)
    outbound, streams = peer.connection.outbound, peer.above.streams
    decoder = oracle.Decoder()
    seen: dict[int, list[tuple[bytes, bytes]]] = {}

    def take(found: list[Frame]) -> None:
        for item in found:
            if item.kind == HEADERS:
                seen.setdefault(item.stream, []).extend(decoder.decode(item.payload, raw=True))

    for stream in (1, 3):
        assert not outbound.reply(streams[stream], b"ab")
    take(peer.produce())
    for table in (0, 4096, 100, 104, 4096):
        decoder.max_allowed_table_size = table
        take(peer.send(settings(table=table)))
    take(peer.send(frames.window_update(1, 6)))
    assert not outbound.reply(streams[5], b"")
    take(peer.send(frames.window_update(3, 6), frames.window_update(5, 6)))
    good = [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"0")]
    assert seen == {1: good, 3: good, 5: good}
    assert outbound.blocks.constant


# -- what we let the peer send -----------------------------------------------------------------------


def test_R6_9_half_a_stream_window_is_given_back_at_once() -> None:
    peer = Sender(streams=0)
    peer.send(get(1, end=False))
    stream = peer.above.streams[1]
    half = Limits().stream_window_bytes // 2
    peer.connection.credit(stream, half - 1)
    assert peer.produce() == []
    peer.connection.credit(stream, 1)
    assert peer.produce() == [Frame(WINDOW_UPDATE, 0, 1, struct.pack(">L", half))]
    assert (stream.owed, stream.receive_window) == (0, Limits().stream_window_bytes + half)


def test_R6_9_padding_is_given_back() -> None:
    peer = Sender(streams=0)
    peer.send(get(1, end=False))
    stream = peer.above.streams[1]
    peer.send(frame(DATA, PADDED, 1, b"\x05abc" + bytes(5)))
    assert (stream.receive_window, stream.owed) == (Limits().stream_window_bytes - 9, 6)
    assert peer.connection.outbound.data_frames == 1


def test_R6_9_the_connection_window_is_restored_at_half() -> None:
    peer = Sender(streams=0)
    peer.send(get(1, end=False))
    stream = peer.above.streams[1]
    half = Limits().connection_window_bytes // 2
    found: list[Frame] = []
    for _ in range(half // 16384):
        stream.receive_window = 1 << 20
        found += peer.send(data(1, bytes(16384)))
    assert found == []
    assert peer.send(data(1, b"x")) == [Frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", half + 1))]


def test_R6_9_a_request_that_ended_gives_no_window_back() -> None:
    peer = Sender(streams=0)
    peer.send(get(1, end=False), data(1, b"x", end=True))
    peer.connection.credit(peer.above.streams[1], 1 << 20)
    assert peer.produce() == []
    peer.send(get(3, end=False), rst(3))
    peer.connection.credit(peer.above.streams[3], 1 << 20)
    assert peer.produce() == []
