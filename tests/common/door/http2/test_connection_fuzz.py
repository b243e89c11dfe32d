"""Hostile octets: mutated recordings into the cores. Nothing raises, memory and answers stay within bounds.

`DOOR_FUZZ_INPUTS` and `DOOR_FUZZ_SEED` choose how many and which.
"""

from __future__ import annotations

import gc
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from tests.common.door.support.door_recordings import recordings
from tests.common.door.support.model import (
    GREETING,
    NOW_S,
    SERVICE,
    FakeRunner,
    asking,
    continuation,
    data,
    get,
    headers,
    opened,
    ping,
    prefixed,
    priority,
    rst,
    unary,
)
from tidb_binlog.door import protocol_detection
from tidb_binlog.door.calls.message_framing import MessageReader
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.http2 import frames
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.frames import PREFACE
from tidb_binlog.door.http2.lifetime import Lifetime
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.rpc.service import RpcStatus

T = TypeVar("T")

INPUTS = int(os.environ.get("DOOR_FUZZ_INPUTS", "80000"))
PARTS = 4
SEED = int(os.environ.get("DOOR_FUZZ_SEED", "9113"))
LIMITS = Limits(
    message_bytes_max=1 << 16,
    streams_max=8,
    resets_burst=20,
    glitches_burst=20,
    settings_burst=5,
    ping_strikes_max=5,
    stream_window_bytes=64,
    connection_receive_bytes_max=1 << 17,
    receive_bytes_max=1 << 17,
)
METHODS = methods_of([SERVICE])
REPLY_BYTES = 600  # frames and blocks of one answer, beside its body

SHORT = [
    unary(1, "Echo", b"hello"),
    opened(1, "Park") + data(1, prefixed(b"abc")[:6]) + data(1, b"bc", end=True),
    opened(1, "Chat") + data(1, prefixed(b"one") + prefixed(b"two")) + rst(1),
    opened(1, "Down") + data(1, prefixed(asking(2, 20)), end=True) + frames.window_update(1, 9),
    frames.settings({1: 0, 4: 1, 5: 1 << 15}) + unary(1, "Echo", b"window") + frames.window_update(1, 99),
    get(1) + get(3, end=False) + data(3, b"body", end=True),
    headers(1, opened(1, "Up")[9:40], 0) + continuation(1, opened(1, "Up")[40:]) + data(1, end=True),
    opened(5, "Hold") + priority(5, 3) + ping() + data(5, prefixed(b"held")) + ping(flags=1),
    frames.goaway(0, 0) + opened(1, "Hold") + frames.window_update(0, 70),
]
KINDS = (*range(11), 0xFF)
IDS = (0, 0, 1, 1, 1, 2, 3, 5, 7, 9, 0x7FFFFFFF, 0x80000001)


def below(rng: random.Random, stop: int) -> int:
    """As `randrange`, in a third of its time."""
    return int(rng.random() * stop)


def any_of(rng: random.Random, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]


def flip(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    octets[at] ^= 1 << below(rng, 8)


def overwrite(octets: bytearray, rng: random.Random) -> None:
    octets[below(rng, len(octets))] = any_of(rng, (0, 1, 4, 5, 8, 9, 0x7F, 0x80, 0xFF, below(rng, 256)))


def remove(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    del octets[at : at + 1 + below(rng, 15)]


def insert(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets) + 1)
    octets[at:at] = rng.randbytes(1 + below(rng, 11))


def duplicate(octets: bytearray, rng: random.Random) -> None:
    at = below(rng, len(octets))
    octets[at:at] = octets[at : at + 1 + below(rng, 59)]


def cut_off(octets: bytearray, rng: random.Random) -> None:
    del octets[below(rng, len(octets)) :]


def boundaries(octets: bytes | bytearray) -> list[int]:
    at, found = 0, [0]
    while at + 9 <= len(octets):
        at += 9 + (frames.HEAD.unpack_from(octets, at)[0] >> 8)
        if at <= len(octets):
            found.append(at)
    return found


def splice(octets: bytearray, rng: random.Random) -> None:
    """A frame of any kind between two others."""
    payload = rng.randbytes(any_of(rng, (0, 0, 1, 4, 4, 5, 6, 8, 12, 30)))
    if rng.random() < 0.3 and len(payload) >= 4:
        payload = struct.pack(">L", any_of(rng, (0, 1, 0x7FFFFFFF, 0x80000000))) + payload[4:]
    length = (
        len(payload) if rng.random() < 0.9 else any_of(rng, (0, 3, 1 << 14, (1 << 14) + 1, (1 << 24) - 1))
    )
    flags = any_of(rng, (0, 1, 4, 5, 8, 0x20, 0x2D, below(rng, 256)))
    head = frames.HEAD.pack(length << 8 | any_of(rng, KINDS), flags, any_of(rng, IDS))
    at = any_of(rng, boundaries(octets))
    octets[at:at] = head + payload


def repeat_frame(octets: bytearray, rng: random.Random) -> None:
    """A frame once more, perhaps elsewhere, perhaps on another stream."""
    places = boundaries(octets)
    which = below(rng, len(places))
    frame = octets[places[which] : places[which + 1] if which + 1 < len(places) else None]
    if len(frame) >= 9 and rng.random() < 0.5:
        frame[5:9] = struct.pack(">L", any_of(rng, IDS))
    at = any_of(rng, places)
    octets[at:at] = frame


def flood(octets: bytearray, rng: random.Random) -> None:
    """One frame many times over."""
    places = boundaries(octets)
    which = below(rng, len(places))
    frame = octets[places[which] : places[which + 1] if which + 1 < len(places) else None]
    octets[places[which] : places[which]] = bytes(frame) * 30


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    flip, flip, overwrite, remove, insert, duplicate, cut_off, splice, splice, repeat_frame, repeat_frame,
]  # fmt: skip


def mutate(octets: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(octets)
    for _ in range(any_of(rng, (1, 1, 2, 2, 3, 6))):
        if not mutated:
            break
        any_of(rng, MUTATIONS)(mutated, rng)
    if mutated and rng.random() < 0.02:
        flood(mutated, rng)
    return bytes(mutated)


@dataclass
class Tally:
    """What came of the inputs."""

    given: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


def into_connection(octets: bytes, rng: random.Random, tally: Tally) -> None:
    budget = Budget(LIMITS)
    runner = FakeRunner(lambda: NOW_S)
    runner.keeps = False
    made: list[Session] = []

    def above(connection: Connection) -> Session:
        made.append(Session(connection, METHODS, runner, budget))
        return made[0]

    connection = Connection(above, LIMITS, budget, NOW_S)
    session = made[0]
    budget.holders.add(session)
    outbound = connection.outbound
    outbound.out.clear()
    lifetime = Lifetime(connection, 1.0)
    at = below(rng, len(octets)) if octets and rng.random() < 0.3 else len(octets)
    written = 0
    for now_s, part in ((NOW_S, octets[:at]), (NOW_S + 1, octets[at:])):
        connection.receive(part, now_s)
        runner.run()
        while outbound.can_produce:
            connection.produce(1 << 16)
            runner.run()
        written += sum(map(len, outbound.out))
        outbound.out.clear()
        if at == len(octets):
            break
    assert session.held == budget.receive_held <= 14 * len(octets)
    assert outbound.queued == budget.send_queued <= runner.echoed_bytes + runner.ends * REPLY_BYTES
    assert connection.lingering == 0
    tally.ends[f"GOAWAY {connection.fault.code}" if connection.fault else "open"] += 1
    if not connection.ended:
        lifetime.drain(NOW_S + 2)
        lifetime.tick(NOW_S + 50)
        session.tick(NOW_S + 100)
        for call in list(runner.parked):
            runner.ends += 1
            runner.parked.remove(call)
            call.succeed(b"")
    session.end()
    runner.run()
    written += sum(map(len, outbound.out))
    answers = runner.ends + len(octets) // 9 + 2
    assert written <= 2 * len(octets) + (1 << 16) + runner.echoed_bytes + answers * REPLY_BYTES
    assert not connection.streams
    assert not session.waiting
    assert connection.lingering == session.held == budget.receive_held == 0
    assert outbound.queued == budget.send_queued == 0


def into_messages(octets: bytes, rng: random.Random, tally: Tally) -> None:
    reader = MessageReader(1 << 12)
    at = taken = 0
    try:
        while at < len(octets):
            stop = min(len(octets), at + 1 + below(rng, 39))
            for flag, message in reader.feed(octets, at, stop):
                assert flag in (0, 1)
                taken += 5 + len(message)
            at = stop
            assert reader.held + taken <= at
        if not reader.inside:
            assert taken == len(octets)
    except RpcStatus as status:
        tally.ends[f"message status {status.code}"] += 1
    else:
        tally.ends["messages read"] += 1


def into_detection(octets: bytes, tally: Tally) -> None:
    verdict = protocol_detection.detect(octets)
    tally.ends["rejected" if isinstance(verdict, protocol_detection.Reject) else verdict.name] += 1
    for size in range(0, min(24, len(octets)), 5):
        early = protocol_detection.detect(octets[:size])
        # What was said of a part holds for the whole.
        assert early is protocol_detection.WireProtocol.NEED_MORE or type(early) is type(verdict), size


def fuzz(inputs: int, seed: int) -> Tally:
    rng = random.Random(seed)
    tally = Tally()
    long = list(recordings().values())
    bodies = [prefixed(b"hello") * 3, prefixed(b""), prefixed(bytes(200)) + prefixed(b"z", flag=1)]
    beginnings = [PREFACE + GREETING, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
    for number in range(inputs):
        octets = b""
        if number % 2000 == 0:
            gc.collect()
        try:
            match number % 20:
                case 0:
                    octets = mutate(any_of(rng, long), rng)
                    into_connection(octets, rng, tally)
                    tally.given["recordings"] += 1
                case 1 | 2:
                    octets = mutate(any_of(rng, bodies), rng)
                    into_messages(octets, rng, tally)
                    tally.given["messages"] += 1
                case 3:
                    octets = mutate(any_of(rng, beginnings), rng)
                    into_detection(octets, tally)
                    tally.given["beginnings"] += 1
                case _:
                    octets = GREETING + mutate(any_of(rng, SHORT), rng)
                    into_connection(octets, rng, tally)
                    tally.given["calls"] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, input {number}: {octets.hex()}")
            raise
    return tally


@pytest.mark.parametrize("part", range(PARTS))
def test_no_input_breaks_the_cores(part: int) -> None:
    inputs = len(range(part, INPUTS, PARTS))
    gc.freeze()
    gc.disable()  # a quarter of the time: connections are rings of objects, collected in lots instead
    try:
        tally = fuzz(inputs, SEED + part)
    finally:
        gc.enable()
        gc.unfreeze()
    print(f"seed {SEED + part}:", dict(tally.given), dict(sorted(tally.ends.items())))
    assert sum(tally.given.values()) == inputs
    assert sum(tally.ends.values()) == inputs
    if inputs >= 20_000:  # every error a peer can cause was caused
        for code in (1, 3, 5, 6, 9, 11):
            assert tally.ends[f"GOAWAY {code}"], code


LEAST = {
    "empty HEADERS": lambda stream: headers(stream, b""),
    "HEADERS of no length, padded": lambda stream: headers(stream, b"\x82", 0x5),
    "PING": lambda stream: ping(),
    "SETTINGS": lambda stream: frames.settings({}),
    "WINDOW_UPDATE": lambda stream: frames.window_update(0, 1),
    "PRIORITY": lambda stream: priority(stream),
    "RST_STREAM after HEADERS": lambda stream: headers(stream, b"") + rst(stream),
    "unknown frame": lambda stream: frames.frame(0x20, 0, stream),
}


@pytest.mark.parametrize("kind", LEAST)
def test_the_least_frames_are_answered_with_twice_their_octets_at_most(kind: str) -> None:
    budget = Budget()
    generous = Limits(
        resets_burst=10**9, settings_burst=10**9, glitches_burst=10**9, ping_strikes_max=10**9, ping_gap_s=0
    )
    runner = FakeRunner(lambda: NOW_S)
    connection = Connection(lambda it: Session(it, METHODS, runner, budget), generous, budget, NOW_S)
    connection.outbound.out.clear()
    octets = GREETING + b"".join(LEAST[kind](stream) for stream in range(1, 20_000, 2))
    connection.receive(octets, NOW_S)
    assert not connection.ended
    written = sum(map(len, connection.outbound.out))
    assert written <= 2 * len(octets) + (1 << 16)
