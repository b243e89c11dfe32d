"""Clocks: what goes back and what does not."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes import virtual_time
from tidb_binlog.clock import ManualClock, SystemClock, boot_s, look_later


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


def test_all_who_look_now_and_then_wake_together() -> None:
    woken: list[float] = []

    async def pause(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(seconds, over.set_result, None)
        await over

    async def look(begins_s: float, every_s: float) -> None:
        await pause(begins_s)
        for _ in range(4):
            await look_later(every_s)
            woken.append(asyncio.get_running_loop().time())

    async def all_of_them() -> None:
        await asyncio.gather(*(look(begins_s, 1.0) for begins_s in (0.01, 0.2, 0.3, 0.49)), look(0.13, 0.5))

    virtual_time.run(all_of_them())
    assert set(woken) <= {number / 2 for number in range(20)}
    assert len(set(woken)) < len(woken) / 2


def test_what_is_soon_is_not_moved() -> None:
    async def soon() -> float:
        await look_later(0.31)
        await look_later(0.01)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(soon()) == pytest.approx(0.32)
