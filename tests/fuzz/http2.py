"""HTTP/2: mutated recordings into a connection's cores: memory and answers stay within bounds."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

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
from tests.fuzz.campaign import ending
from tests.fuzz.octets import MUTATIONS, Mutation, any_of, below
from tidb_binlog.door import protocol_detection
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.http2.lifetime import Lifetime
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2 import frames
from tidb_binlog.http2.frames import PREFACE
from tidb_binlog.rpc.message_framing import MessageReader
from tidb_binlog.rpc.service import RpcStatus

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


FRAME_MUTATIONS: Final[tuple[Mutation, ...]] = (
    *MUTATIONS, splice, splice, splice, repeat_frame, repeat_frame, repeat_frame, flood,
)  # fmt: skip


def into_connection(octets: bytes, rng: random.Random) -> str:
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
    fault = connection.fault
    end = f"GOAWAY {fault.code}, {ending(fault)}" if fault else "open"
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
    return end


def into_messages(octets: bytes, rng: random.Random) -> str:
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
        return f"status {status.code}"
    return "messages"


def into_detection(octets: bytes, rng: random.Random) -> str:
    verdict = protocol_detection.detect(octets)
    for size in range(0, min(24, len(octets)), 5):
        early = protocol_detection.detect(octets[:size])
        # What was said of a part holds for the whole.
        assert early is protocol_detection.WireProtocol.NEED_MORE or type(early) is type(verdict), size
    return "rejected" if isinstance(verdict, protocol_detection.Reject) else verdict.name


ENDS: Final = ("open", *(f"GOAWAY {code}," for code in (1, 3, 5, 6, 9, 11)))
"""Every fault that a peer can cause."""


def connections() -> Sequence[bytes]:
    return [*recordings().values(), *(GREETING + calls for calls in SHORT)]


def into_framing(octets: bytes, rng: random.Random) -> str:
    return f"{into_messages(octets, rng)}, {into_detection(octets, rng)}"


BODIES = [prefixed(b"hello") * 3, prefixed(b""), prefixed(bytes(200)) + prefixed(b"z", flag=1)]
BEGINNINGS = [PREFACE + GREETING, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
