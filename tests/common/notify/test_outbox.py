"""The queue is bounded, keeps its order, and a try that failed is repeated later, not at once."""

from __future__ import annotations

import random

import pytest

from tidb_binlog.backoff import Backoff
from tidb_binlog.notify.events import Condition, Event, Events, Origin, Type
from tidb_binlog.notify.outbox import Outbox

EVENTS = Events(Origin("pump", "p", "r"))


def event(subject: str) -> Event:
    return EVENTS.happened(Condition(Type.ENDED, subject, ""), 0.0)


def test_of_too_many_the_oldest_goes_and_is_counted() -> None:
    box = Outbox(size_max=2)
    one, two, three = event("1"), event("2"), event("3")
    assert (box.put(one), box.put(two), box.put(three)) == (None, None, one)
    assert (box.dropped, len(box), box.first) == (1, 2, two)
    box.taken(one)  # it was under way when it went
    assert (box.sent, box.first) == (1, two)
    box.taken(two)
    assert box.first is three


def test_pauses_grow_until_one_is_taken_and_one_that_is_refused_holds_up_no_other() -> None:
    box = Outbox(backoff=Backoff(1.0, 8.0, random.Random(1)))
    assert box.wait_s(0.0) is None
    one, two = event("1"), event("2")
    box.put(one)
    box.put(two)
    assert box.wait_s(0.0) == 0.0
    now_s, pauses = 0.0, []
    for _ in range(5):
        pauses.append(box.retry(now_s))
        assert box.wait_s(now_s) == pytest.approx(pauses[-1])
        now_s += pauses[-1] + 1e-6
        assert (box.wait_s(now_s), box.first) == (0.0, one)
    assert 0.5 <= pauses[0] <= 1.0
    assert 4.0 <= pauses[-1] <= 8.0
    box.refuse(one)
    assert (box.wait_s(now_s), box.first, box.refused) == (0.0, two, 1)
    assert box.retry(now_s) <= 1.0, "pauses begin anew"
