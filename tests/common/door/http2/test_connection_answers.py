"""What a connection answers is no more than what it was sent is worth."""

from __future__ import annotations

import pytest

from tests.common.door.support.model import GREETING, NOW_S, SERVICE, FakeRunner, headers, ping, priority, rst
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.calls.session import Session
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2 import frames

METHODS = methods_of([SERVICE])

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
