"""What conformance runs with real clients found, each as a case of its own."""

from __future__ import annotations

import pytest

from common.door.abuse import Abuse
from common.door.frames import ENHANCE_YOUR_CALM, ConnectionFault
from common.door.limits import Limits

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
