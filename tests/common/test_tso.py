"""Timestamps: 46 bits of milliseconds, 18 bits of counter."""

from __future__ import annotations

from tidb_binlog import tso
from tidb_binlog.clock import ManualClock


def test_parts() -> None:
    assert tso.compose(123, 456) == 32244168
    assert tso.physical_ms(32244168) == 123
    assert tso.physical_s(tso.compose(1_500)) == 1.5
    assert tso.physical_ms(470607645779951618) == 1795225699539  # 2026-11-21 01:48:19.539 UTC


def test_age_follows_the_clock() -> None:
    clock = ManualClock(1000.0)
    ts = tso.from_wall_s(clock.wall_s())
    clock.advance(2.5)
    assert tso.age_s(ts, clock.wall_s()) == 2.5
