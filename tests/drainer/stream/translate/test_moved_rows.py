"""Moved rows: whatever a transaction moves between tables with one target, who takes its rows in their order
ends with what upstream has; all other transactions stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest

from drainer.stream.translate.moved_rows import in_order
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion
from tests.common.rowcodec.tables import index, key, kind, table
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo

INFO = table(("id", key("bigint")), ("c", kind("varchar")))
SQL = RowEncoder(INFO)
Event = tuple[int, int, int, str]  # table, kind, key, value


def version(number: int, info: TableInfo = INFO, target: str = "all") -> TableVersion:
    return TableVersion(replace(info, id=number), "shop", f"t{number}", 1, ("shop", target))


TABLES = [version(number) for number in range(3)]


def encoded(event: Event) -> bytes:
    _, op, number, value = event
    if op == UPDATE:
        return SQL.update((number, "old"), (number, value))
    return SQL.insert((number, value)) if op == INSERT else SQL.delete((number, value))


def told(events: Iterable[Event], order: Sequence[int] = range(3)) -> tuple[TableEvents, ...]:
    """As TiDB tells them: those of each table together."""
    tables: list[TableEvents] = []
    ordinal = 0
    for number in order:
        own = [event for event in events if event[0] == number]
        if own:
            kinds = tuple(op for _, op, _, _ in own)
            tables.append(TableEvents(TABLES[number], kinds, list(map(encoded, own)), ordinal))
            ordinal += len(own)
    return tuple(tables)


def applied(tables: Iterable[TableEvents], before: dict[int, bytes]) -> dict[int, bytes]:
    """One after the other, by who knows one table."""
    numbers = {encoded((0, op, n, value)): n for op in range(3) for n in range(4) for value in "abcd"}
    rows = dict(before)
    for events in tables:
        for op, row in zip(events.kinds, events.rows, strict=True):
            if op == DELETE:
                rows.pop(numbers[row], None)
            else:
                rows[numbers[row]] = row
    return rows


def ordinals(tables: Iterable[TableEvents]) -> list[int]:
    return [events.first_ordinal + place for events in tables for place in range(len(events.rows))]


@pytest.mark.parametrize("seed", range(300))
def test_rows_end_as_they_are_upstream(seed: int) -> None:
    """Changes as a program makes them; after the commit a key is in one table at most."""
    random = Random(seed)
    held = {(random.randrange(3), number): b"" for number in range(3)}
    before = {number: b"" for _, number in held}
    events: list[Event] = []

    def change(shard: int, number: int, *ops: int) -> None:
        op = random.choice(ops) if (shard, number) in held else INSERT
        events.append((shard, op, number, random.choice("abcd")))
        if op == DELETE:
            del held[shard, number]
        else:
            held[shard, number] = encoded(events[-1])

    for _ in range(random.randrange(12)):
        change(random.randrange(3), random.randrange(4), UPDATE, DELETE)
    for shard, number in list(held):
        if sum(other == number for _, other in held) > 1:
            change(shard, number, DELETE)
    for (shard, number), row in list(held.items()):
        if not row and any(event[2] == number for event in events):
            change(shard, number, UPDATE)  # a row that came to another table and went would take it along
    expected = {number: row for (_, number), row in held.items()}
    tables = told(events, random.sample(range(3), 3))
    ordered = in_order(tables, 5)
    assert applied(ordered, before) == expected
    assert ordinals(ordered) == ordinals(tables) == list(range(len(events)))


def test_moves_in_both_directions() -> None:
    """Neither order of the tables is right."""
    moves = [(0, DELETE, 1, "a"), (0, INSERT, 2, "b"), (1, INSERT, 1, "a"), (1, DELETE, 2, "b")]
    for order in ((0, 1), (1, 0)):
        tables = told(moves, order)
        assert len(applied(tables, {1: b"", 2: b""})) == 1, "the order is needed"
        assert applied(in_order(tables, 5), {1: b"", 2: b""}) == {
            1: encoded((1, INSERT, 1, "a")),
            2: encoded((0, INSERT, 2, "b")),
        }


def test_other_tables_stand_where_they_stood() -> None:
    first, second = told([(0, DELETE, 1, "a"), (0, INSERT, 2, "b"), (1, INSERT, 1, "a"), (1, DELETE, 2, "b")])
    other = TableEvents(version(9, target="other"), (INSERT,), [encoded((0, INSERT, 1, "a"))], 2)
    ordered = in_order((first, other, replace(second, first_ordinal=3)), 5)
    assert ordered[2] is other
    assert ordinals(ordered) == [0, 1, 2, 3, 4]


def test_without_a_move_all_stays() -> None:
    """Also where rows leave after others came, as long as no key is in both."""
    tables = told([(0, INSERT, 1, "a"), (1, DELETE, 2, "a"), (1, UPDATE, 3, "b"), (0, DELETE, 0, "a")])
    assert all(one is other for one, other in zip(in_order(tables, 5), tables, strict=True))
    apart = tuple(replace(events, table=replace(events.table, target=None)) for events in tables)
    assert in_order(apart, 5) is apart


def test_a_row_whose_key_changes_leaves_before_another_comes() -> None:
    columns = ("id", kind("bigint", not_null=True)), ("c", kind("varchar"))
    info = table(*columns, handle="rowid", indexes=(index(1, ("id", 0), primary=True),))
    sql = RowEncoder(info)
    old, new = version(1, info), version(2, info)
    comes = TableEvents(new, (INSERT,), [sql.insert((1, "b"), 7)], 0)
    moves = TableEvents(old, (UPDATE,), [sql.update((1, "a"), (2, "a"), 7)], 1)
    assert [events.table for events in in_order((comes, moves), 5)] == [old, new]


def test_rows_without_a_key_stay() -> None:
    info = table(("id", kind("bigint")), handle="rowid")
    row = RowEncoder(info).insert((1,), 7)
    tables = tuple(
        TableEvents(version(number, info), (op,), [row], number) for number, op in enumerate((INSERT, DELETE))
    )
    assert [events.table for events in in_order(tables, 5)] == [events.table for events in tables]


def test_a_row_whose_key_cannot_be_read_is_said() -> None:
    tables = (*told([(0, INSERT, 1, "a")]), TableEvents(TABLES[1], (DELETE,), [b"\xff"], 1))
    with pytest.raises(Corruption, match="commit_ts 5"):
        in_order(tables, 5)
