"""What conformance runs with real clients found, each as a case of its own."""

from __future__ import annotations

import pytest

from tests.common.door.support.model import GREETING, NOW_S, Exchanges, data, opened, rst, unary
from tidb_binlog.door.http2.abuse import Abuse
from tidb_binlog.door.http2.connection import Connection
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault

HOUR_S = 3600.0


def test_keepalive_at_the_gap_is_no_abuse() -> None:
    """grpc-js with a keepalive as long as the gap: its timer fires up to a millisecond early, for ever."""
    limits = Limits(ping_gap_s=10.0)
    abuse = Abuse(limits, 0.0)
    now_s = 0.0
    while now_s < HOUR_S:
        now_s += limits.ping_gap_s - 0.001
        abuse.ping(now_s, data_frames=7)


def test_keepalive_much_below_the_gap_is_abuse() -> None:
    limits = Limits(ping_gap_s=10.0, ping_strikes_max=10)
    abuse = Abuse(limits, 0.0)
    now_s = 0.0
    for _ in range(limits.ping_strikes_max + 1):  # the first comes after the first call
        abuse.ping(now_s, data_frames=7)
        now_s += 1.0
    with pytest.raises(ConnectionFault) as fault:
        abuse.ping(now_s, data_frames=7)
    assert fault.value.code == ENHANCE_YOUR_CALM
    assert fault.value.reason == "too_many_pings"


@pytest.mark.parametrize("piece_bytes", [7, 64, 1448])
def test_long_frame_in_many_pieces(piece_bytes: int) -> None:
    """Where long frames are allowed, each segment of one costs its own octets, not all that came before."""
    limits = Limits(frame_bytes_max=1 << 20, stream_window_bytes=1 << 20)
    above = Exchanges()
    connection = Connection(lambda _: above, limits, Budget(), NOW_S)
    connection.receive(GREETING + opened(1, "Park"), NOW_S)
    body = bytes(range(251)) * 4000
    octets = data(1, body, end=True) + opened(3, "Park")
    for at in range(0, len(octets), piece_bytes):
        connection.receive(octets[at : at + piece_bytes], NOW_S)
    assert connection.fault is None
    assert [event[0] for event in above.events] == ["request", "data", "request"]
    assert above.events[1] == ("data", 1, body, True)


def stalled(calls: int, stall_s: float) -> Connection:
    """So many calls of a peer are open, and given up together after a while."""
    above = Exchanges()
    connection = Connection(lambda _: above, Limits(), Budget(), NOW_S)
    connection.receive(GREETING, NOW_S)
    ids = range(1, 2 * calls, 2)
    connection.receive(b"".join(unary(stream_id, "Park", b"x") for stream_id in ids), NOW_S)
    connection.receive(b"".join(rst(stream_id) for stream_id in ids), NOW_S + stall_s)
    return connection


def test_deadlines_of_all_calls_at_once_are_no_abuse() -> None:
    """grpc-go resets each call whose deadline passes: 1,000 at once when their server's disk stalls."""
    connection = stalled(calls=1000, stall_s=2.0)
    assert connection.fault is None
    assert not connection.streams


def test_resets_at_once_are_abuse() -> None:
    fault = stalled(calls=1000, stall_s=0.5).fault
    assert fault is not None
    assert (fault.code, fault.limit) == (ENHANCE_YOUR_CALM, "resets")
