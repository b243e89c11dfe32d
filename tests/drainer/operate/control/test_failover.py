"""When a standby may replace the active drainer, over every short history of a node id."""

from __future__ import annotations

import itertools

import pytest

from drainer.operate.control.failover import SILENT_S, ActiveNode, FailoverRule
from tidb_binlog.cluster import node


def allowed(*seen: ActiveNode, every_s: float = 1.0) -> bool:
    """Whether a standby may take over after these states of the registry."""
    rule = FailoverRule("d")
    take = False
    for number, each in enumerate(seen):
        decision = rule.decide(each, number * every_s)
        assert decision.take != bool(decision.reason), "a standby that waits says for what"
        take = decision.take
    return take


ACTIVE = ActiveNode(node.ONLINE, "h:1", 1, held=True)
KILLED = ActiveNode(node.ONLINE, "h:1", 1, held=False)
STOPPED = ActiveNode(node.PAUSED, "h:1", 2, held=False)
PAUSING = ActiveNode(node.PAUSING, "h:1", 2, held=True)
PAUSED = ActiveNode(node.PAUSED, "h:1", 3, held=False)
CLOSING = ActiveNode(node.CLOSING, "h:1", 2, held=True)
CLOSED = ActiveNode(node.OFFLINE, "h:1", 3, held=False)


def test_a_name_nobody_ever_had_is_free() -> None:
    assert allowed(ActiveNode())
    assert not ActiveNode().answers


def test_a_name_that_somebody_holds_is_not_whatever_its_entry_says() -> None:
    for state in ("", *node.STATES):
        assert not allowed(ActiveNode(state, "h:1", 1, held=True))


def test_a_kill_and_a_graceful_stop_free_the_place() -> None:
    assert allowed(ACTIVE, KILLED)
    assert allowed(ACTIVE, STOPPED)


def test_whoever_was_paused_or_closed_by_an_operator_is_not_replaced() -> None:
    assert not allowed(ACTIVE, PAUSING, PAUSED)
    assert not allowed(ACTIVE, CLOSING, CLOSED)
    assert not allowed(ACTIVE, CLOSED), "its way there was not seen"
    assert not allowed(ACTIVE, PAUSING, ActiveNode(node.PAUSING, "h:1", 2, held=False)), "it died on the way"


def test_an_operators_word_stands_in_the_entry_for_who_did_not_see_it_happen() -> None:
    leaving = ActiveNode(node.PAUSED, "h:1", 3, told_to_leave=True)
    assert not allowed(leaving)
    assert not allowed(ACTIVE, leaving)
    assert allowed(ACTIVE, leaving, ActiveNode(node.ONLINE, "h:1", 4, told_to_leave=True)), (
        "set online by binlogctl"
    )


def test_but_when_somebody_started_it_again_the_old_word_does_not_count() -> None:
    again = ActiveNode(node.ONLINE, "h:1", 4, held=True)
    assert allowed(ACTIVE, PAUSING, PAUSED, again, ActiveNode(node.PAUSED, "h:1", 5, held=False))
    assert allowed(ACTIVE, PAUSING, PAUSED, ActiveNode(node.ONLINE, "h:1", 4, held=False)), (
        "set online by binlogctl"
    )


def test_a_standby_that_finds_a_name_at_rest_takes_it_as_any_drainer_would() -> None:
    assert allowed(STOPPED)
    assert allowed(CLOSED)
    assert allowed(KILLED)


@pytest.mark.parametrize("answers", [False, True])
def test_a_drainer_without_a_lease_must_have_been_silent_for_long(answers: bool) -> None:
    """It is not fenced off by the epoch: a wrong guess would have two of them write."""
    silent = ActiveNode(node.ONLINE, "go:1", 7, lease=False, answers=answers)
    assert not allowed(silent)
    assert not allowed(*[silent] * int(SILENT_S))
    assert allowed(*[silent] * int(SILENT_S + 1)) is not answers
    beating = [ActiveNode(node.ONLINE, "go:1", number, lease=False) for number in range(40)]
    assert not allowed(*beating)
    assert allowed(silent, ActiveNode(node.PAUSED, "go:1", 8, lease=False))


def test_over_all_short_histories_a_held_name_is_never_taken_and_a_plain_end_always_frees_it() -> None:
    """The oracle says it in one line each."""
    steps = [ACTIVE, KILLED, STOPPED, PAUSING, PAUSED, CLOSING, CLOSED]
    for length in range(1, 5):
        for history in itertools.product(steps, repeat=length):
            taken = allowed(*history)
            if history[-1].held:
                assert not taken
            if history[-1] == KILLED:
                assert taken
            ran = [seen.state for seen in history if seen.state in (node.ONLINE, node.PAUSING, node.CLOSING)]
            if history[-1] == STOPPED and (not ran or ran[-1] == node.ONLINE):
                assert taken is not _was_closed_since(history)


def _was_closed_since(history: tuple[ActiveNode, ...]) -> bool:
    """It ran, was then seen offline, and has not been online since."""
    ran = closed = False
    for seen in history:
        if seen.state == node.ONLINE:
            closed = False
        if seen.state == node.OFFLINE and ran:
            closed = True
        ran = ran or seen.state in (node.ONLINE, node.PAUSING, node.CLOSING)
    return closed
