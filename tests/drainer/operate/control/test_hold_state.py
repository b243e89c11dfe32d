"""The hold of a stream: where it stands, how long, and who is told what when something comes in between."""

from __future__ import annotations

import itertools

import pytest

from drainer.operate.control.hold_state import NEVER, HoldPoint, HoldState, Released
from tidb_binlog.errors import BinlogError, Conflict, Rejected, Unavailable
from tidb_binlog.tso import TS_MAX


def opened(floor_ts: int = 0) -> HoldState:
    state = HoldState()
    state.open(floor_ts)
    return state


def ask(state: HoldState, token: str, limit_s: float, now_s: float = 0.0) -> None:
    state.ask(token, limit_s, 100.0, now_s)


def go_on(state: HoldState, at_ts: int, now_s: float, place_ts: int = 0) -> None:
    state.go_on("a", at_ts, place_ts, 100.0, now_s)


def arrived(state: HoldState, ts: int, now_s: float) -> None:
    state.stand(now_s)
    state.arrive(HoldPoint(ts, 9, 5, ("shop.t",)), now_s)


def test_a_hold_stands_where_the_stream_is_and_counts_the_time() -> None:
    state = opened()
    ask(state, "a", 2.0)
    assert state.boundary_ts == 0, "before any transaction"
    assert state.held("a") is None
    state.stand(10.0)
    state.stand(10.25)
    assert not state.is_held, "what was given is still being done"
    state.arrive(HoldPoint(90, 9, 5, ("shop.t",)), 10.5)
    assert state.held("a") == HoldPoint(90, 9, 5, ("shop.t",))
    assert state.boundary_ts == NEVER
    assert state.left_s(11.0) == 1.5
    assert state.release("a", 11.0) == Released(1.0, True)
    assert not state.is_held
    assert state.boundary_ts == NEVER


def test_it_goes_on_to_exactly_a_later_place() -> None:
    state = opened()
    ask(state, "a", 2.0)
    arrived(state, 90, 10.0)
    go_on(state, 100, 10.25)
    assert not state.is_held, "rows go out again"
    assert state.boundary_ts == 100
    arrived(state, 97, 11.0)
    assert state.held("a") == HoldPoint(100, 9, 5, ("shop.t",)), "nothing was committed from 97 to 100"
    assert state.release("a", 11.25) == Released(0.5, True), "the time between is not counted"


def test_it_cannot_go_back() -> None:
    state = opened(floor_ts=70)
    ask(state, "a", 2.0)
    with pytest.raises(Rejected, match="at 80 already, and cannot go back to 79"):
        go_on(state, 79, 1.0, place_ts=80)
    with pytest.raises(Rejected, match="cannot go back to 69"):
        go_on(state, 69, 1.0, place_ts=60)
    arrived(state, 90, 1.0)
    with pytest.raises(Rejected, match="at 90 already, and cannot go back to 89"):
        go_on(state, 89, 1.0)
    assert state.is_held
    with pytest.raises(Rejected, match="the limit of 2 s was over"):
        go_on(state, 100, 3.0)
    state = opened()
    ask(state, "a", 2.0)
    go_on(state, 0, 1.0)
    assert state.boundary_ts == 0, "where it is"


def test_a_stream_that_nobody_holds_is_not_counted() -> None:
    state = opened()
    state.stand(1.0)
    assert state.held_s(5.0) == 0.0
    assert state.boundary_ts > TS_MAX


def test_one_that_is_released_on_the_way_is_over() -> None:
    state = opened()
    ask(state, "a", 2.0)
    why = "it was released before the stream was there"
    assert state.release("a", 1.0) == Released(0.0, False, why)
    ask(state, "b", 2.0)


def test_one_that_is_about_to_stand_can_go_on_and_does_not_stand_before() -> None:
    state = opened()
    ask(state, "a", 2.0)
    state.stand(1.0)
    go_on(state, 100, 1.25, place_ts=90)
    state.arrive(HoldPoint(90), 1.5)
    assert not state.is_held, "what it stood for is not wanted any more"
    assert state.boundary_ts == 100
    arrived(state, 100, 2.0)
    assert state.held("a") == HoldPoint(100, 9, 5, ("shop.t",))
    assert state.release("a", 2.5) == Released(0.75, True)


def test_one_that_is_not_reached_in_time_is_over() -> None:
    state = opened()
    state.ask("a", 2.0, 1.0, 10.0)
    state.stand(10.5)
    state.arrive(HoldPoint(90), 11.0)
    assert not state.is_held
    assert state.boundary_ts == NEVER
    assert state.release("a", 12.0) == Released(0.5, False, "the stream did not come there in time")
    state.ask("b", 2.0, 1.0, 12.0)
    state.stand(13.0)
    assert state.release("b", 14.0) == Released(0.0, False, "the stream did not come there in time")
    state.ask("b", 2.0, 1.0, 12.0)
    state.ask("c", 2.0, 1.0, 13.0)
    with pytest.raises(Conflict):
        state.ask("d", 2.0, 1.0, 13.5)


def test_the_limit_ends_it_whatever_became_of_the_asker() -> None:
    state = opened()
    ask(state, "a", 2.0)
    arrived(state, 90, 10.0)
    assert state.left_s(12.0) == 0.0
    assert not state.is_held
    assert state.release("a", 13.0) == Released(2.0, False, "the limit of 2 s was over")
    ask(state, "b", 2.0, 13.0)


def test_a_release_that_comes_late_is_not_valid_though_nobody_looked_before() -> None:
    state = opened()
    ask(state, "a", 2.0)
    arrived(state, 90, 10.0)
    assert not state.release("a", 12.5).valid


def test_nothing_below_the_floor_is_held() -> None:
    state = opened(floor_ts=70)
    ask(state, "a", 1.0)
    assert state.boundary_ts == 70


def test_one_holds_at_a_time() -> None:
    state = opened()
    ask(state, "a", 1.0)
    with pytest.raises(Conflict):
        ask(state, "b", 1.0)
    state.lose("b", "", 0.0)
    assert state.held("a") is None


def test_a_stream_that_ends_or_never_was_is_said() -> None:
    state = HoldState()
    with pytest.raises(Unavailable):
        ask(state, "a", 1.0)
    state.open(0)
    ask(state, "a", 1.0)
    arrived(state, 90, 1.0)
    state.close("the stream ended", 1.5)
    assert state.release("a", 1.5) == Released(0.5, False, "the stream ended")
    with pytest.raises(Rejected, match="over: the stream ended"):
        state.held("a")
    with pytest.raises(Unavailable):
        ask(state, "b", 1.0)


@pytest.mark.parametrize("token", ["", "x"])
def test_an_unknown_hold_is_refused(token: str) -> None:
    state = opened()
    with pytest.raises(Rejected, match="not known"):
        state.release(token, 0.0)


STEPS = {
    "open": lambda state, now_s: state.open(0),
    "close": lambda state, now_s: state.close("ended", now_s),
    "ask a": lambda state, now_s: ask(state, "a", 2.5, now_s),
    "ask b": lambda state, now_s: ask(state, "b", 2.5, now_s),
    "stream": lambda state, now_s: arrived(state, 50, now_s) if state.boundary_ts <= 50 else None,
    "go on": lambda state, now_s: go_on(state, 60, now_s),
    "time": lambda state, now_s: state.left_s(now_s),
    "release a": lambda state, now_s: state.release("a", now_s),
    "release b": lambda state, now_s: state.release("b", now_s),
}


def test_in_no_order_of_steps_do_two_hold_or_a_stream_stand_for_ever() -> None:
    for steps in itertools.product(STEPS, repeat=4):
        state = opened()
        for now_s, step in enumerate(steps):
            was = state.is_held
            try:
                STEPS[step](state, float(now_s))
            except BinlogError:
                assert state.is_held == was, "what is refused changes nothing"
            holders = [token for token in "ab" if held(state, token)]
            assert len(holders) == state.is_held, steps
            assert not (state.is_held and state.boundary_ts != NEVER), steps
        assert state.left_s(100.0) == 0.0
        assert not state.is_held, steps


def held(state: HoldState, token: str) -> bool:
    try:
        return state.held(token) is not None
    except Rejected:
        return False
