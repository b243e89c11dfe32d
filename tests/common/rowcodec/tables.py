"""Table definitions for tests, in one line each."""

from __future__ import annotations

from typing import Any

from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)

TYPES = {
    "tinyint": 1, "smallint": 2, "int": 3, "float": 4, "double": 5, "timestamp": 7, "bigint": 8,
    "mediumint": 9, "date": 10, "time": 11, "datetime": 12, "year": 13, "varchar": 15, "bit": 16,
    "json": 0xF5, "decimal": 0xF6, "enum": 0xF7, "set": 0xF8, "blob": 0xFC, "char": 0xFE,
}  # fmt: skip


def kind(
    name: str,
    *,
    unsigned: bool = False,
    not_null: bool = False,
    flen: int = -1,
    decimal: int = -1,
    charset: str | None = None,
    collate: str | None = None,
    elems: tuple[str, ...] = (),
) -> FieldType:
    text = name in ("varchar", "char", "blob", "enum", "set")
    flag = FLAG_UNSIGNED * unsigned | FLAG_NOT_NULL * not_null
    charset = charset or ("utf8mb4" if text else "binary")
    collate = collate or {"utf8mb4": "utf8mb4_bin"}.get(charset, charset)
    return FieldType(TYPES[name], flag, flen, decimal, charset, collate, elems)


def binary(name: str, **more: Any) -> FieldType:
    return kind(name, charset="binary", **more)


def key(name: str, **more: Any) -> FieldType:
    made = kind(name, not_null=True, **more)
    return FieldType(
        made.tp, made.flag | FLAG_PRIMARY, made.flen, made.decimal, made.charset, made.collate, made.elems
    )


def column(number: int, name: str, type_: FieldType, **more: Any) -> Column:
    return Column(id=number, name=name, offset=number - 1, type=type_, **more)


def index(number: int, *parts: tuple[str, int] | tuple[str, int, int], primary: bool = False) -> Index:
    """A unique index on (name, offset) or (name, offset, length)."""
    return Index(number, f"i{number}", tuple(IndexColumn(*part) for part in parts), True, primary)


def table(
    *columns: tuple[str, FieldType] | Column, handle: str = "int", indexes: tuple[Index, ...] = ()
) -> TableInfo:
    """`handle`: "int" for an integer primary key, "common" for a clustered index, "rowid" for none."""
    made = tuple(
        entry if isinstance(entry, Column) else column(number, *entry)
        for number, entry in enumerate(columns, 1)
    )
    return TableInfo(
        id=53,
        name="t",
        columns=made,
        indexes=indexes,
        pk_is_handle=handle == "int",
        is_common_handle=handle == "common",
    )


def decimal_types() -> list[tuple[int, int]]:
    """Every precision and scale of a DECIMAL."""
    return [(precision, scale) for precision in range(1, 66) for scale in range(min(precision, 30) + 1)]
