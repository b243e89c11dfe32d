from __future__ import annotations

import random

from tidb_binlog.backoff import Backoff


def test_pauses_grow_to_the_limit_and_never_vanish() -> None:
    backoff = Backoff(0.1, 2.0, random.Random(1))
    for attempt in range(100):
        step = min(2.0, 0.1 * 2**attempt)
        assert step / 2 <= backoff.next_s() <= step
    assert backoff.attempts == 100


def test_reset_starts_over() -> None:
    backoff = Backoff(0.1, 2.0, random.Random(1))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.attempts == 0
    assert backoff.next_s() <= 0.1


def test_clients_that_failed_together_do_not_come_back_together() -> None:
    pauses = {Backoff(1.0, 1.0, random.Random(seed)).next_s() for seed in range(50)}
    assert len(pauses) == 50
