"""What a peer may cost: each limit is reached exactly, refuses one step beyond, and heals with time."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Callable

import pytest

from tests.common.door.support.model import (
    NOW_S,
    Door,
    asking,
    block,
    call_block,
    data,
    get,
    headers,
    opened,
    ping,
    prefixed,
    priority,
    pseudo,
    rst,
    unary,
)
from tidb_binlog.door.limits import Bucket, Budget, Limits
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import ACK, ENHANCE_YOUR_CALM, REFUSED_STREAM, frame
from tidb_binlog.rpc import service as codes


def greeted(limits: Limits | None = None, *, budget: Budget | None = None) -> Door:
    door = Door(limits, budget=budget)
    door.receive(hello=True)
    return door


# -- buckets -----------------------------------------------------------------------------------------


def test_a_bucket_empties_and_refills() -> None:
    bucket = Bucket(3, 2.0, NOW_S)
    assert [bucket.take(NOW_S) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(NOW_S + 0.49)
    assert bucket.take(NOW_S + 0.99)
    assert not bucket.take(NOW_S + 0.99)
    assert [bucket.take(NOW_S + 100) for _ in range(4)] == [True, True, True, False], "never above its burst"


def test_a_bucket_takes_back_what_was_earned() -> None:
    bucket = Bucket(2, 0.0, NOW_S)
    assert [bucket.take(NOW_S, returned) for returned in (0, 0, 1, 0.5, 0.5, 9, 0, 0)] == [
        True, True, True, False, False, True, True, False,
    ]  # fmt: skip


# -- frames that do nothing --------------------------------------------------------------------------

CALM = Limits(
    glitches_burst=5,
    glitches_per_s=1.0,
    resets_burst=5,
    resets_per_s=1.0,
    settings_burst=5,
    settings_per_s=1.0,
)


@dataclasses.dataclass
class Flood:
    limit: str
    before: bytes
    one: Callable[[int], bytes]  # the nth
    free: int = 0
    after_a_second: int = 1


FLOODS = {
    "empty DATA": Flood("glitches", opened(1, "Hold"), lambda n: data(1)),
    "DATA of an octet": Flood(
        "glitches", opened(1, "Hold"), lambda n: data(1, prefixed(bytes(99))[n : n + 1])
    ),
    "DATA of an octet, plain": Flood("glitches", headers(1, block(pseudo(b"/"))), lambda n: data(1, b"x")),
    "DATA of padding only": Flood(
        "glitches", opened(1, "Hold"), lambda n: frame(0, 8, 1, b"\x09" + bytes(9))
    ),
    "PRIORITY": Flood("glitches", b"", lambda n: priority(1)),
    "unknown frames": Flood("glitches", b"", lambda n: frame(0x1F, 0, n)),
    "WINDOW_UPDATE": Flood("glitches", b"", lambda n: frames.window_update(0, 1), free=10),
    "WINDOW_UPDATE of closed streams": Flood(
        "glitches", get(1), lambda n: frames.window_update(1, 1), free=14
    ),
    "SETTINGS acknowledgements": Flood("glitches", b"", lambda n: frames.SETTINGS_ACK),
    "PING answers": Flood("glitches", b"", lambda n: ping(flags=ACK)),
    "GOAWAY": Flood("glitches", b"", lambda n: frames.goaway(0, 0), free=1),
    "late small DATA": Flood("glitches", opened(1, "Gone"), lambda n: data(1, bytes(1023))),
    "late HEADERS": Flood("glitches", opened(1, "Gone"), lambda n: headers(1, b"", 5)),
    "SETTINGS": Flood("settings", b"", lambda n: frames.settings({}), free=-1),  # one greeted
    "rapid reset": Flood("resets", b"", lambda n: opened(2 * n + 1, "Park") + rst(2 * n + 1)),
    "MadeYouReset, WINDOW_UPDATE of 0": Flood(
        "resets", b"", lambda n: opened(2 * n + 1, "Park") + frames.window_update(2 * n + 1, 0)
    ),
    "MadeYouReset, window overflow": Flood(
        "resets", b"", lambda n: opened(2 * n + 1, "Park") + frames.window_update(2 * n + 1, 0x7FFFFFFF)
    ),
    "MadeYouReset, DATA after the end": Flood(
        "resets", b"", lambda n: unary(2 * n + 1, "Park", b"") + data(2 * n + 1)
    ),
    "MadeYouReset, bad trailers": Flood(
        "resets", b"", lambda n: opened(2 * n + 1, "Park") + headers(2 * n + 1, b"\x82", 5)
    ),
    "malformed requests": Flood("resets", b"", lambda n: headers(2 * n + 1, b"", 5)),
    "RST_STREAM of closed streams": Flood("resets", get(1), lambda n: rst(1)),
}

TWICE = {"empty DATA", "DATA of padding only"}
"""Counted as empty by the connection and as small by the call."""


@pytest.mark.parametrize("name", FLOODS)
def test_flood(name: str) -> None:
    flood = FLOODS[name]
    double = 2 if name in TWICE else 1
    limits = dataclasses.replace(CALM, glitches_burst=5 * double)
    door = greeted(limits)
    door.receive(flood.before)
    number = 0
    for _ in range(5 + flood.free):
        door.receive(flood.one(number))
        number += 1
    door.now_s += double  # a bucket that is empty gets one a second
    door.receive(flood.one(number))
    assert not door.reader.goaways
    found = door.receive(flood.one(number + 1))
    assert door.fault == (ENHANCE_YOUR_CALM, flood.limit)
    assert found[-1].kind == frames.GOAWAY
    assert found[-1].payload[8:].decode() == str(door.connection.fault)
    door.check_empty()


def test_to_give_up_a_call_after_a_second_costs_no_reset() -> None:
    door = greeted(dataclasses.replace(CALM, resets_per_s=0.0))
    for stream in range(1, 21, 2):
        door.receive(opened(stream, "Park"))
        door.now_s += 1.0
        door.receive(rst(stream))
    assert door.fault is None


def test_finished_calls_give_resets_back() -> None:
    door = greeted(CALM)
    for number in range(0, 100, 2):
        door.receive(unary(2 * number + 1, "Echo", b""), opened(2 * number + 3, "Park"), rst(2 * number + 3))
    assert door.fault is None


def test_calls_that_we_cut_off_behind_their_reply_cost_no_reset() -> None:
    door = greeted(CALM)
    for number in range(100):
        door.receive(opened(2 * number + 1, "Gone"))
    assert door.fault is None
    # But their late bodies are frames that do nothing.
    door.receive(*(data(2 * number + 1, b"x", end=True) for number in range(10)))
    assert door.fault == (ENHANCE_YOUR_CALM, "glitches")


def test_the_rest_of_a_large_message_that_was_refused_is_free() -> None:
    door = greeted(dataclasses.replace(CALM, message_bytes_max=10))
    door.receive(opened(1, "Echo"), data(1, prefixed(bytes(11))))
    assert door.reply(1).status == 8
    door.receive(*(data(1, bytes(1024)) for _ in range(500)))
    assert door.fault is None


def test_two_window_updates_a_call_are_free() -> None:
    door = greeted(CALM)
    for number in range(100):  # as C-core does
        stream = 2 * number + 1
        door.receive(
            opened(stream, "Echo"), frames.window_update(stream, 5), data(stream, prefixed(b""), end=True)
        )
        door.receive(frames.window_update(0, 5))
    assert door.fault is None


@pytest.mark.parametrize("cause", ["reply", "deadline", "reset", "budget"])
def test_a_reset_beyond_the_limit_ends_the_connection_whoever_causes_it(cause: str) -> None:
    """Nobody would catch it outside of `receive`: in a handler's reply, the tick, another's budget."""
    limits = dataclasses.replace(
        CALM, resets_burst=0, resets_per_s=0.0, receive_bytes_max=1000, silent_body_s=5.0
    )
    budget = Budget(limits)
    door = greeted(limits, budget=budget)
    door.receive(
        opened(1, "Hold"), opened(3, "Park", (b"grpc-timeout", b"2S")), data(3, prefixed(bytes(900))[:800])
    )
    if cause == "reply":
        door.runner.held[0].complete()
        door.settle()
    elif cause == "deadline":
        door.tick(NOW_S + 2)
    elif cause == "reset":
        door.receive(frames.window_update(3, 0))
    else:
        other = greeted(limits, budget=budget)
        other.receive(unary(1, "Echo", b"a"), opened(3, "Chat"), data(3, prefixed(bytes(300))))
        assert (other.fault, other.reply(3).ended) == (None, 0)
        assert other.reply(3).messages == [bytes(300)]
        other.session.end()
        other.runner.run()
        door.settle()
    assert door.fault == (ENHANCE_YOUR_CALM, "resets")
    assert door.reader.goaways[-1][1] == ENHANCE_YOUR_CALM
    door.check_empty()


def test_nothing_is_read_behind_the_reply_that_ended_the_connection() -> None:
    door = greeted(dataclasses.replace(CALM, resets_burst=0, resets_per_s=0.0))
    found = door.receive(opened(1, "Gone"), ping(), unary(3, "Echo", b""))
    assert [item.kind for item in found] == [frames.HEADERS, frames.RST_STREAM, frames.GOAWAY]
    assert door.runner.seen == []


# -- PING --------------------------------------------------------------------------------------------


def test_pings_in_a_row_are_strikes() -> None:
    door = greeted()
    for _ in range(11):  # the first one is free
        assert [item.kind for item in door.receive(ping())] == [frames.PING]
    found = door.receive(ping())
    assert door.fault == (ENHANCE_YOUR_CALM, "pings")
    assert found[-1].payload[8:] == b"too_many_pings"  # gRPC's clients look for it


def test_pings_with_gaps_are_no_strikes() -> None:
    door = greeted()
    for number in range(100):
        door.now_s = NOW_S + 10.0 * number
        door.receive(ping())
    assert door.fault is None


def test_a_ping_a_call_is_free() -> None:
    door = greeted()
    for number in range(100):  # grpc-go at one call in flight
        door.receive(unary(2 * number + 1, "Echo", b""), ping())
    assert door.fault is None


def test_data_takes_strikes_back_but_headers_alone_do_not() -> None:
    door = greeted()
    door.receive(*[ping()] * 11, unary(1, "Echo", b""))
    door.receive(*[ping()] * 11)
    assert not door.reader.goaways
    door.receive(opened(3, "Hold"), ping())
    assert door.fault == (ENHANCE_YOUR_CALM, "pings")


# -- streams -----------------------------------------------------------------------------------------


def test_streams_to_the_last_and_one_more() -> None:
    door = greeted(Limits(streams_max=3))
    door.receive(*(opened(stream, "Hold") for stream in (1, 3, 5)))
    door.receive(opened(7, "Hold"))
    assert (door.reply(7).reset, door.refusals) == (REFUSED_STREAM, ["streams"])
    assert len(door.runner.held) == 3


def test_streams_count_until_their_handlers_have_ended() -> None:
    door = greeted(Limits(streams_max=3))
    door.runner.stubborn = True
    door.receive(*(opened(stream, "Hold") + rst(stream) for stream in (1, 3, 5)))
    assert (len(door.connection.streams), door.connection.lingering) == (0, 3)
    door.receive(unary(7, "Echo", b""))
    assert door.reply(7).reset == REFUSED_STREAM
    door.runner.held[0].complete()
    door.receive(unary(9, "Echo", b""))
    assert door.reply(9).status == 0


# -- memory ------------------------------------------------------------------------------------------


def test_requests_of_a_connection_to_the_last_octet() -> None:
    door = greeted(Limits(connection_receive_bytes_max=1000))
    door.receive(
        opened(1, "Echo"),
        data(1, prefixed(bytes(995))[:400]),
        opened(3, "Echo"),
        data(3, prefixed(bytes(999))[:600]),
    )
    assert door.session.held == door.budget.receive_held == 1000
    door.receive(data(1, b"x"))
    assert (door.reply(1).status, door.reply(1).reset) == (codes.UNAVAILABLE, 0)
    assert door.reply(1).text == "the requests of this connection take too much memory"
    assert door.refusals == ["connection_receive_bytes"]
    assert door.session.held == 600
    assert 3 in door.connection.streams


def test_messages_that_wait_for_a_service_count() -> None:
    door = greeted(Limits(connection_receive_bytes_max=1000))
    empty = prefixed(b"")
    door.receive(opened(1, "Hold"), data(1, empty * 14))  # 14 * (5 + 64) = 966
    assert door.session.held == 966
    door.receive(data(1, empty))
    assert door.reply(1).status == codes.UNAVAILABLE
    door.check_empty()


def test_requests_of_all_connections_the_largest_unfinished_one_goes() -> None:
    limits = Limits(receive_bytes_max=1000)
    budget = Budget(limits)
    large, small = greeted(limits, budget=budget), greeted(limits, budget=budget)
    large.receive(opened(1, "Park"), data(1, prefixed(bytes(2000))[:300]))
    large.receive(opened(3, "Park"), data(3, prefixed(bytes(2000))[:600]))
    small.receive(opened(1, "Echo"), data(1, prefixed(bytes(200))[:100]))
    assert budget.receive_held == 1000
    small.receive(data(1, prefixed(bytes(200))[100:], end=True))
    assert (small.reply(1).status, small.refusals) == (0 if small.reply(1).heads else None, ["receive_bytes"])
    large.settle()
    assert (large.reply(3).status, 1 in large.connection.streams) == (codes.UNAVAILABLE, True)
    assert large.reply(3).text == "requests take too much memory, and this one most"
    assert (large.session.held, budget.receive_held) == (300, 300)


def test_a_request_that_a_handler_works_on_is_not_refused() -> None:
    limits = Limits(receive_bytes_max=1000)
    budget = Budget(limits)
    busy, small = greeted(limits, budget=budget), greeted(limits, budget=budget)
    body = prefixed(bytes(900))
    busy.receive(opened(1, "Park"), data(1, body[:100]), data(1, body[100:], end=True))
    assert (len(busy.runner.parked), budget.receive_held) == (1, 905)
    small.receive(opened(1, "Echo"), data(1, prefixed(bytes(200))[:96]))
    assert small.reply(1).status == codes.UNAVAILABLE
    assert small.reply(1).text == "requests take too much memory"
    busy.runner.parked[0].succeed(b"")
    busy.settle()
    assert busy.reply(1).status == 0
    assert budget.receive_held == 0


def test_a_bomb_is_stopped_and_counted_while_it_is_unpacked() -> None:
    packed = gzip.compress(bytes(8 << 20))
    request = opened(1, "Echo", (b"grpc-encoding", b"gzip")) + data(1, prefixed(packed, 1), end=True)
    door = greeted(Limits(gzip_ratio_max=10))
    door.receive(request)
    assert door.reply(1).status == 8
    assert "larger than max" in door.reply(1).text
    door.check_empty()
    door = greeted(Limits(gzip_ratio_max=10_000, connection_receive_bytes_max=4 << 20))
    door.receive(request)
    assert (door.reply(1).status, door.refusals) == (codes.UNAVAILABLE, ["connection_receive_bytes"])
    door.check_empty()


def queued(door: Door, stream_id: int, size: int) -> None:
    door.runner.held[(stream_id - 1) // 2].send(bytes(size - 5))


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        (Limits(stream_send_bytes_max=1000), (999, 1, 0)),
        (Limits(connection_send_bytes_max=1000), (500, 500, 0)),
        (Limits(send_bytes_max=1000), (500, 500, 0)),
    ],
)
def test_replies_that_are_queued_make_their_services_wait(limits: Limits, sizes: tuple[int, ...]) -> None:
    door = greeted(limits)
    door.receive(frames.settings({4: 0}), opened(1, "Hold"), opened(3, "Hold"))
    first, second = door.runner.held
    outbound = door.connection.outbound
    if limits.stream_send_bytes_max == 1000:
        queued(door, 1, 999)
        assert first.has_room
        outbound.data(first.stream, b"x")
        assert (first.has_room, second.has_room) == (False, True)
    else:
        queued(door, 1, 500)
        queued(door, 3, 499)
        assert first.has_room
        outbound.data(first.stream, b"x")
        assert (first.has_room, second.has_room) == (False, False)


def test_the_budget_of_all_lets_each_connection_send_something() -> None:
    limits = Limits(send_bytes_max=1000)
    budget = Budget(limits)
    full, empty = greeted(limits, budget=budget), greeted(limits, budget=budget)
    for door in (full, empty):
        door.receive(frames.settings({4: 0}), opened(1, "Hold"))
    queued(full, 1, 1000)
    assert not full.runner.held[0].has_room
    assert empty.runner.held[0].has_room
    queued(empty, 1, 10)
    assert not empty.runner.held[0].has_room


@pytest.mark.parametrize("way", ["sent", "unary sent", "plain sent", "reset", "deadline"])
def test_who_waits_for_room_is_woken_when_there_is_some(way: str) -> None:
    """The room may be made by another stream, of another kind, and by one that is dropped."""
    door = greeted(Limits(connection_send_bytes_max=1000))
    if way == "unary sent":
        other = unary(1, "Echo", bytes(2000))
    elif way == "plain sent":
        other = headers(1, block(pseudo(b"/")))
    else:
        other = unary(1, "Down", asking(1, 2000), *([(b"grpc-timeout", b"5S")] if way == "deadline" else []))
    door.receive(frames.settings({4: 0}), other)
    if way == "plain sent":
        door.connection.outbound.data(door.connection.streams[1], bytes(2000))
    door.receive(unary(3, "Down", asking(3, 400)), frames.window_update(3, 9999))
    assert door.session.waiting
    assert len(door.reply(3).messages) == 1
    if way == "reset":
        door.receive(rst(1))
    elif way == "deadline":
        door.tick(NOW_S + 5)
        door.receive(rst(1))
    else:
        door.receive(frames.window_update(1, 9999))
    assert len(door.reply(3).messages) == 3
    assert door.reply(3).status == 0
    door.receive(rst(1))
    door.check_empty()


def test_heads_are_looked_up_whatever_their_size() -> None:
    door = greeted()
    encoded = call_block("Echo", (b"x-long", b"v" * 3000))
    for stream in (1, 3):
        door.receive(headers(stream, encoded), data(stream, prefixed(b""), end=True))
    assert (door.reply(1).status, door.reply(3).status) == (0, 0)
    assert encoded not in door.connection.blocks.said


def test_a_frame_of_many_settings_counts_as_several() -> None:
    """One for the greeting and two for each frame of 63: five are spent, the next is too much."""
    many = frames.frame(frames.SETTINGS, 0, 0, b"\x00\x10\x00\x00\x00\x00" * 63)
    door = greeted(Limits(settings_burst=5))
    door.receive(many)
    door.receive(many)
    assert not door.connection.ended
    door.receive(frames.settings({}))
    assert door.connection.fault is not None
    assert door.connection.fault.limit == "settings"
