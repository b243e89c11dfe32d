"""For how long transactions have been asked about, when there are too many of them."""

from __future__ import annotations

from pump.index.sorter import OPEN_MAX
from tidb_binlog.upstream.watched import WATCHED_MAX, Watched


def test_time_runs_from_the_first_question_in_an_unchanged_state() -> None:
    watched = Watched()
    assert [watched.seconds(1, now_s) for now_s in (5.0, 6.0, 9.0)] == [0.0, 1.0, 4.0]
    assert watched.seconds(1, 10.0, state=7) == 0.0
    assert watched.seconds(1, 12.0, state=7) == 2.0
    watched.forget(1)
    watched.forget(1)
    assert watched.seconds(1, 13.0, state=7) == 0.0


def test_all_that_a_pump_lets_be_open_are_found_again_in_turns_beside_others_that_ended_elsewhere() -> None:
    watched, others = Watched(), iter(range(10**9, 10**10))
    for turn in range(3):
        for start_ts in range(OPEN_MAX):
            assert watched.seconds(start_ts, float(turn)) == turn
            if start_ts % 2:
                watched.seconds(next(others), float(turn))
    assert len(watched) <= WATCHED_MAX


def test_three_times_the_bound_is_no_more_than_the_bound_and_forgets_the_oldest() -> None:
    watched = Watched(at_most=1000)
    for start_ts in range(3000):
        watched.seconds(start_ts, 0.0)
        assert watched.seconds(0, float(start_ts)) == start_ts, "who is asked about is kept"
        assert len(watched) <= 1000
    assert watched.seconds(2999, 5.0) == 5.0
    assert watched.seconds(1, 5.0) == 0.0
