"""Leases: when each is renewed."""

from __future__ import annotations

from pumpclient.publish.transaction_steps import Leases, Renewal


def test_due_after_a_third_and_again() -> None:
    leases = Leases()
    assert leases.next_due_s() is None
    leases.opened(7, 3.0, 100.0)
    leases.opened(8, 30.0, 100.0)
    assert leases.next_due_s() == 101.0
    assert leases.due(100.9) == []
    assert leases.due(101.0) == [Renewal(7, 3.0)]
    assert leases.due(101.0) == []
    assert leases.next_due_s() == 102.0
    assert leases.due(110.0) == [Renewal(7, 3.0), Renewal(8, 30.0)]


def test_an_ended_transaction_is_not_renewed() -> None:
    leases = Leases()
    leases.opened(7, 3.0, 0.0)
    leases.closed(7)
    leases.closed(7)
    assert leases.due(100.0) == []
    assert len(leases) == 0
