from __future__ import annotations

import itertools
import random

import pytest

from drainer.operate.control.rate_limit import BURST_S, Limits, RateLimit


def test_unlimited_never_waits() -> None:
    rate = RateLimit()
    for now_s in (0.0, 5.0):
        rate.take(10**9, 10**12, now_s)
        assert rate.wait_s(now_s) == 0.0


def test_one_limit_is_enough_not_to_be_unlimited() -> None:
    told = [Limits(rows, size).unlimited for rows in (0, 1) for size in (0, 1)]
    assert told == [True, False, False, False]


@pytest.mark.parametrize(("limits", "expected_s"), [(Limits(100, 0), 2.0), (Limits(0, 1000), 4.0)])
def test_what_went_out_is_paid_for(limits: Limits, expected_s: float) -> None:
    rate = RateLimit(limits)
    rate.take(200, 4000, 1000.0)
    assert rate.wait_s(1000.0) == pytest.approx(expected_s - BURST_S)
    assert rate.wait_s(1000.0 + expected_s) == 0.0


def test_the_slower_of_both_limits_counts() -> None:
    rate = RateLimit(Limits(100, 1000))
    rate.take(100, 5000, 50.0)
    assert rate.wait_s(50.0) == pytest.approx(5.0 - BURST_S)


def test_a_transaction_larger_than_any_burst_goes_out_whole() -> None:
    rate = RateLimit(Limits(rows=10))
    assert rate.wait_s(100.0) == 0.0
    rate.take(1_000_000, 1, 100.0)
    assert rate.wait_s(100.0) == pytest.approx(100_000 - BURST_S)


def test_another_limit_forgives_old_debts_but_gives_no_second_burst() -> None:
    rate = RateLimit(Limits(rows=1))
    rate.take(1000, 0, 10.0)
    rate.change(Limits(rows=1000), 10.0)
    assert rate.wait_s(10.0) == 0.0
    rate.take(1000, 0, 10.0)
    assert rate.wait_s(10.0) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_no_span_of_time_carries_more_than_allowed(seed: int) -> None:
    """Against the definition: over every span, (span + burst) times the limit and one transaction at most."""
    rng = random.Random(seed)
    limits = Limits(rng.choice([0, 50, 1000]), rng.choice([0, 4000]))
    rate = RateLimit(limits)
    now_s, sent = 100.0, []
    for _ in range(120):
        now_s += rng.choice([0.0, 0.0, 0.001, 0.1, 3.0])
        now_s += rate.wait_s(now_s)
        rows, size = rng.randint(1, 60), rng.randint(1, 500)
        rate.take(rows, size, now_s)
        sent.append((now_s, rows, size))
    for first, last in itertools.combinations_with_replacement(range(len(sent)), 2):
        span_s = sent[last][0] - sent[first][0]
        for column, limit in ((1, limits.rows), (2, limits.size)):
            if limit:
                total = sum(entry[column] for entry in sent[first : last + 1])
                assert total <= (span_s + BURST_S) * limit + sent[last][column] + 1e-6


def test_the_mean_reaches_the_limit() -> None:
    rate = RateLimit(Limits(rows=1000))
    now_s = 100.0
    for _ in range(1000):
        now_s += rate.wait_s(now_s)
        rate.take(50, 0, now_s)
    assert 50 * 1000 / (now_s - 100.0) == pytest.approx(1000, rel=0.01)
