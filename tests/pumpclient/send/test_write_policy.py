"""Write policy: retry, pause, deadline, last chance."""

from __future__ import annotations

import itertools

import pytest

from pumpclient.options import Options
from pumpclient.send.write_policy import (
    Failure,
    FinishPolicy,
    GiveUp,
    LastChance,
    NextPump,
    PrewritePolicy,
    SameAgain,
)

OPTIONS = Options()
RETRIED = [Failure.UNREACHABLE, Failure.FAILED, Failure.REFUSED]


@pytest.mark.parametrize("failure", RETRIED)
def test_untried_pumps_come_at_once_and_a_finished_round_pauses(failure: Failure) -> None:
    policy = PrewritePolicy(OPTIONS, 3, 0.0)
    usable = ("a", "b", "c")
    assert policy.after(failure, "a", usable, 0.0) == NextPump(0.0)
    assert policy.tried == {"a"}
    assert policy.after(failure, "b", usable, 0.0) == NextPump(0.0)
    assert policy.after(failure, "c", usable, 0.0) == NextPump(0.1)
    assert policy.tried == {"c"}  # the next round begins with another one


def test_a_message_too_large_is_given_up_whatever_time_and_pumps_are_left() -> None:
    for usable, now_s in itertools.product([(), ("a",), ("a", "b")], [0.0, 100.0]):
        assert PrewritePolicy(OPTIONS, 2, 0.0).after(Failure.TOO_LARGE, "a", usable, now_s) == GiveUp()


def test_without_a_usable_pump_the_last_chance_comes_at_once() -> None:
    assert PrewritePolicy(OPTIONS, 1, 0.0).after(Failure.FAILED, "a", (), 0.0) == LastChance()


@pytest.mark.parametrize("pumps", [1, 2, 3])
def test_ends_only_after_the_timeout_and_a_turn_for_each_pump(pumps: int) -> None:
    """Black holes: each attempt takes the write timeout, so n + 1 attempts fail before the last chance."""
    usable = tuple("abc"[:pumps])
    policy = PrewritePolicy(OPTIONS, pumps, 0.0)
    now_s, attempts, asked = 0.0, 0, []
    while True:
        pump_id = next((pump for pump in usable if pump not in policy.tried), usable[0])
        asked.append(pump_id)
        now_s += OPTIONS.write_timeout_s
        attempts += 1
        decision = policy.after(Failure.UNREACHABLE, pump_id, usable, now_s)
        if isinstance(decision, LastChance):
            break
        assert isinstance(decision, NextPump)
        now_s += decision.pause_s
    assert attempts >= pumps + 1
    assert set(asked) == set(usable)


def test_quick_failures_last_the_write_timeout() -> None:
    policy = PrewritePolicy(OPTIONS, 1, 0.0)
    now_s = 0.0
    while isinstance(decision := policy.after(Failure.FAILED, "a", ("a",), now_s), NextPump):
        now_s += decision.pause_s
    assert decision == LastChance()
    assert 15.0 < now_s <= 15.2
    assert 150 <= policy.attempts <= 153


def test_commits_stay_with_their_pump_for_ten_minutes() -> None:
    policy = FinishPolicy(OPTIONS, 100.0)
    assert policy.after(100.0) == SameAgain(1.0)
    assert policy.after(700.0) == SameAgain(1.0)
    assert policy.after(700.1) == GiveUp()
