"""Score of a pump: what it says, and how seldom it says something else."""

from __future__ import annotations

import itertools
import random

import pytest

from pump.membership.score import BEST, PAUSE_S, STEP, TAKES_NOTHING, Facts, Score

GIB = 1 << 30


def facts(free: int = 100, stored: int = 0, queued: float = 0.0, *, takes: bool = True) -> Facts:
    return Facts(takes, free * GIB, stored * GIB, queued)


@pytest.mark.parametrize(
    ("found", "score"),
    [
        (facts(), BEST),
        (facts(free=75, stored=25), 75),
        (facts(free=25, stored=75), 25),
        (facts(free=50, stored=50, queued=0.5), 25),
        (facts(queued=7.0), 1),
        (facts(free=0, stored=10), 1),
        (facts(free=-3, stored=10), 1),
        (facts(free=0), 1),
        (facts(takes=False), TAKES_NOTHING),
    ],
)
def test_what_a_pump_says_first(found: Facts, score: int) -> None:
    assert Score().at(found, 5.0) == score


def test_it_says_in_the_same_moment_that_it_takes_nothing_and_that_it_does_again() -> None:
    score = Score()
    assert score.at(facts(), 0.0) == BEST
    assert score.at(facts(takes=False), 0.1) == TAKES_NOTHING
    assert score.at(facts(free=10, stored=90), 0.2) == 10


def test_small_changes_are_not_told_and_large_ones_not_often() -> None:
    score = Score()
    assert score.at(facts(free=80, stored=20), 0.0) == 80
    assert score.at(facts(free=71, stored=29), 60.0) == 80, "less than a step"
    assert score.at(facts(free=70, stored=30), 61.0) == 70
    assert score.at(facts(free=10, stored=90), 61.0 + PAUSE_S - 0.1) == 70, "too soon"
    assert score.at(facts(free=10, stored=90), 61.0 + PAUSE_S) == 10


def test_however_a_pump_that_takes_prewrites_fares_its_entry_changes_once_a_pause() -> None:
    for seed in range(20):
        rng, score = random.Random(seed), Score()
        told = [
            (at_s, score.at(facts(rng.randrange(100), rng.randrange(100), rng.random()), at_s))
            for at_s in (number * 0.5 for number in range(400))
        ]
        changes = [
            (after_s, after - before)
            for (_, before), (after_s, after) in itertools.pairwise(told)
            if after != before
        ]
        assert changes, "the figures say something"
        assert all(abs(step) >= STEP for _, step in changes)
        assert all(later - earlier >= PAUSE_S for (earlier, _), (later, _) in itertools.pairwise(changes))


def test_a_burst_counts_less_the_shorter_it_is() -> None:
    def after(burst_s: float) -> int:
        score = Score()
        score.at(facts(), 0.0)
        score.at(facts(), 100.0)
        return score.at(facts(queued=1.0), 100.0 + burst_s)

    assert [after(burst_s) for burst_s in (0.5, 2.0, 10.0, 60.0)] == [BEST, 87, 50, 2]
