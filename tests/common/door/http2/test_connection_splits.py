"""However the network cuts what a client sends, the door hears and answers the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.common.door.support.door_recordings import recordings
from tests.common.door.support.model import Door, Reply
from tidb_binlog.door.protocol_detection import WireProtocol, detect
from tidb_binlog.http2.frames import PREFACE

NAMES = list(recordings())


def heard(parts: list[bytes]) -> tuple[Any, ...]:
    """All parts in one turn: what is heard and answered, octet for octet."""
    door = Door()
    for part in parts:
        door.connection.receive(part, door.now_s)
    door.settle()
    return outcome(door), bytes(door.sent)


def outcome(door: Door) -> tuple[Any, ...]:
    calls = {path: (method.started, method.succeeded, method.failed) for path, method in door.methods.items()}
    streams = {
        stream.id: (stream.remote_open, stream.receive_window, stream.owed, stream.send_window, stream.queued)
        for stream in door.connection.streams.values()
    }
    return sorted(door.runner.seen), calls, streams, door.fault, door.session.held, door.connection.last_id


def said(reply: Reply) -> tuple[Any, ...]:
    return reply.heads, reply.body, reply.ended, reply.reset


def turn_by_turn(parts: list[bytes]) -> tuple[Any, ...]:
    """Each part in a turn of its own: streams may be answered in another order."""
    door = Door()
    for part in parts:
        door.receive(part)
    replies = {stream: said(reply) for stream, reply in door.reader.replies.items()}
    reader = door.reader
    return outcome(door), replies, reader.updates, len(reader.pings), reader.acks


@pytest.mark.parametrize("name", NAMES)
def test_split_in_two_anywhere(name: str) -> None:
    octets = recordings()[name]
    whole, replies = heard([octets]), turn_by_turn([octets])
    for at in range(1, len(octets)):
        parts = [octets[:at], octets[at:]]
        assert heard(parts) == whole, at
        assert turn_by_turn(parts) == replies, at


@pytest.mark.parametrize("name", NAMES)
def test_octet_by_octet(name: str) -> None:
    octets = recordings()[name]
    for size in (1, 2, 3, 8, 9, 10, 17):
        parts = [octets[at : at + size] for at in range(0, len(octets), size)]
        assert heard(parts) == heard([octets]), size
        assert turn_by_turn(parts) == turn_by_turn([octets]), size


@pytest.mark.parametrize("name", NAMES)
def test_split_at_random(name: str) -> None:
    octets = recordings()[name]
    rng = random.Random(name)
    whole = heard([octets])
    for _ in range(60):
        cuts = sorted(rng.sample(range(1, len(octets)), rng.randrange(2, 9)))
        parts = [octets[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
        assert heard(parts) == whole, cuts


@pytest.mark.parametrize("name", NAMES)
def test_the_calls_of_a_recording_end_well(name: str) -> None:
    door = Door()
    door.receive(recordings()[name])
    for call in list(door.runner.parked):
        call.succeed(b"done")
    door.settle()
    assert door.fault is None
    assert all(reply.ended == 1 for reply in door.reader.replies.values())
    door.check_empty()


def test_the_preface_is_seen_with_its_last_octet() -> None:
    octets = PREFACE + recordings()["go"]
    for size in range(len(octets)):
        assert detect(octets[:size]) is (WireProtocol.HTTP2 if size >= 24 else WireProtocol.NEED_MORE)
