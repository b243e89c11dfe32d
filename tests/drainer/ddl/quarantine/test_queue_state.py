"""The states of a queue: the whole product of states and events, and every order of events from a start."""

from __future__ import annotations

from itertools import product

import pytest

from drainer.ddl.quarantine.queue_state import TRANSITIONS, QueueEvent, QueueState, after, allows, merged
from tests.cases import case

S, E = QueueState, QueueEvent
PAIRS = list(product(QueueState, QueueEvent))
RELEASING = {S.RELEASING, S.RELEASING_AGAIN, S.ENDING, S.HALTING}
DECIDING = {S.DECIDING, S.DECIDING_HALTED}
OF_RELEASE = {E.END_REACHED, E.ROWS_REFUSED, E.STOPPED}
OF_DECISION = {E.DECISION_STORED, E.DECISION_FAILED}


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: one.name)
def test_every_pair_is_listed_or_refused(state: QueueState, event: QueueEvent) -> None:
    """By rules that do not know the table; what is refused leaves no state behind, for a state is a value."""
    if event in (E.KEPT, E.ASKED):
        expected = True  # the stream and operators wait for nothing here
    elif event in OF_RELEASE:
        expected = state in RELEASING and (event is E.STOPPED or state in (S.RELEASING, S.RELEASING_AGAIN))
    elif event in OF_DECISION:
        expected = state in DECIDING
    else:  # release and decisions begin where neither is under way
        expected = state not in RELEASING | DECIDING
    assert allows(state, event) is expected
    if not expected:
        with pytest.raises(AssertionError, match=state.name):
            after(state, event)
        return
    found = after(state, event)
    assert (found in RELEASING) is (event is not E.STOPPED and (state in RELEASING or event is E.STARTED))
    assert (found in DECIDING) is (
        event is E.DECISION_BEGUN or (state in DECIDING and event not in OF_DECISION)
    )
    if state.is_halted and event not in (E.STARTED, E.DECISION_STORED):
        assert found.is_halted, "only a decision, or the end of the stream, starts it again"
    if found is S.CAUGHT_UP:
        assert (state, event) in ((S.ENDING, E.STOPPED), (S.CAUGHT_UP, E.ASKED)), "nothing was kept since"


def test_no_more_is_listed_than_there_is() -> None:
    assert set(TRANSITIONS) <= set(PAIRS)
    assert {state for state, _ in TRANSITIONS} == set(QueueState), "every state is left again"


def test_every_state_is_reached_from_a_start_and_from_a_refused_ddl() -> None:
    for first in (S.READY, S.WAITING):
        reached, left = {first}, [first]
        while left:
            state = left.pop()
            for event in QueueEvent:
                if allows(state, event) and (found := after(state, event)) not in reached:
                    reached.add(found)
                    left.append(found)
        assert reached == set(QueueState)


def test_what_was_kept_is_never_forgotten() -> None:
    """Over all orders of seven events: a queue may close only if release has reached the end since the last
    KEPT; and what was asked for is tried if anything is left, unless rows were refused or a decision is being
    stored. To ask where nothing is left keeps no queue from closing."""
    open_ends = [(S.READY, False, False)]  # state, kept since the end was reached, asked since release began
    for _ in range(7):
        following = set()
        for state, kept, asked in open_ends:
            for event in QueueEvent:
                if not allows(state, event):
                    continue
                found = after(state, event)
                is_kept = event is E.KEPT or (kept and event is not E.END_REACHED)
                has_left = state not in (S.ENDING, S.CAUGHT_UP)
                is_asked = asked and event not in (E.STARTED, E.END_REACHED)
                is_asked = is_asked or (event is E.ASKED and has_left)
                if found is S.CAUGHT_UP:
                    assert not is_kept
                if state in (S.ENDING, S.CAUGHT_UP) and event is E.ASKED:
                    assert found is state
                if is_asked and not found.is_halted and found not in DECIDING:
                    assert found in (S.READY, S.RELEASING_AGAIN)
                following.add((found, is_kept, is_asked and not found.is_halted))
        open_ends = list(following)


def test_a_queue_that_follows_has_caught_up() -> None:
    assert [state for state in S if state.has_caught_up] == [S.CAUGHT_UP, S.FOLLOWING]


def test_two_queues_become_one() -> None:
    for one, other in product((state for state in QueueState if state not in RELEASING), repeat=2):
        with case(one, other):
            found = merged(one, other)
            assert found is merged(other, one)
            assert found.is_halted is (one.is_halted or other.is_halted)
            assert (found in DECIDING) is bool({one, other} & DECIDING)
            assert not found.has_caught_up, "a DDL is kept that joins them"
            assert found is not S.READY, "that DDL is not stored yet"


@pytest.mark.parametrize("state", sorted(RELEASING, key=lambda state: state.name))
def test_none_is_joined_while_release_works_on_it(state: QueueState) -> None:
    with pytest.raises(AssertionError):
        merged(state, S.READY)
    with pytest.raises(AssertionError):
        merged(S.READY, state)
