"""Lane tuning against curves: it finds the hill, and then leaves it alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from drainer.sink.mysql import lanes as lanes_module
from drainer.sink.mysql.lane_tuning import (
    GAIN,
    LANES_MIN,
    REST_SAMPLES,
    TRIAL_SAMPLES,
    LaneSample,
    LaneTuning,
)
from drainer.sink.mysql.lanes import TUNE_S, LaneCount
from tidb_binlog.clock import ManualClock

Curve = Callable[[int], float]


def drive(tuning: LaneTuning, curve: Curve, samples: int, noise: float = 0.0, seed: int = 1) -> list[int]:
    """The count in use during each sample."""
    random = Random(seed)
    used = []
    for _ in range(samples):
        lanes = tuning.lanes
        used.append(lanes)
        rate = curve(lanes) * (1 + random.uniform(-noise, noise))
        assert tuning.decide(LaneSample(lanes, int(rate * 1000), 1000.0, 0.9)) == tuning.lanes
    return used


def changes(used: list[int]) -> int:
    return sum(before != after for before, after in itertools.pairwise(used))


def hill(top: int) -> Curve:
    return lambda lanes: 10_000 * min(lanes, top) / max(1, lanes - top + 1) ** 0.5


@pytest.mark.parametrize("top", range(LANES_MIN, 9))
@pytest.mark.parametrize("begin", [2, 4, 8])
def test_it_climbs_to_the_top_from_anywhere(top: int, begin: int) -> None:
    used = drive(LaneTuning(begin, 8), hill(top), 100)
    assert max(used[60:], key=used[60:].count) == top


@pytest.mark.parametrize("begin", [2, 4, 8])
def test_a_flat_curve_is_left_where_it_was(begin: int) -> None:
    tuning = LaneTuning(begin, 8)
    used = drive(tuning, lambda lanes: 50_000.0, 2000)
    assert used.count(begin) > 0.9 * len(used)
    assert changes(used[200:]) <= 20, "pauses double"


def test_a_gain_within_the_noise_is_no_reason() -> None:
    used = drive(LaneTuning(4, 8), lambda lanes: 50_000.0 * (1 + GAIN * 0.9 * (lanes > 4)), 400)
    assert used.count(4) > 0.85 * len(used)


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_make_it_flap(seed: int) -> None:
    used = drive(LaneTuning(4, 16), lambda lanes: 50_000.0, 1000, noise=0.15, seed=seed)
    assert changes(used) <= 40
    assert changes(used[-200:]) <= 6


@pytest.mark.parametrize("seed", range(10))
def test_a_clear_hill_is_found_in_noise(seed: int) -> None:
    used = drive(LaneTuning(2, 16), lambda lanes: 10_000.0 * min(lanes, 10), 400, noise=0.1, seed=seed)
    assert sum(used[200:]) / 200 >= 8


def test_it_never_leaves_the_bounds() -> None:
    assert set(drive(LaneTuning(9, 6), lambda lanes: 1000.0 * lanes, 100)) <= set(range(LANES_MIN, 7))
    assert set(drive(LaneTuning(3, 1), lambda lanes: 1000.0 * lanes, 100)) == {1}, "one lane is asked for"
    assert set(drive(LaneTuning(1, 2), lambda lanes: 1000.0 / lanes, 100)) == {2}


def test_idle_lanes_say_nothing() -> None:
    tuning = LaneTuning(4, 8)
    for _ in range(100):
        assert tuning.decide(LaneSample(4, 1000, 1.0, 0.2)) == 4
        assert tuning.decide(LaneSample(4, 0, 1.0, 0.9)) == 4
    assert not tuning.on_trial


def test_samples_of_another_count_are_not_counted() -> None:
    tuning = LaneTuning(4, 8)
    for _ in range(100):
        assert tuning.decide(LaneSample(3, 1000, 1.0, 0.9)) == 4


def test_another_load_is_searched_at_once() -> None:
    tuning = LaneTuning(4, 8)
    drive(tuning, lambda lanes: 50_000.0, 500)
    used = drive(tuning, lambda lanes: 1_000.0 * min(lanes, 8), REST_SAMPLES + 12 * TRIAL_SAMPLES)
    assert used[-1] >= 7, "no pause of hundreds of samples, though the flat curve had earned one"


# -- the samples, taken while there is work ----------------------------------------------------------------


class Lanes:
    """As many as are wanted, always busy."""

    def __init__(self) -> None:
        self.count = 2

    def __len__(self) -> int:
        return self.count

    def busy(self) -> float:
        return 0.9


async def test_lanes_are_looked_at_each_second_and_as_many_wanted_as_do_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, lanes, samples = ManualClock(), Lanes(), list[LaneSample]()
    rows, looks, curve = 0, 0, hill(4)
    counter = LaneCount(2, 8, lambda: cast(Any, lanes), lambda: rows, clock)
    decide = counter._tuning.decide

    def seen(sample: LaneSample) -> int:
        samples.append(sample)
        return decide(sample)

    async def sleep(seconds: float) -> None:
        """The work of that time, after which the applier has as many lanes as are wanted."""
        nonlocal rows, looks
        if (looks := looks + 1) > 100:
            raise asyncio.CancelledError
        lanes.count = counter.goal
        clock.advance(seconds)
        rows += int(curve(lanes.count) * seconds)

    monkeypatch.setattr(counter._tuning, "decide", seen)
    monkeypatch.setattr(lanes_module, "look_later", sleep)
    with pytest.raises(asyncio.CancelledError):
        await counter.run()
    assert samples == [
        LaneSample(each.lanes, int(curve(each.lanes) * TUNE_S), pytest.approx(TUNE_S), 0.9)  # type: ignore[arg-type]
        for each in samples
    ]
    used = [each.lanes for each in samples[60:]]
    assert max(used, key=used.count) == 4
