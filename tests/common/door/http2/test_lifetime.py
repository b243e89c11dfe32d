"""Time: handshake, keepalive, idleness, age, silent bodies, stuck replies; the end in two steps (R6.8)."""

from __future__ import annotations

import dataclasses

import pytest

from tests.cases import case
from tests.common.door.support.model import (
    GREETING,
    HELLO,
    NOW_S,
    Door,
    Frame,
    asking,
    block,
    continuation,
    data,
    get,
    headers,
    opened,
    ping,
    prefixed,
    pseudo,
    rst,
    unary,
)
from tidb_binlog.door.limits import Limits
from tidb_binlog.http2 import frames, hpack
from tidb_binlog.http2.frames import (
    ACK,
    CANCEL,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    NO_ERROR,
    PING,
    PROTOCOL_ERROR,
    SETTINGS_TIMEOUT,
)

STEP_S = 0.25  # of `pass_time`: what it finds is late by at most this
AGED = Limits(age_s=100.0, keepalive_s=1e6)
IDLE = Limits(idle_s=100.0, keepalive_s=1e6)


def greeted(limits: Limits | None = None, *, jitter: float = 1.0) -> Door:
    door = Door(limits, jitter=jitter)
    door.receive(hello=True)
    return door


def answer(found: list[Frame]) -> list[bytes]:
    return [ping(item.payload, ACK) for item in found if item.kind == PING and not item.flags & ACK]


def kinds(found: list[Frame]) -> list[int]:
    return [item.kind for item in found]


ALONE = Limits(handshake_s=1e6, header_block_s=1e6, keepalive_s=1e6, keepalive_answer_s=1e6)
FAULT, DRAIN = [(GOAWAY, 0)], [(GOAWAY, 0), (PING, 0)]


@pytest.mark.parametrize(
    ("limits", "said", "expected"),
    [
        ({"handshake_s": 5.0}, b"", {5.0: FAULT}),
        ({"handshake_s": 5.0, "keepalive_s": 2.0}, b"", {2.0: [(PING, 0)], 5.0: FAULT}),
        ({"handshake_s": 5.0}, HELLO, {10.0: FAULT}),
        ({"header_block_s": 5.0}, GREETING + headers(1, b"", 0), {5.0: FAULT}),
        ({"header_block_s": 5.0, "keepalive_s": 2.0}, GREETING + headers(1, b"", 0),
         {2.0: [(PING, 0)], 5.0: FAULT}),
        ({"keepalive_s": 5.0, "keepalive_answer_s": 3.0}, GREETING, {5.0: [(PING, 0)], 8.0: FAULT}),
        ({"keepalive_s": 5.0, "keepalive_answer_s": 3.0, "age_s": 6.0}, GREETING,
         {5.0: [(PING, 0)], 6.0: DRAIN, 8.0: FAULT}),
        ({"idle_s": 5.0}, GREETING, {5.0: DRAIN, 10.0: [(GOAWAY, 0)]}),
        ({"age_s": 5.0}, GREETING, {5.0: DRAIN, 10.0: [(GOAWAY, 0)]}),
        ({"age_s": 5.0, "idle_s": 7.0}, GREETING, {5.0: DRAIN, 10.0: [(GOAWAY, 0)]}),
        ({"age_s": 5.0, "keepalive_s": 9.0}, GREETING, {5.0: DRAIN, 9.0: [(PING, 0)], 10.0: [(GOAWAY, 0)]}),
    ],
)  # fmt: skip
def test_each_limit_is_looked_at_when_it_is_due_whatever_else_is(
    limits: dict[str, float], said: bytes, expected: dict[float, list[tuple[int, int]]]
) -> None:
    door = Door(dataclasses.replace(ALONE, **limits))
    door.receive(said)
    found = {}
    while door.now_s < NOW_S + 12:
        if answered := door.tick(door.now_s + STEP_S):
            assert all(item.stream == 0 for item in answered)
            found[door.now_s - NOW_S] = [(item.kind, item.flags) for item in answered]
    assert found == expected


# -- handshake ---------------------------------------------------------------------------------------


def test_settings_have_to_come() -> None:
    door = Door()
    door.pass_time(NOW_S + 9.9)
    assert door.fault is None
    door.tick(NOW_S + 10)
    assert door.fault == (PROTOCOL_ERROR, "handshake")


def test_R6_5_3_settings_have_to_be_acknowledged() -> None:
    door = Door()
    door.receive(HELLO, unary(1, "Echo", b""))
    door.pass_time(NOW_S + 19.9)
    assert door.fault is None
    door.tick(NOW_S + 20)
    assert door.fault == (SETTINGS_TIMEOUT, "handshake")


def test_a_connection_that_said_hello_stays() -> None:
    door = greeted()
    door.pass_time(NOW_S + 59)
    assert door.fault is None
    assert not door.reader.goaways


def test_a_header_block_has_its_time() -> None:
    door = greeted()
    encoded = block(pseudo(b"/", b"GET"))
    door.now_s += 30
    door.receive(headers(1, encoded[:3], 1))
    for number in range(3, 6):  # CONTINUATIONs do not prolong it
        door.pass_time(door.now_s + 3)
        door.receive(continuation(1, encoded[number : number + 1], last=False))
    door.pass_time(NOW_S + 39.9)
    assert door.fault is None
    door.tick(NOW_S + 40)
    assert door.fault == (ENHANCE_YOUR_CALM, "header_block")


def test_a_header_block_that_is_complete_in_time() -> None:
    door = greeted()
    encoded = block(pseudo(b"/", b"GET"))
    door.receive(headers(1, encoded[:3], 1))
    door.pass_time(NOW_S + 9.9)
    door.receive(continuation(1, encoded[3:]))
    assert door.reply(1).http == 200
    door.pass_time(NOW_S + 30)
    assert door.fault is None


# -- keepalive (A9) ----------------------------------------------------------------------------------


def test_a_silent_peer_is_asked_and_answers() -> None:
    door = greeted()
    assert door.pass_time(NOW_S + 59.75) == []
    found = door.tick(NOW_S + 60)
    assert kinds(found) == [PING]
    door.now_s += 5
    assert door.receive(*answer(found)) == []
    # And so on from that answer.
    assert door.pass_time(NOW_S + 65 + 59.75) == []
    assert kinds(door.pass_time(NOW_S + 65 + 60 + STEP_S)) == [PING]


def test_any_octet_is_an_answer() -> None:
    door = greeted()
    door.pass_time(NOW_S + 60)
    door.now_s += 19
    door.receive(frames.window_update(0, 1))
    door.pass_time(NOW_S + 100)
    assert door.fault is None


def test_a_peer_that_does_not_answer_is_gone() -> None:
    door = greeted()
    door.receive(unary(1, "Park", b""))
    door.pass_time(NOW_S + 79.75)
    assert not door.reader.goaways
    door.tick(NOW_S + 80)
    assert door.fault == (NO_ERROR, "keepalive_answer")
    assert len(door.runner.cancelled) == 1
    door.check_empty()


def test_a_peer_that_speaks_is_not_asked() -> None:
    door = greeted()
    for second in range(300):
        door.pass_time(NOW_S + 50 * second)
        assert not door.reader.pings
        door.receive(frames.frame(0x20, 0, 0))


# -- idleness and age --------------------------------------------------------------------------------


def drained_at(door: Door, until_s: float) -> float:
    while door.now_s < until_s:
        found = door.tick(door.now_s + STEP_S)
        if any(item.kind == GOAWAY for item in found):
            assert door.reader.goaways[0][:2] == (frames.STREAM_ID_MAX, NO_ERROR)
            return door.now_s - NOW_S
    return -1.0


def test_an_idle_connection_ends() -> None:
    assert drained_at(greeted(IDLE), NOW_S + 300) == 100.0


def test_a_connection_without_limits_never_ends() -> None:
    assert drained_at(greeted(Limits(keepalive_s=1e6)), NOW_S + 3000) == -1.0


def test_a_call_that_runs_is_not_idle() -> None:
    door = greeted(IDLE)
    door.receive(unary(1, "Park", b""))
    assert drained_at(door, NOW_S + 950) == -1.0
    door.runner.parked[0].succeed(b"")
    door.settle()
    # Idleness counts from the last call's end: never sooner, later by as much at most.
    assert 950 + 100 <= drained_at(door, NOW_S + 2000) <= 950 + 200


def test_idleness_counts_from_the_end_of_the_last_call() -> None:
    for end in ["reply", "reset"]:
        for began_s in [1.0, 50.0, 99.0]:
            for took_s in [0.0, 0.5, 90.0, 140.0]:
                with case(end, began_s, took_s):
                    door = greeted(IDLE)
                    door.pass_time(NOW_S + began_s)
                    door.receive(unary(1, "Park", b""))
                    door.pass_time(NOW_S + began_s + took_s)
                    ended_s = door.now_s - NOW_S
                    if end == "reset":
                        door.receive(rst(1))
                    else:
                        door.runner.parked[0].succeed(b"")
                        door.settle()
                    assert ended_s + 100 <= drained_at(door, NOW_S + 1000) <= ended_s + 200


def test_a_handler_that_lingers_is_not_idle() -> None:
    door = greeted(IDLE)
    door.runner.stubborn = True
    door.receive(unary(1, "Park", b""), rst(1))
    assert drained_at(door, NOW_S + 500) == -1.0


@pytest.mark.parametrize("jitter", [0.9, 1.0, 1.1])
def test_an_old_connection_ends_whatever_it_does(jitter: float) -> None:
    door = greeted(AGED, jitter=jitter)
    door.receive(unary(1, "Park", b""))
    assert drained_at(door, NOW_S + 300) == pytest.approx(100 * jitter, abs=STEP_S)


# -- two steps (R6.8) --------------------------------------------------------------------------------


def second_goaway(door: Door) -> tuple[int, int, bytes]:
    assert len(door.reader.goaways) == 2
    return door.reader.goaways[1]


def test_a_drained_connection_ends_at_the_answer() -> None:
    door = greeted()
    door.lifetime.drain(door.now_s)
    found = door.settle()
    assert kinds(found) == [GOAWAY, PING]
    assert door.reader.goaways == [(frames.STREAM_ID_MAX, NO_ERROR, b"")]
    assert not door.lifetime.over
    door.receive(*answer(found))
    assert second_goaway(door) == (0, NO_ERROR, b"")
    assert door.lifetime.over


def test_a_drained_connection_ends_after_five_seconds_without_an_answer() -> None:
    door = greeted()
    door.lifetime.drain(door.now_s)
    door.settle()
    door.pass_time(NOW_S + 4.9)
    assert not door.lifetime.over
    door.tick(NOW_S + 5)
    assert second_goaway(door) == (0, NO_ERROR, b"")
    assert door.lifetime.over


def test_another_answer_is_not_the_answer() -> None:
    door = greeted()
    door.receive(ping(b"drain\x00\x00\x00", ACK))  # before it was asked
    door.lifetime.drain(door.now_s)
    door.settle()
    door.receive(ping(b"12345678", ACK))
    assert len(door.reader.goaways) == 1


def test_calls_that_crossed_the_first_goaway_are_served_and_later_ones_are_not_looked_at() -> None:
    door = greeted()
    door.receive(unary(1, "Park", b""))
    door.lifetime.drain(door.now_s)
    found = door.settle()
    door.receive(unary(3, "Park", b""))
    door.receive(*answer(found))
    assert second_goaway(door) == (3, NO_ERROR, b"")
    # Everything of streams beyond is discarded, a cancelled one and one with trailers too.
    beyond = (
        opened(5, "Park"),
        frames.window_update(5, 5),
        data(5, prefixed(b"")),
        headers(5, b"", 5),
        rst(5),
    )
    assert door.receive(*beyond, get(7), data(7, b"x", end=True), rst(9)) == []
    assert door.fault is None
    assert sorted(call.stream.id for call in door.runner.parked) == [1, 3]
    for call in door.runner.parked:
        assert not door.lifetime.over
        call.succeed(b"ok")
        door.settle()
    assert door.lifetime.over
    assert [door.reply(stream).messages for stream in (1, 3)] == [[b"ok"], [b"ok"]]
    door.check_empty()


def test_blocks_of_discarded_streams_are_decoded() -> None:
    door = greeted()
    door.receive(opened(1, "Chat"))
    door.lifetime.drain(door.now_s)
    door.receive(*answer(door.settle()))
    door.receive(headers(3, block(pseudo(b"/", b"GET")) + hpack.insert(b"x-new", b"1"), 5))
    door.receive(headers(1, hpack.indexed(62), 5))
    assert (door.fault, door.reply(1).status) == (None, 0)


def test_data_of_discarded_streams_counts_on_the_connection_window() -> None:
    door = greeted(Limits(connection_window_bytes=65_535))
    door.receive(opened(1, "Hold"))
    door.lifetime.drain(door.now_s)
    door.receive(*answer(door.settle()))
    door.receive(*(data(3, bytes(16384)) for _ in range(3)))
    assert door.reader.updates[0] == 3 * 16384


def test_a_drained_connection_waits_for_handlers_and_for_what_is_queued() -> None:
    door = greeted()
    door.runner.stubborn = True
    door.receive(frames.settings({4: 1}), unary(1, "Echo", b"late"), unary(3, "Park", b""), rst(3))
    door.lifetime.drain(door.now_s)
    door.receive(*answer(door.settle()))
    assert not door.lifetime.over
    door.receive(frames.window_update(1, 100))
    assert not door.lifetime.over
    door.runner.parked[0].succeed(b"")
    door.settle()
    assert door.lifetime.over


def test_a_handler_that_ends_without_a_word_is_seen_within_five_seconds() -> None:
    door = greeted(ALONE)
    door.runner.stubborn = True
    door.receive(unary(1, "Park", b""), rst(1))
    door.lifetime.drain(door.now_s)
    door.pass_time(NOW_S + 7)
    door.runner.parked[0].succeed(b"")
    assert not door.lifetime.over
    door.pass_time(NOW_S + 10)
    assert door.lifetime.over


def test_draining_twice_is_draining_once() -> None:
    door = greeted()
    for _ in range(3):
        door.lifetime.drain(door.now_s)
    assert kinds(door.settle()) == [GOAWAY, PING]
    door.pass_time(NOW_S + 30)
    assert len(door.reader.goaways) == 2


def test_a_fault_while_draining() -> None:
    door = greeted()
    door.receive(opened(1, "Hold"))
    door.lifetime.drain(door.now_s)
    door.receive(*answer(door.settle()))
    door.receive(opened(3, "Hold"), data(0))
    assert [last for last, _, _ in door.reader.goaways] == [frames.STREAM_ID_MAX, 1, 1]
    assert door.fault == (PROTOCOL_ERROR, "")
    door.check_empty()


# -- requests and replies that stand still -----------------------------------------------------------


def test_a_body_that_falls_silent_is_cut() -> None:
    door = greeted(Limits(keepalive_s=1e6))
    door.receive(opened(1, "Park"), data(1, prefixed(bytes(100))[:50]), headers(3, block(pseudo(b"/"))))
    door.pass_time(NOW_S + 30)
    door.receive(data(1, bytes(50)))
    door.pass_time(NOW_S + 59.75)
    assert not door.reader.replies
    door.pass_time(NOW_S + 60 + STEP_S)
    assert (door.reply(3).reset, door.reply(3).heads) == (CANCEL, [])
    door.pass_time(NOW_S + 89.75)
    assert 1 not in door.reader.replies
    door.pass_time(NOW_S + 90 + STEP_S)
    assert door.reply(1).reset == CANCEL
    assert door.refusals == ["silent_body"] * 2
    door.check_empty()


def test_a_stream_of_requests_may_be_silent() -> None:
    door = greeted(Limits(keepalive_s=1e6))
    door.receive(opened(1, "Up"), opened(3, "Chat"))
    door.pass_time(NOW_S + 1000, 5.0)
    assert not door.reader.replies


def test_a_handler_may_take_its_time() -> None:
    door = greeted(Limits(keepalive_s=1e6))
    door.receive(unary(1, "Park", b""), opened(3, "Hold"))
    door.pass_time(NOW_S + 1000, 5.0)
    assert not door.reader.replies


@pytest.mark.parametrize("kind", ["unary", "plain", "stream"])
def test_a_reply_that_is_stuck_is_cut(kind: str) -> None:
    door = greeted(Limits(keepalive_s=1e6))
    request = {"unary": unary(1, "Park", b""), "plain": get(1), "stream": opened(1, "Hold")}[kind]
    door.receive(frames.settings({4: 0}), request)
    if kind != "plain":
        door.pass_time(NOW_S + 200, 5.0)
    start_s = door.now_s
    if kind == "unary":
        door.runner.parked[0].succeed(b"stuck")
    elif kind == "stream":
        door.runner.held[0].send(b"stuck")
        door.runner.held[0].complete()
    door.settle()
    door.pass_time(start_s + 30)  # it has its time from when it is queued
    assert door.reply(1).reset is None
    door.receive(frames.window_update(1, 1))
    door.pass_time(start_s + 59.75)  # an octet now and then is nothing
    assert door.reply(1).reset is None
    door.pass_time(start_s + 80)  # and not 60 s after it
    assert door.reply(1).reset == CANCEL
    assert door.refusals == ["stuck_reply"]
    door.check_empty()


def test_a_stream_that_waits_for_its_service_is_not_stuck() -> None:
    door = greeted(Limits(keepalive_s=1e6))
    door.receive(frames.settings({4: 0}), unary(1, "Down", asking(2, 10)))
    door.receive(opened(3, "Hold"))
    door.runner.held[0].send(b"queued")
    door.pass_time(NOW_S + 1000, 5.0)
    assert door.reply(1).reset == CANCEL  # all is said: it is the peer's turn
    assert door.reply(3).reset is None
