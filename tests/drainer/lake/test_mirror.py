"""What becomes of mirrors at a DDL: which tables, which columns of what, and what no mirror can follow."""

from __future__ import annotations

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
from tidb_binlog.table_info import DECIMAL, FLAG_NOT_NULL, FLAG_PRIMARY, LONGLONG, VARCHAR, Column

KEY = FLAG_PRIMARY | FLAG_NOT_NULL


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


def test_tables_that_come_and_go() -> None:
    other = table(V, name="u", number=8)
    assert changed(ddl(), [T], [T, other]) == Changed()
    assert changed(ddl(), [T, other], [T]) == Changed(removed=(("d", "u"),))
    renamed = table(V, name="u")
    assert changed(ddl(), [T], [renamed]) == Changed(renamed=((("d", "t"), ("d", "u")),))
    emptied = table(V, number=9)
    assert changed(ddl(), [T], [emptied]) == Changed(emptied=(emptied,))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (T, table(column(2, "v")), "column v was string and is int32"),
        (table(column(2, "n", LONGLONG)), table(column(3, "n")), "column n was int64 and is int32"),
        (T, table(V, key=column(5, "id", flag=KEY)), "it changes the key"),
    ],
)
def test_what_cannot_be_followed_is_said(before: TableVersion, after: TableVersion, why: str) -> None:
    with pytest.raises(DownstreamError, match=why) as raised:
        changed(ddl(), [before], [after])
    assert "syncer.ddl-rule" in str(raised.value)


def test_rows_that_move_without_a_change() -> None:
    with pytest.raises(DownstreamError, match=r"truncate partition.* no change tells"):
        changed(ddl(ActionType.TRUNCATE_TABLE_PARTITION), [T], [T])


def test_a_table_without_a_key() -> None:
    assert key_of(T) == ["id"]
    with pytest.raises(DownstreamError, match=r"d\.t has no key.*keep a changelog of it"):
        key_of(version_of(V))
