"""Reader position: against a naive account of what was given and done."""

from __future__ import annotations

import itertools

import pytest

from drainer.points.rows.snapshot_position import SnapshotPosition
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


def test_a_snapshot_is_done_before_the_position_passes_it() -> None:
    """Every order of giving and doing, against a list of what was given and how much of it is done."""
    ends = [SnapshotPosition(10, rows, "a.b", "[]", is_end=rows == 9) for rows in (3, 5, 9)]
    items: list[tuple[int, SnapshotPosition | None]] = [*((10, end) for end in ends), (12, None)]
    for steps in itertools.product("gd", repeat=8):
        reader, given, done = ReaderPosition(10, SnapshotPosition(10)), 0, 0
        for step in steps:
            if step == "g" and given < len(items):
                reader.given(*items[given])
                given += 1
            elif step == "d" and done < given:
                ts, end = items[done]
                reader.done(ts, end.text() if end is not None else "")
                done += 1
            assert reader.position == (9, 9, 9, 10, 12)[done], steps
            rest = SnapshotPosition.of(reader.snapshot).rows if reader.snapshot else None
            assert rest == (0, 3, 5, None, None)[done], steps


def test_who_goes_on_in_a_snapshot_is_not_done_with_what_was_not_given() -> None:
    start, end = SnapshotPosition(10, 3, "a.b", "[]"), SnapshotPosition(10, 5, "a.b", "[]")
    reader = ReaderPosition(10, start)
    reader.passed(20)
    for snapshot in (
        end.text(),
        SnapshotPosition(8, 1, "a.b", "[]").text(),
        SnapshotPosition(10, 9, is_end=True).text(),
    ):
        with pytest.raises(NotGiven):
            reader.done(10, snapshot)
    reader.given(10, end)
    reader.done(10, end.text())
    reader.done(10, start.text())
    assert (reader.snapshot, reader.position) == (end.text(), 9)
    reader.given(10, SnapshotPosition(10, 9, is_end=True))
    reader.done(10)
    assert (reader.snapshot, reader.position) == ("", 20)
