"""Position: what a partition's last message says, and what of a transaction is left after it."""

from __future__ import annotations

import pytest

from drainer.formats.obinlog.writer import ObinlogWriter
from drainer.sink.kafka.position import (
    NOTHING,
    WHOLE,
    Position,
    after,
    headers_of,
    last_ordinal,
    position_of,
)
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
from tests.drainer.support.basis_world import keyed


def transaction(*sizes: int, first: int = 0) -> Transaction:
    tables, at = [], first
    for number, size in enumerate(sizes):
        table = TableVersion(keyed(7 + number, f"t{number}"), "d", f"t{number}", 1)
        tables.append(TableEvents(table, [INSERT] * size, [b"%d" % (at + one) for one in range(size)], at))
        at += size
    return Transaction(1, 10, tuple(tables), 0)


@pytest.mark.parametrize(
    "position",
    [Position(7), Position(7, 0), Position((1 << 63) - 1, 12), Position(7, 3, 0), Position(7, 3, -4)],
)
def test_headers_say_it(position: Position) -> None:
    assert position_of(headers_of(position), b"whatever") == position


def test_more_is_how_many_messages_of_a_row_follow() -> None:
    assert headers_of(Position(7, 3)) == [("commit_ts", b"7"), ("seq", b"3")]
    assert headers_of(Position(7, 3, -4)) == [("commit_ts", b"7"), ("seq", b"3"), ("more", b"5")]


def test_an_obinlog_without_headers_says_its_commit_ts() -> None:
    value = ObinlogWriter(bare=True).transaction(Transaction(0, 12345, (), 0))
    assert position_of(None, value) == position_of([], value) == Position(12345, WHOLE)


@pytest.mark.parametrize("headers", [None, [], [("commit_ts", b"x")], [("commit_ts", b"1"), ("seq", b"")]])
def test_what_no_drainer_wrote_has_no_position(headers: list[tuple[str, bytes]] | None) -> None:
    assert position_of(headers, b'{"a": 1}') is None
    assert position_of(headers, None) is None


def test_positions_rise() -> None:
    assert NOTHING < Position(0, 0) < Position(0, 1) < Position(0) < Position(1, 0) < Position(1)


@pytest.mark.parametrize("seq", range(-1, 9))
def test_what_is_there_is_left_out(seq: int) -> None:
    whole = transaction(3, 1, 2, first=2)
    left = after(whole, Position(10, seq))
    rows = [row for events in left.tables for row in events.rows]
    assert rows == [b"%d" % one for one in range(2, 8) if one > seq]
    for events in left.tables:
        assert events.rows[0] == b"%d" % events.first_ordinal
        assert len(events.rows) == len(events.kinds)


@pytest.mark.parametrize("position", [Position(9), Position(11), NOTHING])
def test_a_position_of_another_transaction_leaves_all(position: Position) -> None:
    whole = transaction(3, 1)
    assert after(whole, position) is whole
    assert last_ordinal(whole) == 3
