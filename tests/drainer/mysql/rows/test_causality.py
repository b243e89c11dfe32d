"""Which tables spread over lanes, and that keys which the server takes for one always meet in one lane."""

from __future__ import annotations

import pytest

from drainer.mysql.rows.causality import Spread, lane_of_key, lane_of_table
from drainer.mysql.rows.change import Form, Position, TableTarget
from drainer.mysql.rows.table_target import target_of
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
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


def test_lanes_are_stable_numbers() -> None:
    """A restart of another version of the program must find the same lanes."""
    assert [lane_of_table(number, 4) for number in (1, 2, 3, 100, 2**40)] == STABLE_TABLES
    assert [lane_of_key(7, key, 4) for key in (b"1", b"2", b"3", b"abc", b"")] == STABLE_KEYS


STABLE_TABLES = [3, 0, 2, 0, 2]
STABLE_KEYS = [0, 2, 0, 3, 3]
