"""Upstream time: a bound that keeps no valid timestamp out, whatever the oracle does, and costs few draws."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tests.pump.support.scripted import ScriptedOracle
from tidb_binlog import tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.upstream_time import AHEAD_MAX_S, UpstreamTime

AHEAD = tso.compose(int(AHEAD_MAX_S * 1000))


class AtClock(ScriptedOracle):
    """The time of a clock."""

    def __init__(self, clock: ManualClock | LoopClock) -> None:
        super().__init__()
        self.clock = clock
        self.ahead_s = 0.0

    async def timestamp(self) -> Ts:
        self.pinned = tso.from_wall_s(self.clock.wall_s() + self.ahead_s)
        return await super().timestamp()


async def test_nothing_is_kept_out_before_the_first_draw() -> None:
    time = UpstreamTime(ScriptedOracle(), ManualClock())
    assert (time.limit_ts, time.now_ts, time.ahead_s) == (tso.TS_MAX, 0, 0.0)
    assert time.now_s() == ManualClock().wall_s()


@pytest.mark.parametrize("seed", range(5))
def test_no_valid_timestamp_is_kept_out_and_none_of_tomorrow_let_in(seed: int) -> None:
    """The oracle may be away for long."""
    assert AHEAD_MAX_S < 60

    async def main() -> None:
        rng, clock = random.Random(seed), LoopClock()
        oracle = AtClock(clock)
        time = UpstreamTime(oracle, clock)
        await time.draw()
        task = asyncio.create_task(time.run())
        for _ in range(12):
            oracle.silent = rng.random() < 0.5
            await virtual_time.passes(rng.choice((0.1, 1, 30, 3000)))
            now_ts = tso.from_wall_s(clock.wall_s())
            assert now_ts + AHEAD // 2 < time.limit_ts < now_ts + AHEAD + tso.compose(50)
            assert abs(tso.age_s(time.now_ts, clock.wall_s())) < 0.01
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual_time.run(main())


async def test_all_who_ask_share_a_draw_and_there_are_few() -> None:
    clock = ManualClock()
    oracle = AtClock(clock)
    time = UpstreamTime(oracle, clock)
    await asyncio.gather(*(time.refresh() for _ in range(50)))
    assert oracle.draws == 1
    clock.advance(3600)
    oracle.ahead_s = 8 * 86_400
    await time.refresh()
    assert oracle.draws == 2
    assert time.limit_ts == tso.from_wall_s(clock.wall_s() + 8 * 86_400) + AHEAD


async def test_what_others_drew_is_known_without_a_draw() -> None:
    """A clock that stood for a replay runs again: pumps' watermarks tell."""
    clock = ManualClock()
    oracle = AtClock(clock)
    oracle.ahead_s = -2 * 86_400
    time = UpstreamTime(oracle, clock)
    await time.timestamp()
    assert time.ahead_s == -2 * 86_400
    clock.advance(10)
    time.heard(tso.from_wall_s(clock.wall_s()))
    assert (time.ahead_s, oracle.draws) == (0.0, 1)
    time.heard(1)
    clock.advance(10)
    time.heard(time.now_ts - 1)
    assert time.ahead_s == 0.0, "what is older than is known says nothing"


async def test_what_others_say_was_drawn_is_believed_up_to_now_and_not_before_the_first_draw() -> None:
    clock = ManualClock()
    time = UpstreamTime(AtClock(clock), clock)
    assert not time.may_have_given(tso.from_wall_s(clock.wall_s()))
    await time.draw()
    clock.advance(50)
    now_s = clock.wall_s()
    assert time.may_have_given(tso.from_wall_s(now_s))
    assert time.may_have_given(tso.from_wall_s(now_s + 0.09)), "a clock that runs a little fast upstream"
    assert not time.may_have_given(tso.from_wall_s(now_s + 0.11))


async def test_nonsense_of_the_oracle_is_shown_and_asked_again() -> None:
    clock = ManualClock()

    class Nonsense(AtClock):
        garbage = True

        async def timestamp(self) -> Ts:
            if self.garbage:
                raise Corruption("etcd key tso does not hold a number")
            return await super().timestamp()

    oracle = Nonsense(clock)
    time = UpstreamTime(oracle, clock)
    await time.refresh()
    assert "does not hold a number" in time.trouble
    clock.advance(60)
    oracle.garbage = False
    await time.refresh()
    assert not time.trouble


def test_draws_are_few_and_trouble_is_over_when_the_oracle_is_back() -> None:
    async def main() -> None:
        clock = LoopClock()
        oracle = AtClock(clock)
        time = UpstreamTime(oracle, clock)
        task = asyncio.create_task(time.run())
        await virtual_time.passes(600)
        assert oracle.draws <= 11
        oracle.silent = True
        await virtual_time.passes(130)
        assert time.trouble
        oracle.silent = False
        await virtual_time.passes(2)
        assert not time.trouble
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual_time.run(main())


async def test_an_upstream_clock_that_is_not_this_hosts_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    oracle = AtClock(clock)
    time = UpstreamTime(oracle, clock)
    for ahead_s, told in ((0.0, 0), (60.0, 1), (60.0, 1), (0.0, 1), (-60.0, 2)):
        oracle.ahead_s = ahead_s
        clock.advance(300)
        await time.refresh()
        assert sum("upstream's clock is not this host's" in line for line in caplog.messages) == told
    assert time.facts().ahead_of_host_s == -60.0
    assert time.clock.wall_s() == pytest.approx(clock.wall_s() - 60.0)
    assert time.clock.monotonic_s() == clock.monotonic_s()


def test_who_asks_gets_a_draw_that_began_afterwards_whatever_others_ask() -> None:
    """What a writer brings was drawn before it asks: a draw that was under way may be older."""

    async def main() -> None:
        clock = LoopClock()

        class Slow(AtClock):
            async def timestamp(self) -> Ts:
                ts = await super().timestamp()
                await virtual_time.passes(0.02)
                return ts

        oracle = Slow(clock)
        time, rng, began_s = UpstreamTime(oracle, clock), random.Random(1), clock.monotonic_s()

        async def ask(at_s: float) -> None:
            await virtual_time.passes(at_s)
            oracle.ahead_s = max(oracle.ahead_s, asked_s := clock.monotonic_s() * 1000)
            ts = tso.from_wall_s(clock.wall_s() + asked_s)
            await time.refresh()
            assert ts <= time.limit_ts
            assert clock.monotonic_s() - began_s - at_s < 0.2, "others ask all the time"

        await asyncio.gather(*(ask(rng.uniform(0, 3)) for _ in range(500)))
        assert oracle.draws <= 3 / 0.05 + 3

    virtual_time.run(main())
