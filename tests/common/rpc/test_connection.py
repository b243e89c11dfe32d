"""A client's connection against h2 as the server, which says what breaks the protocol."""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.rpc.support.replies import END, GOOD_HEAD, Heard, framed, reply
from tidb_binlog import rpc
from tidb_binlog.http2 import frames
from tidb_binlog.rpc.call_headers import RequestBlocks
from tidb_binlog.rpc.connection import PING_FRAME, STREAM_WINDOW_BYTES, Call, Connection
from tidb_binlog.rpc.message_framing import PREFIX_BYTES

PATH = "/t.S/Call"
HEAD = [(":status", "200"), ("content-type", "application/grpc")]
SIZES = st.one_of(st.integers(0, 100), st.integers(10_000, 90_000), st.integers(1 << 20, 5 << 20))


@dataclass
class Asked:
    """What the server has of a stream."""

    body: bytearray = field(default_factory=bytearray)
    reply: bytearray = field(default_factory=bytearray)
    is_complete: bool = False
    is_headed: bool = False


class World:
    """The connection, an h2 server that echoes, and octets on their way, cut anywhere."""

    def __init__(self, rng: random.Random, **values: int) -> None:
        self.rng = rng
        self.connection = Connection("t:1", secure=False)
        self.server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.server.local_settings = h2.settings.Settings(
            client=False,
            initial_values={getattr(h2.settings.SettingCodes, key): values[key] for key in values},
        )
        self.server.max_inbound_frame_size = self.server.local_settings.max_frame_size
        self.server.initiate_connection()
        self.up, self.down = bytearray(), bytearray()
        self.asked: dict[int, Asked] = {}
        self.resets: dict[int, int] = {}

    def step(self) -> bool:
        """Something happens; False if nothing is left to."""
        self.connection.produce(self.rng.choice((1, 5_000, 1 << 18)))
        self.up += b"".join(self.connection.out)
        self.connection.out.clear()
        self._serve()
        self.down += self.server.data_to_send()
        moved = False
        if self.up:
            size = self.rng.randrange(1, len(self.up) + 1)
            for event in self.server.receive_data(bytes(self.up[:size])):
                self._on(event)
            del self.up[:size]
            moved = True
        if self.down:
            size = self.rng.choice((1, 9, 100, len(self.down), len(self.down)))
            self.connection.receive(bytes(self.down[:size]))
            del self.down[:size]
            moved = True
        return moved or bool(self.connection.out) or self.connection.can_produce

    def run(self) -> None:
        while self.step():
            pass

    def _on(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self.asked[event.stream_id] = Asked()
            case h2.events.DataReceived():
                self.asked[event.stream_id].body += event.data
                self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.asked[event.stream_id].is_complete = True
            case h2.events.StreamReset():
                self.resets[event.stream_id] = int(event.error_code)
                self.asked.pop(event.stream_id, None)

    def _serve(self) -> None:
        for stream_id, asked in list(self.asked.items()):
            if not asked.is_headed:
                asked.is_headed = True
                self.server.send_headers(stream_id, HEAD)
            asked.reply += asked.body
            asked.body.clear()
            room = min(
                self.server.local_flow_control_window(stream_id),
                self.server.max_outbound_frame_size,
                len(asked.reply),
            )
            if room > 0:
                padding = self.rng.choice((None, None, 3)) if room > 4 else None
                room -= 4 if padding else 0
                self.server.send_data(stream_id, bytes(asked.reply[:room]), pad_length=padding)
                del asked.reply[:room]
            if asked.is_complete and not asked.reply:
                self.server.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
                del self.asked[stream_id]

    def call(self, *messages: bytes, ends: bool = True) -> tuple[Call, Heard]:
        heard = Heard()
        call = self.connection.begin(heard, PATH, 5.0)
        for message in messages:
            self.connection.send(call, message)
        if ends:
            self.connection.end_requests(call)
        return call, heard

    def take(self, call: Call, heard: Heard) -> None:
        while heard.sizes:
            self.connection.taken(call, heard.sizes.pop())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.lists(SIZES, max_size=4), min_size=1, max_size=5),
    st.sampled_from([1, 100, 65_535, 1 << 20]),
    st.sampled_from([1 << 14, 1 << 20]),
    st.sampled_from([0, 4096]),
)
def test_what_is_sent_comes_back(
    seed: int, calls: list[list[int]], window: int, frame_max: int, table: int
) -> None:
    rng = random.Random(seed)
    if window < 1000:  # frames of an octet each
        calls = [[size % 200 for size in sizes] for sizes in calls]
    world = World(rng, INITIAL_WINDOW_SIZE=window, MAX_FRAME_SIZE=frame_max, HEADER_TABLE_SIZE=table)
    if window < frames.DEFAULT_WINDOW:  # h2 takes no window that shrinks below what was sent
        world.run()
    running = []
    for sizes in calls:
        messages = [rng.randbytes(size) for size in sizes]
        running.append((messages, *world.call(*messages)))
        for _ in range(rng.randrange(4)):
            world.step()
    while world.step() or any(heard.sizes for _, _, heard in running):
        for _, call, heard in running:
            world.take(call, heard)
    for messages, call, heard in running:
        assert (heard.messages, heard.ends) == (messages, [(rpc.OK, "", True)])
        assert heard.sent == bool(messages)
        assert call.id not in world.resets
    assert not world.connection.calls


def greeted(**values: int) -> World:
    world = World(random.Random(1), **values)
    world.run()
    return world


def test_a_reader_that_takes_nothing_holds_its_own_stream_up_alone() -> None:
    world = greeted()
    message = bytes(1 << 20)
    slow, unread = world.call(*[message] * 9)
    quick, read = world.call(*[message] * 9)
    while world.step() or read.sizes:
        world.take(quick, read)
    assert len(read.messages) == 9
    assert read.ends == [(rpc.OK, "", True)]
    assert 2 * STREAM_WINDOW_BYTES >= sum(unread.sizes) >= STREAM_WINDOW_BYTES // 2
    while world.step() or unread.sizes:
        world.take(slow, unread)
    assert (len(unread.messages), unread.ends) == (9, [(rpc.OK, "", True)])


def test_a_message_larger_than_the_window_arrives() -> None:
    world = greeted()
    message = random.Random(1).randbytes(3 * STREAM_WINDOW_BYTES)
    _, heard = world.call(message)
    world.run()
    assert heard.messages == [message]


def test_a_call_that_is_given_up_is_reset_and_says_no_more() -> None:
    world = greeted()
    call, heard = world.call(b"a", ends=False)
    world.run()
    assert world.connection.cancel(call) is True
    assert world.connection.cancel(call) is False
    world.run()
    assert (world.resets, heard.ends, world.connection.calls) == ({call.id: frames.CANCEL}, [], {})


def test_a_status_ends_a_call_whose_requests_go_on() -> None:
    world = greeted()
    call, heard = world.call(b"a", ends=False)
    world.run()
    world.server.send_headers(call.id, [("grpc-status", "8"), ("grpc-message", "enough")], end_stream=True)
    del world.asked[call.id]
    world.run()
    assert (heard.ends, world.resets) == ([(8, "enough", True)], {call.id: frames.NO_ERROR})


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (frames.REFUSED_STREAM, (rpc.UNAVAILABLE, False)),
        (frames.CANCEL, (rpc.CANCELLED, True)),
        (frames.ENHANCE_YOUR_CALM, (rpc.RESOURCE_EXHAUSTED, True)),
        (frames.INTERNAL_ERROR, (rpc.INTERNAL, True)),
    ],
)
def test_a_reset_says_whether_the_call_was_begun(code: int, end: tuple[int, bool]) -> None:
    world = greeted()
    call, heard = world.call(b"a", ends=False)
    world.run()
    world.server.reset_stream(call.id, code)
    del world.asked[call.id]
    world.run()
    assert [(found, is_processed) for found, _, is_processed in heard.ends] == [end]


def test_who_leaves_finishes_what_it_has_begun() -> None:
    world = greeted()
    first, heard = world.call(b"a", ends=False)
    world.run()
    late, unheard = world.call(b"b")
    world.connection.receive(frames.goaway(first.id, frames.NO_ERROR, "bye"))
    assert unheard.ends == [(rpc.UNAVAILABLE, "the peer leaves: code 0 bye", False)]
    assert (world.connection.takes_calls, world.connection.fault, heard.ends) == (False, "", [])
    assert late.id not in world.connection.calls


def test_a_lost_connection_ends_all_calls_once() -> None:
    world = greeted()
    ends = [world.call(b"a")[1].ends for _ in range(3)]
    world.connection.lose("cut")
    world.connection.lose("again")
    assert ends == [[(rpc.UNAVAILABLE, "cut", True)]] * 3


def test_pings_and_settings_are_answered() -> None:
    world = greeted()
    world.connection.out.append(PING_FRAME)
    world.run()
    world.server.ping(b"12345678")
    world.down += world.server.data_to_send()
    world.connection.receive(bytes(world.down))
    assert b"".join(world.connection.out) == frames.frame(frames.PING, frames.ACK, 0, b"12345678")


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_the_peer_says_how_many_calls_run(limit: int) -> None:
    world = greeted(MAX_CONCURRENT_STREAMS=limit)
    for _ in range(limit):
        assert world.connection.has_room
        world.call()
    assert not world.connection.has_room


@pytest.mark.parametrize(
    ("octets", "code", "text"),
    [
        (
            reply(1, (b":status", b"404"), (b"content-type", b"text/html")),
            rpc.UNIMPLEMENTED,
            "HTTP status 404",
        ),
        (GOOD_HEAD + reply(1, (b"x", b"y")), rpc.INTERNAL, "trailers without END_STREAM"),
        (GOOD_HEAD + frames.frame(frames.DATA, frames.END_STREAM, 1), rpc.UNKNOWN, "without a status"),
        (GOOD_HEAD + frames.frame(frames.DATA, 0, 1, b"\2\0\0\0\0"), rpc.INTERNAL, "message flag 2"),
        (
            GOOD_HEAD
            + frames.frame(frames.DATA, 0, 1, b"\0\0\0\0\5ab")
            + reply(1, (b"grpc-status", b"0"), flags=END),
            rpc.INTERNAL,
            "ended inside a message",
        ),
        (
            GOOD_HEAD + frames.frame(frames.DATA, 0, 1, framed(b"no gzip", 1)),
            rpc.INTERNAL,
            "cannot be unpacked",
        ),
        (
            reply(1, *[(b"x%d" % number, b"y" * 900) for number in range(80)]),
            rpc.RESOURCE_EXHAUSTED,
            "header",
        ),
    ],
)
def test_a_reply_that_is_none_costs_its_call(octets: bytes, code: int, text: str) -> None:
    world = greeted()
    _, heard = world.call(b"a")
    _, other = world.call(b"b")
    world.connection.receive(octets)
    assert [end[0] for end in heard.ends] == [code]
    assert text in heard.ends[0][1]
    assert (other.ends, world.connection.fault) == ([], "")


def test_an_interim_response_and_compressed_messages() -> None:
    world = greeted()
    _, heard = world.call(b"a")
    data = framed(gzip.compress(b"a" * 100_000), 1) + framed(b"b")
    world.connection.receive(reply(1, (b":status", b"103")) + GOOD_HEAD)
    world.connection.receive(frames.frame(frames.DATA, 0, 1, data))
    world.connection.receive(reply(1, (b"grpc-status", b"0"), flags=END))
    assert (heard.messages, heard.ends) == ([b"a" * 100_000, b"b"], [(rpc.OK, "", True)])
    assert sum(heard.sizes) == len(data) == len(gzip.compress(b"a" * 100_000)) + 1 + 2 * PREFIX_BYTES


SETTINGS = frames.settings({})


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (frames.frame(frames.PING, 0, 0, bytes(8)), "first frame is not SETTINGS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "longer than SETTINGS_MAX_FRAME_SIZE"),
        (SETTINGS + frames.frame(frames.DATA, 0, 1, b"x"), "in front of HEADERS"),
        (SETTINGS + frames.frame(frames.DATA, 0, 3, b"x"), "idle stream 3"),
        (SETTINGS + frames.frame(frames.DATA, 0, 2, b"x"), "idle stream 2"),
        (SETTINGS + frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), "PUSH_PROMISE"),
        (SETTINGS + frames.frame(frames.CONTINUATION, 0, 1), "CONTINUATION without HEADERS"),
        (SETTINGS + frames.frame(frames.HEADERS, 0, 1) + SETTINGS, "inside a header block"),
        (
            SETTINGS
            + frames.frame(frames.HEADERS, 0, 1)
            + frames.frame(frames.CONTINUATION, 0, 1, bytes(40_000)) * 2,
            "without end",
        ),
        (SETTINGS + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff"), "integer"),
        (SETTINGS + frames.frame(frames.HEADERS, 0x24, 1, b"\0\0"), "too short for priority"),
        (SETTINGS + frames.frame(frames.RST_STREAM, 0, 1, b"\0"), "RST_STREAM of another length"),
        (SETTINGS + frames.frame(frames.RST_STREAM, 0, 9, bytes(4)), "idle stream 9"),
        (SETTINGS + frames.frame(frames.PING, 0, 0, b"x"), "PING of another length"),
        (SETTINGS + frames.frame(frames.PING, 0, 1, bytes(8)), "of the connection on a stream"),
        (SETTINGS + frames.frame(frames.GOAWAY, 0, 0, b"x"), "GOAWAY shorter"),
        (SETTINGS + frames.frame(frames.SETTINGS, 0, 0, b"x"), "multiple of 6"),
        (frames.settings({frames.MAX_FRAME_SIZE: 1}), "SETTINGS_MAX_FRAME_SIZE"),
        (frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), "SETTINGS_INITIAL_WINDOW_SIZE"),
        (SETTINGS + frames.frame(frames.WINDOW_UPDATE, 0, 0, b"x"), "WINDOW_UPDATE of another length"),
        (SETTINGS + frames.window_update(0, frames.WINDOW_MAX), "connection window above"),
        (SETTINGS + frames.window_update(1, frames.WINDOW_MAX), "stream window above"),
        (
            SETTINGS + GOOD_HEAD + frames.frame(frames.DATA, 0, 1, bytes(1 << 20)) * 5,
            "beyond the stream window",
        ),
    ],
)
def test_who_breaks_the_protocol_loses_the_connection(octets: bytes, reason: str) -> None:
    for cut in (len(octets), 1 if len(octets) < 100_000 else 10_000):
        connection, heard = Connection("t:1", secure=False), Heard()
        connection.begin(heard, PATH, None)
        connection.out.clear()
        for at in range(0, len(octets), cut):
            connection.receive(octets[at : at + cut])
        assert reason in connection.fault
        assert [end[0] for end in heard.ends] == [rpc.UNAVAILABLE]
        last: Any = connection.out[-1]
        assert last[3] == frames.GOAWAY
        connection.receive(SETTINGS)  # nothing is read any more
        assert connection.out[-1] is last


def test_long_header_blocks_are_continued() -> None:
    world = greeted(MAX_FRAME_SIZE=1 << 14)
    heard = Heard()
    call = world.connection.begin(heard, "/" + "x" * 40_000, None)
    out = b"".join(world.connection.out)
    assert [out[3], call.id] == [frames.HEADERS, 1]
    assert out[frames.HEAD_BYTES + (1 << 14) + 3] == frames.CONTINUATION


def test_a_new_connection_takes_as_many_calls_as_a_peer_that_says_nothing_must_take() -> None:
    connection = Connection("t:1", secure=False)
    assert connection.takes_calls
    for _ in range(100):
        assert connection.has_room
        connection.begin(Heard(), PATH, None)
    assert not connection.has_room
    connection.receive(SETTINGS)
    assert connection.has_room


def test_stream_ids_end() -> None:
    connection = Connection("t:1", secure=False)
    connection._last_id = frames.STREAM_ID_MAX - 4
    assert connection.takes_calls
    call = connection.begin(Heard(), PATH, None)
    assert (call.id, connection.takes_calls) == (frames.STREAM_ID_MAX - 2, False)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_header_blocks_are_cut_where_frames_end(size: int) -> None:
    """One frame that is just full, and one octet more."""
    limit = frames.DEFAULT_FRAME_BYTES
    path = "/" + "x" * (limit - 400)
    path += "x" * (limit + size - 1 - len(RequestBlocks("t:1", secure=False).block(path, None)))
    connection = Connection("t:1", secure=False)
    connection.out.clear()
    connection.begin(Heard(), path, None)
    kinds = [(bytes(one)[3], bytes(one)[4]) for one in connection.out]
    whole, rest = (frames.HEADERS, frames.END_HEADERS), (frames.CONTINUATION, frames.END_HEADERS)
    assert kinds == ([whole] if size < 2 else [(frames.HEADERS, 0), rest])
