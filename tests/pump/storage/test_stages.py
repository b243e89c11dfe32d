"""How far the stages are behind, against an oracle that remembers everything."""

from __future__ import annotations

import random

from pump.log.record import START, ValuePointer
from pump.storage.stages import Arrivals, bytes_between


def test_bytes_between_places_counts_whole_files() -> None:
    ends = {0: 100, 1: 50, 2: 70}.__getitem__
    assert bytes_between(ValuePointer(0, 10), ValuePointer(0, 30), ends) == 20
    assert bytes_between(ValuePointer(0, 10), ValuePointer(2, 5), ends) == 90 + 50 + 5
    assert bytes_between(ValuePointer(1, 50), ValuePointer(2, 0), ends) == 0
    assert bytes_between(ValuePointer(2, 5), ValuePointer(0, 10), ends) == 0
    assert bytes_between(START, START, ends) == 0


def test_age_is_that_of_the_first_byte_behind_the_place() -> None:
    rng = random.Random(5)
    for _ in range(50):
        arrivals, seen, offset, now_s = Arrivals(), [], 0, 0.0
        for _ in range(200):
            now_s += rng.choice((0.06, 0.5, 3.0))
            offset += rng.choice((0, 0, 10, 100))
            place = ValuePointer(offset // 1000, offset % 1000)
            arrivals.note(place, now_s)
            if not seen or place > seen[-1][0]:
                seen.append((place, now_s))
            asked = ValuePointer(rng.randrange(offset // 1000 + 2), rng.randrange(1000))
            expected = next((now_s - at_s for end, at_s in seen if end > asked), 0.0)
            assert arrivals.age_s(asked, now_s) == expected


def test_a_long_history_takes_bounded_memory_and_tells_ages_rather_too_large() -> None:
    arrivals, seen = Arrivals(), []
    for second in range(20_000):
        place = ValuePointer(0, second * 10 + 10)
        arrivals.note(place, float(second))
        seen.append(place)
    assert len(arrivals._ends) == len(arrivals._times) <= 2048
    assert arrivals._ends == sorted(arrivals._ends)
    assert arrivals._times == sorted(arrivals._times)
    for second in range(0, 20_000, 37):
        true_s = 20_000.0 - second
        told_s = arrivals.age_s(ValuePointer(0, second * 10), 20_000.0)
        assert true_s <= told_s
        assert told_s - true_s <= true_s / 24
    assert arrivals.age_s(seen[-2], 20_000.0) == 1.0
    assert arrivals.age_s(seen[-1], 20_000.0) == 0.0


def test_moments_that_are_near_are_one() -> None:
    arrivals = Arrivals()
    for turn in range(1000):
        arrivals.note(ValuePointer(0, turn + 1), turn * 0.001)
    assert len(arrivals._ends) <= 21
    assert 0.5 <= arrivals.age_s(ValuePointer(0, 500), 1.0) < 0.56
    apart = Arrivals()
    for end in (1, 2):
        apart.note(ValuePointer(0, end), (end - 1) * 0.05)
    assert apart.age_s(ValuePointer(0, 1), 1.0) == 0.95
