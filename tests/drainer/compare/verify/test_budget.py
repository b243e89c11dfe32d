"""The budget of a comparison: a pace that is kept, and given up to a Drainer that falls behind."""

from __future__ import annotations

import pytest

from drainer.compare.verify.budget import BEHIND_S, CHUNK_ROWS_MAX, CHUNK_ROWS_MIN, LEAST, ROWS_S, Budget


def read(budget: Budget, seconds: float, rows: int, now_s: float = 0.0) -> int:
    """How many rows one reader reads in that time, in chunks of so many."""
    end_s, done = now_s + seconds, 0
    while (now_s := now_s + budget.wait_s(now_s)) < end_s:
        expected = budget.begin(now_s)
        budget.end(expected, rows, now_s)
        done += rows
    return done


@pytest.mark.parametrize("rows_s", [1_000, ROWS_S, 2_000_000])
def test_no_more_than_the_limit_is_read(rows_s: int) -> None:
    budget = Budget(rows_s)
    done = read(budget, 60.0, budget.chunk_rows)
    assert 0.99 * 60 <= done / rows_s <= 60 + 0.25 + budget.chunk_rows / rows_s


def test_a_chunk_is_a_tenth_of_a_second_of_it() -> None:
    assert Budget(ROWS_S).chunk_rows == ROWS_S // 10
    assert Budget(10).chunk_rows == CHUNK_ROWS_MIN
    assert Budget(10**9).chunk_rows == CHUNK_ROWS_MAX


def test_chunks_follow_each_other_before_it_is_known_what_they_had() -> None:
    budget = Budget(10_000)
    began = [0.0]
    for _ in range(3):  # nothing is answered yet
        budget.begin(began[-1])
        began.append(began[-1] + budget.wait_s(began[-1]))
    assert began == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_what_a_chunk_did_not_have_is_given_back() -> None:
    budget = Budget(10_000)
    expected = budget.begin(0.0)
    budget.end(expected, 100, 0.0)
    assert budget.wait_s(0.0) == pytest.approx(0.01)


def test_without_a_limit_nothing_waits_and_nothing_slows() -> None:
    budget = Budget(0)
    budget.heard(0.0)
    for second in range(20):
        budget.heard(100.0)
        budget.end(budget.begin(float(second)), 10**9, float(second))
    assert (budget.wait_s(20.0), budget.rows_s, budget.chunk_rows) == (0.0, 0, CHUNK_ROWS_MAX)


def test_a_drainer_that_falls_behind_is_given_way_and_one_that_keeps_up_gives_it_back() -> None:
    budget = Budget(16_000)
    budget.heard(0.5)
    paces = []
    for behind_s in (0.9, BEHIND_S, 2.1, 3.0, 9.0, 30.0, 90.0, 1.0, 1.0, 1.0):
        budget.heard(behind_s)
        paces.append(budget.rows_s)
    assert paces == [16_000, 16_000, 8_000, 4_000, 2_000, 1_000, 1_000, 1_250, 1_562, 1_953]
    assert min(paces) == 16_000 * LEAST
    assert read(budget, 10.0, 500) == pytest.approx(19_530, abs=1_000)
    for _ in range(40):
        budget.heard(0.0)
    assert budget.rows_s == 16_000


def test_a_drainer_that_was_behind_before_is_not_held_against_us() -> None:
    budget = Budget(1_000)
    for behind_s in (600.0, 1_100.0, 400.0, 790.0):
        budget.heard(behind_s)
    assert budget.rows_s == 1_000
    budget.heard(810.0)  # twice of what it has come down to
    assert budget.rows_s == 500


def test_what_was_read_is_paid_for_at_the_pace_at_which_it_was_read() -> None:
    budget = Budget(1_000)
    budget.heard(0.0)
    budget.heard(50.0)
    budget.end(budget.begin(0.0), 1_000, 0.0)
    assert budget.wait_s(0.0) == 2.0
    budget.heard(0.0)
    assert budget.wait_s(0.0) == 2.0
