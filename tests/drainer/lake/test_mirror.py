"""What becomes of mirrors at a DDL: which tables, which columns of what, and what no mirror can follow."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drainer.lake.mirror import Changed, Follow, changed, key_of, only_adds, schema_of
from drainer.txn import Ddl, TableVersion
from tests.drainer.support.lake_world import column, version_of
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import DownstreamError
from tidb_binlog.table_info import (
    DATE,
    DATETIME,
    DECIMAL,
    ENUM,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONGLONG,
    STRING,
    VARCHAR,
    Column,
)

KEY = FLAG_PRIMARY | FLAG_NOT_NULL
WRITTEN_ANEW = "values of column v may have become others"


def table(*columns: Column, key: Column | None = None, **more: Any) -> TableVersion:
    key = key or column(1, "id", flag=KEY)
    version = version_of(key, *columns, **more)
    return replace(version, info=replace(version.info, pk_is_handle=True))


V = column(2, "v", VARCHAR, flen=64)
T = table(V)
ID = Follow("id", pa.int32(), "id")


def ddl(action: int = ActionType.ADD_COLUMN) -> Ddl:
    return Ddl(100, 1, action, "d", "ALTER TABLE d.t ...", (("d", "t"),), 2)


def columns_of(before: TableVersion, after: TableVersion) -> tuple[Follow, ...]:
    ((version, columns),) = changed(ddl(), [before], [after]).altered
    assert version is after
    return columns


def test_columns_by_their_ids() -> None:
    assert columns_of(T, table(column(2, "w", VARCHAR, flen=64))) == (ID, Follow("w", pa.string(), "v"))
    assert columns_of(T, table()) == (ID,)
    price = replace(column(3, "price", DECIMAL, flen=6, decimal=2), origin_default="1.50")
    follows = columns_of(T, table(V, price))
    assert follows[2] == Follow("price", pa.decimal128(6, 2), default=Decimal("1.50"))
    assert not only_adds(follows, schema_of(T).names)
    swapped = table(column(2, "w", VARCHAR, flen=64), column(3, "v", VARCHAR, flen=64))
    assert columns_of(T, swapped) == (ID, Follow("w", pa.string(), "v"), Follow("v", pa.string()))


def test_a_column_without_values_is_added_in_place() -> None:
    assert only_adds(columns_of(T, table(V, column(3, "n"))), schema_of(T).names)
    assert not only_adds(columns_of(T, table(column(3, "n"))), schema_of(T).names)


def test_types_that_hold_what_was_there() -> None:
    """Also where TiDB wrote the column anew, under another id."""
    was = table(column(2, "n"), column(3, "d", DECIMAL, flen=10, decimal=2))
    wide = table(column(2, "n", LONGLONG), column(4, "d", DECIMAL, flen=12, decimal=2))
    assert columns_of(was, wide) == (
        ID,
        Follow("n", pa.int64(), "n"),
        Follow("d", pa.decimal128(12, 2), "d"),
    )
    was, more = (
        table(column(number, "e", ENUM, elems=elems)) for number, elems in ((2, ("a",)), (3, ("b", "a")))
    )
    assert changed(ddl(), [was], [more]) == Changed()


def test_tables_that_come_and_go() -> None:
    other = table(V, name="u", number=8)
    assert changed(ddl(), [T], [T, other]) == Changed()
    assert changed(ddl(), [T, other], [T]) == Changed(removed=(("d", "u"),))
    renamed = table(V, name="u")
    assert changed(ddl(), [T], [renamed]) == Changed(renamed=((("d", "t"), ("d", "u")),))
    emptied = table(V, number=9)
    assert changed(ddl(ActionType.TRUNCATE_TABLE), [T], [emptied]) == Changed(emptied=(emptied,))
    assert changed(ddl(ActionType.ALTER_TABLE_PARTITIONING), [T], [emptied]) == Changed(), (
        "rows are as before"
    )


def test_names_that_tables_hand_on() -> None:
    """As tools do that make a table anew beside it: each goes by its id, in turn."""
    made = table(V, name="_t_new", number=8)
    left, taken = table(V, name="_t_old"), table(V, number=8)
    rename = ddl(ActionType.RENAME_TABLES)
    pairs = ((("d", "t"), ("d", "_t_old")), (("d", "_t_new"), ("d", "t")))
    for before, after in itertools.product(([T, made], [made, T]), ([left, taken], [taken, left])):
        assert changed(rename, before, after) == Changed(renamed=pairs)
    with pytest.raises(DownstreamError, match="take each other's names"):
        changed(rename, [T, made], [taken, table(V, name="_t_new")])


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (T, table(column(2, "v")), "column v was string and is int32"),
        (table(column(2, "n", LONGLONG)), table(column(3, "n")), "column n was int64 and is int32"),
        (T, table(V, key=column(5, "id", flag=KEY)), "it changes the key"),
        (T, table(column(3, "v", STRING, flen=64, charset="utf8mb4")), WRITTEN_ANEW),
        (T, table(column(3, "v", VARCHAR, flen=5)), WRITTEN_ANEW),
        (table(column(2, "v", DATETIME, decimal=6)), table(column(3, "v", DATETIME)), WRITTEN_ANEW),
        (
            table(column(2, "v", DECIMAL, flen=40, decimal=1)),
            table(column(3, "v", DECIMAL, flen=41)),
            WRITTEN_ANEW,
        ),
        (
            table(column(2, "v", ENUM, elems=("a", "b"))),
            table(column(3, "v", ENUM, elems=("b",))),
            WRITTEN_ANEW,
        ),
        (T, table(V, column(3, "d", DATE, flag=FLAG_NOT_NULL)), "get .*0000-00-00.*no column here can hold"),
    ],
)
def test_what_cannot_be_followed_is_said(before: TableVersion, after: TableVersion, why: str) -> None:
    with pytest.raises(DownstreamError, match=why) as raised:
        changed(ddl(), [before], [after])
    assert "syncer.ddl-rule" in str(raised.value)


@pytest.mark.parametrize(
    "action", [ActionType.TRUNCATE_TABLE_PARTITION, ActionType.RECOVER_SCHEMA, ActionType.CREATE_TABLES]
)
def test_rows_that_move_without_a_change(action: int) -> None:
    with pytest.raises(DownstreamError, match="no change tells"):
        changed(ddl(action), [T], [T])


def test_a_table_without_a_key() -> None:
    assert [key.name for key in key_of(T)] == ["id"]
    with pytest.raises(DownstreamError, match=r"d\.t has no key.*keep a changelog of it"):
        key_of(version_of(V))
