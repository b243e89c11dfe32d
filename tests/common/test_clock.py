"""Clocks: what goes back and what does not."""

from __future__ import annotations

from tidb_binlog.clock import ManualClock, SystemClock, boot_s


def test_a_manual_clock_moves_only_when_it_is_advanced() -> None:
    clock = ManualClock(1000.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (1000.0, 1000.0)
    clock.advance(2.5)
    assert (clock.wall_s(), clock.monotonic_s()) == (1002.5, 1002.5)


def test_the_machines_monotonic_clocks_never_go_back() -> None:
    clock = SystemClock()
    read = [(clock.monotonic_s(), boot_s()) for _ in range(100)]
    assert read == sorted(read)
    assert clock.wall_s() > 1_700_000_000
