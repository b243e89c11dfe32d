"""Agreeing: whether the generated readers of a row and the strict one say the same of any octets."""

from __future__ import annotations

from typing import Any

from drainer.mysql.literal.plan import SqlPlan, compile_sql
from tests.common.rowcodec.tables import binary, index, key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import FieldType

WIDE = table(
    ("id", key("bigint")),
    ("u", kind("int", unsigned=True, not_null=True)),
    ("s", kind("varchar", not_null=True)),
    ("b", binary("blob")),
    ("d", kind("decimal", flen=12, decimal=2)),
    ("f", kind("double")),
    ("g", kind("float", not_null=True)),
    ("at", kind("datetime", decimal=3)),
    ("day", kind("date", not_null=True)),
    ("t", kind("time", decimal=6)),
    ("y", FieldType(13, 96, 4, 0)),
    ("e", kind("enum", elems=("a", "b'c"))),
    ("m", kind("set", elems=("p", "q", "r"))),
    ("n", kind("bit", flen=12)),
    ("j", kind("json")),
)
CLUSTERED = table(
    ("k", key("varchar", flen=10)), ("c", key("char", flen=5)), ("t", key("time")), ("v", kind("int")),
    handle="common", indexes=(index(1, ("c", 1), ("k", 0), ("t", 2), primary=True),),
)  # fmt: skip
HIDDEN = table(("a", kind("int")), ("b", kind("varchar")), handle="rowid", indexes=(index(2, ("a", 0)),))

PLANS: dict[Any, tuple[TablePlan, SqlPlan, RowEncoder]] = {
    info.columns: (compile_table(info), compile_sql(info), RowEncoder(info))
    for info in (WIDE, CLUSTERED, HIDDEN)
}


def outcome(function: Any, *arguments: Any) -> tuple[str, Any]:
    try:
        return "value", function(*arguments)
    except RowError as error:
        return "error", str(error)


def outcomes_agree(plan: TablePlan, sql: SqlPlan, row: bytes) -> bool:
    """Whether all readers say the same of the row, as any image; True if it is a row."""
    insert = outcome(plan.decode_insert, row)
    assert repr(insert) == repr(outcome(plan.strict.insert, row))
    assert insert[0] == outcome(sql.insert_literals, row)[0]
    delete = outcome(plan.decode_delete, row)
    assert repr(delete) == repr(outcome(plan.strict.delete, row))
    update, strict = outcome(plan.decode_update, row), outcome(plan.strict.update, row)
    assert repr(update) == repr((strict[0], strict[1][:2] if strict[0] == "value" else strict[1]))
    if sql.key_columns:
        for image, key_of in ((insert, sql.insert_key), (delete, sql.delete_key)):
            if image[0] == "value" and None not in image[1]:
                assert key_of(row)
    if strict[0] == "value":
        split = strict[1][2]
        assert sql.update_literals(row, split).startswith(b"(")
    return "value" in (insert[0], delete[0], update[0])
