"""The memory of how closed streams ended (R5.1)."""

from __future__ import annotations

import random

from tidb_binlog.door.http2.streams import ENDED, RESET_BY_PEER, RESET_BY_US, SKIPPED, Closed


def test_what_was_not_remembered_ended_regularly() -> None:
    assert Closed().how(1) == ENDED


def test_the_last_reset_counts() -> None:
    closed = Closed()
    closed.remember(5, RESET_BY_PEER)
    assert (closed.how(3), closed.how(5)) == (ENDED, RESET_BY_PEER)
    closed.remember(5, RESET_BY_US)
    assert closed.how(5) == RESET_BY_US


def test_skipped_ranges() -> None:
    closed = Closed()
    closed.skip(3, 7)
    closed.skip(21, 21)
    skipped = [stream for stream in range(1, 25, 2) if closed.how(stream) == SKIPPED]
    assert skipped == [3, 5, 7, 21]


def test_memory_is_bounded_and_what_is_forgotten_is_discarded() -> None:
    closed = Closed()
    for stream in range(1, 20_001, 2):
        closed.remember(stream, RESET_BY_PEER)
        closed.skip(stream, stream)
    assert len(closed._resets) == 1000
    assert closed._skips is not None
    assert len(closed._skips) == 16
    assert closed.how(1) == closed.how(17_999) == RESET_BY_US
    assert closed.how(18_001) == closed.how(19_999) == RESET_BY_PEER


def test_against_a_memory_without_bounds() -> None:
    rng = random.Random(5)
    closed, known = Closed(), dict[int, int]()
    last = 1
    for _ in range(3000):
        last += 2
        if rng.random() < 0.7:
            how = rng.choice((RESET_BY_US, RESET_BY_PEER))
            closed.remember(last, how)
            known[last] = how
    forgotten = list(known)[-1001]
    for stream in range(1, last + 1, 2):
        if stream > forgotten:
            assert closed.how(stream) == known.get(stream, ENDED)
        else:
            assert closed.how(stream) == RESET_BY_US
