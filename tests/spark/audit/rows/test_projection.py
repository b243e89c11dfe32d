"""Images of one version of a table as rows of another one."""

from __future__ import annotations

import pytest

from drainer.spark.audit.rows.projection import Projections, keeps_values
from drainer.txn import TableVersion
from tidb_binlog.rowcodec.put import put_int
from tidb_binlog.rowcodec.varint import put_svarint
from tidb_binlog.table_info import (
    DECIMAL,
    LONG,
    LONGLONG,
    STRING,
    VARCHAR,
    Column,
    FieldType,
    TableInfo,
)


def text(tp: int, flen: int) -> FieldType:
    return FieldType(tp, 0, flen, charset="utf8mb4", collate="utf8mb4_bin")


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (FieldType(LONG), FieldType(LONGLONG), True),
        (FieldType(LONG), text(VARCHAR, 9), False),
        (text(VARCHAR, 9), text(VARCHAR, 5), True),
        (text(VARCHAR, 9), text(STRING, 9), False),
        (FieldType(DECIMAL, decimal=2), FieldType(DECIMAL, decimal=4), True),
        (FieldType(DECIMAL, decimal=4), FieldType(DECIMAL, decimal=2), False),
    ],
)
def test_which_changes_of_a_type_keep_every_value(old: FieldType, new: FieldType, kept: bool) -> None:
    assert keeps_values(old, new) is kept


def guessed(*names: str) -> TableVersion:
    """As of a Go drainer's record: ids are places."""
    columns = tuple(
        Column(place + 1, name, place, FieldType(LONGLONG, 0, 20)) for place, name in enumerate(names)
    )
    return TableVersion(TableInfo(0, "t", columns), "d", "t", 0)


def test_columns_of_guessed_definitions_are_told_by_their_names() -> None:
    written, wanted = guessed("id", "a", "b"), guessed("new", "b", "a", "id")
    image = b"".join(b"\x08" + put_svarint(n) + put_int(10 * n, unsigned=False) for n in (1, 2, 3))
    projection = Projections().of(written, wanted)
    assert projection is not None
    assert projection.values(image) == [None, b"30", b"20", b"10"]
    assert projection.unknown == {0}
