"""Bursts and rests fill the hours, the last burst is known as such, and who rests writes now and then."""

from __future__ import annotations

import asyncio
import random

from tests.fakes import virtual_time
from tests.sim.rhythm import Rhythm

HOUR_S = 3600.0


def test_a_world_of_seconds_is_one_burst() -> None:
    rhythm = Rhythm(random.Random(1), 40.0, 0.0)
    assert list(rhythm.parts()) == [40.0]
    assert rhythm.is_last
    assert rhythm.busy.is_set()
    assert {rhythm.lasts_s(1.0, 5.0) for _ in range(20)} == {1.0, 5.0}


def test_rests_fill_the_hours_and_after_the_last_one_comes_the_last_burst() -> None:
    rhythm = Rhythm(random.Random(1), 40.0, 24.0)
    parts = [(seconds, rhythm.busy.is_set(), rhythm.is_last) for seconds in rhythm.parts()]
    bursts, rests = parts[::2], [seconds for seconds, *_ in parts[1::2]]
    assert {seconds for seconds, *_ in bursts} == {40.0}
    assert [is_busy for _, is_busy, _ in parts] == [True, False] * len(rests) + [True]
    assert [is_last for *_, is_last in parts] == [False] * (len(parts) - 1) + [True]
    assert 24 * HOUR_S - 1 < sum(rests) + 40 * len(rests) < 24 * HOUR_S + 41
    assert min(rests) < 600.0 < HOUR_S < max(rests)


def test_in_a_rest_a_program_writes_now_and_then_and_at_once_when_it_ends() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        rhythm = Rhythm(random.Random(1), 40.0, 24.0)
        turns: list[float] = []
        parts = rhythm.parts()
        next(parts), next(parts)
        loop.call_at(24 * HOUR_S, rhythm.busy.set)
        while not rhythm.busy.is_set():
            await rhythm.turn()
            turns.append(loop.time())
        await rhythm.turn()
        return [*turns, loop.time()]

    *turns, now_s = virtual_time.run(main())
    assert 24 < len(turns) < 100
    assert turns[-1] == now_s == 24 * HOUR_S


def test_in_a_rest_less_goes_wrong_and_it_lasts_for_longer() -> None:
    rhythm = Rhythm(random.Random(1), 40.0, 24.0)
    parts = rhythm.parts()
    next(parts)
    busy = [rhythm.pause_s() for _ in range(100)]
    next(parts)
    assert sum(busy) < 200 < 50_000 < sum(rhythm.pause_s() for _ in range(100))
    assert {rhythm.lasts_s(20.0) for _ in range(100)} == {20.0, 1200.0, 12_000.0}
