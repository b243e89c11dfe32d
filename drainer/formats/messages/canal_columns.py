"""canal-json columns: JDBC types, names of types and values, column by column.

In     a column's definition
Out    its `sqlType`, its `mysqlType`, and how its values are written (`json_rows.JsonColumn`)
Source the tables of TiCDC's documentation of Canal-JSON
Tests  tests/drainer/formats/messages/test_canal_json.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drainer.formats.messages.json_rows import (
    JsonColumn,
    decimal_column,
    document_column,
    duration_column,
    float_column,
    integer_column,
    json_string,
    quoted,
    shown,
    string_column,
    text_column,
    time_column,
)
from tidb_binlog import table_info as ti
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_bytes, read_double, read_int, read_unsigned
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType
from tidb_binlog.type_text import type_text

# java.sql.Types
_JAVA: Final = {
    ti.TINY: -6,
    ti.SHORT: 5,
    ti.INT24: 4,
    ti.LONG: 4,
    ti.LONGLONG: -5,
    ti.FLOAT: 7,
    ti.DOUBLE: 8,
    ti.DECIMAL: 3,
    ti.STRING: 1,
    ti.VARCHAR: 12,
    ti.VAR_STRING: 12,
    ti.DATE: 91,
    ti.NEWDATE: 91,
    ti.DATETIME: 93,
    ti.TIMESTAMP: 93,
    ti.TIME: 92,
    ti.YEAR: 12,
    ti.ENUM: 4,
    ti.SET: -7,
    ti.BIT: -7,
    ti.JSON: 12,
}
_CLOB: Final = 2005
_BLOB: Final = 2004
# From which value on an unsigned integer has the next larger type, and that type.
_WIDER: Final = {
    ti.TINY: (1 << 7, 5),
    ti.SHORT: (1 << 15, 4),
    ti.LONG: (1 << 31, -5),
    ti.LONGLONG: (1 << 63, 3),
}


def java_type(kind: FieldType) -> int:
    """The JDBC type of a column, of unsigned ones that of small values."""
    if kind.kind is ColumnKind.BINARY:
        return _BLOB
    return _JAVA.get(kind.tp, _CLOB)


def wider_type(kind: FieldType) -> tuple[int, int] | None:
    """Of an unsigned integer: from which value on it has a larger type, and which."""
    return _WIDER.get(kind.tp) if kind.kind is ColumnKind.UNSIGNED else None


def plain_type(kind: FieldType) -> str:
    """The type without length, digits or elements: "varchar", "decimal unsigned"."""
    name, bracket, rest = type_text(kind).partition("(")
    return name + rest.rpartition(")")[2] if bracket else name


def _unsigned(column: Column) -> JsonColumn:
    """Stays a number until it is written: the JDBC type depends on it."""
    conversion = Conversion(Shape.UNSIGNED, "u", read_int)
    if column.type.not_null:
        return JsonColumn(column, conversion, '"{v}"', quoted)
    return JsonColumn(column, conversion, "{NULL if <v> is None else quoted(<v>)}", quoted)


def _digits(column: Column) -> JsonColumn:
    return text_column(column, shown(read_unsigned, quoted), Shape.UNSIGNED, "f'\"{u}\"'")


def _binary(column: Column) -> JsonColumn:
    return text_column(
        column,
        shown(read_bytes, lambda raw: json_string(raw.decode("latin-1"))),
        Shape.BYTES,
        "json_string(s.decode('latin-1'))",
    )


def _double(column: Column) -> JsonColumn:
    return text_column(column, shown(read_double, quoted))


_COLUMNS: Final[dict[ColumnKind, Callable[[Column], JsonColumn]]] = {
    ColumnKind.SIGNED: lambda column: integer_column(column, quoted, '"'),
    ColumnKind.YEAR: lambda column: integer_column(column, quoted, '"'),
    ColumnKind.UNSIGNED: _unsigned,
    ColumnKind.BIT: _digits,
    ColumnKind.ENUM: _digits,
    ColumnKind.SET: _digits,
    ColumnKind.FLOAT: lambda column: float_column(column, quoted),
    ColumnKind.DOUBLE: _double,
    ColumnKind.DECIMAL: decimal_column,
    ColumnKind.TEXT: string_column,
    ColumnKind.BINARY: _binary,
    ColumnKind.DATE: time_column,
    ColumnKind.DATETIME: time_column,
    ColumnKind.TIMESTAMP: time_column,
    ColumnKind.TIME: duration_column,
    ColumnKind.JSON: document_column,
}


def _named(column: Column) -> JsonColumn:
    """ENUM and SET by their texts; a number stays where there is none."""
    kind, elements = column.type, column.type.elems

    def show(number: int) -> str:
        if kind.kind is ColumnKind.ENUM:
            return json_string(elements[number - 1]) if 0 < number <= len(elements) else quoted(number)
        return quoted(number) if number >> len(elements) else json_string(set_text(kind, number))

    return text_column(column, shown(read_unsigned, show))


def canal_columns(names: bool) -> Callable[[Column, int], JsonColumn]:
    """What a column is written as; `names`: ENUM and SET by their texts."""

    def convert(column: Column, place: int) -> JsonColumn:
        if names and column.type.kind in (ColumnKind.ENUM, ColumnKind.SET):
            return _named(column)
        return _COLUMNS[column.type.kind](column)

    return convert
