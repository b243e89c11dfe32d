"""Which tables spread over lanes, and that keys which the server takes for one always meet in one lane."""

from __future__ import annotations

import pytest

from drainer.checkpoint import lane_basis
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.causality import Spread, collations_of, lane_of_key, lane_of_table
from drainer.mysql.rows.change import Form, Position, TableTarget
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.table_target import target_of
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
from tests.drainer.mysql.literal.recorded_weights import GENERAL, UNICODE, collation
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import (
    DOUBLE,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONGLONG,
    VARCHAR,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

REQUIRED = FLAG_NOT_NULL | FLAG_PRIMARY


def integer(number: int = 1, name: str = "id", flag: int = REQUIRED) -> Column:
    return Column(number, name, number - 1, FieldType(LONGLONG, flag))


def text(collate: str, number: int = 1, name: str = "k", flag: int = REQUIRED) -> Column:
    charset = "binary" if collate == "binary" else "utf8mb4"
    return Column(number, name, number - 1, FieldType(VARCHAR, flag, 20, charset=charset, collate=collate))


def primary(*columns: Column, length: int = -1) -> Index:
    parts = tuple(IndexColumn(column.name, column.offset, length) for column in columns)
    return Index(1, "PRIMARY", parts, unique=True, primary=True)


def unique(column: Column) -> Index:
    return Index(2, "u", (IndexColumn(column.name, column.offset),), unique=True, primary=False)


def target(*columns: Column, indexes: tuple[Index, ...] = (), handle: bool = False) -> TableTarget:
    info = TableInfo(7, "t", columns, indexes, pk_is_handle=handle)
    return target_of(TableVersion(info, "s", "t", 1), 4)


OTHER = integer(2, "v", 0)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (target(integer(), OTHER, handle=True), Spread.BY_KEY),
        (target(text("binary"), indexes=(primary(text("binary")),)), Spread.BY_KEY),
        (target(text("utf8mb4_bin"), indexes=(primary(text("utf8mb4_bin")),)), Spread.BY_PADDED_KEY),
        (target(text("utf8mb4_general_ci"), indexes=(primary(text("utf8mb4_general_ci")),)), Spread.BY_TABLE),
        (target(text("utf8mb4_bin"), indexes=(primary(text("utf8mb4_bin"), length=3),)), Spread.BY_TABLE),
        (target(integer(), OTHER, handle=True, indexes=(unique(OTHER),)), Spread.BY_TABLE),
        (target(integer(flag=0)), Spread.BY_TABLE),
        (target(OTHER, indexes=(unique(Column(2, "v", 0, OTHER.type)),)), Spread.BY_TABLE),
        (
            target(
                Column(1, "d", 0, FieldType(DOUBLE, REQUIRED)),
                indexes=(primary(Column(1, "d", 0, FieldType(DOUBLE, REQUIRED))),),
            ),
            Spread.BY_TABLE,
        ),
    ],
)
def test_spread(table: TableTarget, expected: Spread) -> None:
    assert table.spread is expected


def test_tables_without_a_usable_key_say_so() -> None:
    assert not target(integer(flag=0)).keyed
    assert target(integer(), handle=True).keyed
    assert target(integer(), OTHER, handle=True, indexes=(unique(OTHER),)).form is Form.REWRITE


@pytest.mark.parametrize(("one", "other"), [("a", "a  "), ("", " "), ("日本", "日本 ")])
def test_keys_equal_but_for_padding_meet_in_one_lane(one: str, other: str) -> None:
    table = target(text("utf8mb4_bin"), indexes=(primary(text("utf8mb4_bin")),))
    encoder = RowEncoder(table.version.info)
    rows = [encoder.insert({"k": value}, rowid=1) for value in (one, other)]
    lanes = Dispatcher([Position(0)] * 4)
    lanes.learn(table)
    lanes.dispatch(Transaction(1, 2, (TableEvents(table.version, [INSERT, INSERT], rows, 0),), 1))
    assert len(lanes.take()) == 1


def in_ci(table_upstream: str, collate: str, *names: str) -> TableTarget:
    """A table whose key, of text and a number, is under `collate` downstream; `names` are known."""
    columns = (text(table_upstream), integer(2, "n"))
    theirs = (
        DownstreamColumn("k", "varchar", 20, charset="utf8mb4", collation=collate),
        DownstreamColumn("n", "bigint"),
    )
    info = TableInfo(7, "t", columns, (primary(*columns),))
    there = DownstreamTable("s", "t", theirs, (UniqueKey("PRIMARY", (KeyPart("k"), KeyPart("n"))),))
    assert collations_of(there) == ({collate} if not collate.endswith("_bin") else set())
    known = {name: collation(name) for name in names}
    return target_of(TableVersion(info, "s", "t", 1), 4, there, collations=known)


@pytest.mark.parametrize("upstream", ["utf8mb4_bin", GENERAL, UNICODE])
def test_what_is_one_key_is_the_downstreams_to_say(upstream: str) -> None:
    table = in_ci(upstream, UNICODE, UNICODE)
    assert (table.spread, table.collations[0] is not None, table.collations[1]) == (
        Spread.BY_COLLATED_KEY, True, None
    )  # fmt: skip
    assert in_ci(upstream, UNICODE).spread is Spread.BY_TABLE, "which nobody knows"
    assert in_ci(upstream, UNICODE, GENERAL).spread is Spread.BY_TABLE
    binary = in_ci(upstream, "utf8mb4_bin", UNICODE)
    assert (binary.spread, binary.collations) == (Spread.BY_PADDED_KEY, ())
    encoder = RowEncoder(table.version.info)
    rows = [encoder.insert({"k": value, "n": n}, rowid=1) for value, n in (("ß ", 1), ("ss", 1), ("ss", 2))]
    one, other, third = map(table.sql.insert_lane_key, rows)
    assert one == other != third
    assert table.sql.delete_lane_key(encoder.delete({"k": "sſ", "n": 1}, rowid=1)) == one
    update = encoder.update({"k": "ß", "n": 1}, {"k": "a", "n": 1}, rowid=1)
    (_, old), (_, new), _ = table.sql.update_both_keys(update)
    assert old == one != new
    assert len({binary.sql.insert_lane_key(row) for row in rows}) == 3


def test_the_past_is_spread_as_it_was() -> None:
    """Whatever the downstream's collation is now, and also by releases that knew none."""
    now, binary = in_ci("utf8mb4_bin", UNICODE, UNICODE), in_ci("utf8mb4_bin", "utf8mb4_bin")
    row = RowEncoder(now.version.info).insert({"k": "ae", "n": 1}, rowid=1)
    collated, padded = map(lane_basis.spread_of, (now, binary))
    assert collated.collations == (collation(UNICODE).label, "")
    assert lane_basis.spread_as(now, collated, 4) is now
    as_it_was = lane_basis.spread_as(now, padded, 4)
    assert (as_it_was.spread, as_it_was.collations) == (Spread.BY_PADDED_KEY, ())
    assert as_it_was.sql.insert_lane_key(row) == binary.sql.insert_lane_key(row)
    assert as_it_was.sql.insert_lane_key(row) != now.sql.insert_lane_key(row)
    as_now = lane_basis.spread_as(binary, collated, 4, now.collations)
    assert (as_now.spread, as_now.collations) == (now.spread, now.collations)
    assert as_now.sql.insert_lane_key(row) == now.sql.insert_lane_key(row)
    for one in (now, in_ci(GENERAL, "utf8mb4_bin")):
        assert lane_basis.as_version_1(one, 4).spread is Spread.BY_TABLE
    assert lane_basis.as_version_1(binary, 4).spread is Spread.BY_PADDED_KEY


def test_lanes_are_stable_numbers() -> None:
    """A restart of another version of the program must find the same lanes."""
    assert [lane_of_table(number, 4) for number in (1, 2, 3, 100, 2**40)] == STABLE_TABLES
    assert [lane_of_key(7, key, 4) for key in (b"1", b"2", b"3", b"abc", b"")] == STABLE_KEYS


STABLE_TABLES = [3, 0, 2, 0, 2]
STABLE_KEYS = [0, 2, 0, 3, 3]
