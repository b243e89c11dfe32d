"""Reader position: against a naive account of what was given and done."""

from __future__ import annotations

import itertools

import pytest

from drainer.reading.subscribe.reader_position import NotGiven, ReaderPosition


def test_it_follows_the_stream_while_nothing_is_open() -> None:
    reader = ReaderPosition(10)
    assert reader.position == 10
    reader.passed(15)
    assert reader.position == 15
    reader.given(20)
    reader.passed(25)
    assert reader.position == 15, "the transaction of 20 is open"
    reader.done(20)
    assert reader.position == 25


def test_every_order_of_events_agrees_with_a_list_of_what_is_open() -> None:
    for steps in itertools.product("gpd", repeat=6):
        reader, ts, given, done, seen = ReaderPosition(1), 1, [1], 1, []
        for step in steps:
            if step == "g":
                ts += 1
                reader.given(ts)
                given.append(ts)
            elif step == "p":
                ts += 1
                reader.passed(ts)
            else:
                done = given[(given.index(done) + 1) % len(given)] if done != given[-1] else done
                reader.done(done)
            still_open = [one for one in given if one > done]
            seen.append(reader.position)
            assert (reader.position == ts) if not still_open else (reader.position < still_open[0]), steps
            assert reader.position >= done
        assert seen == sorted(seen), steps


def test_what_was_not_given_is_not_done() -> None:
    reader = ReaderPosition(5)
    reader.given(7)
    with pytest.raises(NotGiven, match=r"commit_ts 8 cannot be done: the last one .* is 7"):
        reader.done(8)
    assert reader.position == 5
    reader.done(7)
    reader.done(6)
    assert reader.position == 7
