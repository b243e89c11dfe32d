"""Column types: what a column of a table is in Arrow, and so in a data frame, when columns are typed.

MySQL                          Arrow                  Spark                     built from
TINYINT ... BIGINT, YEAR       int8 ... int64, int16  byte ... long, short      int
unsigned ones                  the next larger one; BIGINT UNSIGNED, BIT: decimal(20,0)
FLOAT, DOUBLE                  float, double          float, double             float
DECIMAL(p,s), p <= 38          decimal128(p,s)        decimal(p,s)              text
DECIMAL of more digits         string                 string                    text
DATE                           date32                 date                      days since 1970
DATETIME                       timestamp[us]          timestamp_ntz             microseconds since 1970
TIMESTAMP                      timestamp[us, UTC]     timestamp                 the same, UTC
TIME                           duration[us]           interval day to second    microseconds
CHAR ... TEXT, ENUM, SET       string                 string                    text, as str or bytes
BINARY, BLOB                   binary                 binary                    bytes
JSON                           string                 string, verbatim          text

Tests  tests/drainer/reading/archive/test_typed_values.py
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import pyarrow as pa

from tidb_binlog.table_info import INT24, LONG, LONGLONG, SHORT, TINY, ColumnKind, FieldType

_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = pa.decimal128(20, 0)
_SIGNED: Final = {
    TINY: pa.int8(),
    SHORT: pa.int16(),
    INT24: pa.int32(),
    LONG: pa.int32(),
    LONGLONG: pa.int64(),
}
_UNSIGNED: Final = {
    TINY: pa.int16(),
    SHORT: pa.int32(),
    INT24: pa.int32(),
    LONG: pa.int64(),
    LONGLONG: _UNSIGNED_LONG,
}


class Family(Enum):
    """Types whose values are made and built alike."""

    INTEGER = "integer"
    FLOATING = "floating"
    DECIMAL = "decimal"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    TEXT = "text"
    BINARY = "binary"
    NAMED = "named"
    JSON = "json"


_FAMILIES: Final = {
    ColumnKind.SIGNED: Family.INTEGER,
    ColumnKind.UNSIGNED: Family.INTEGER,
    ColumnKind.YEAR: Family.INTEGER,
    ColumnKind.BIT: Family.INTEGER,
    ColumnKind.FLOAT: Family.FLOATING,
    ColumnKind.DOUBLE: Family.FLOATING,
    ColumnKind.DECIMAL: Family.DECIMAL,
    ColumnKind.TEXT: Family.TEXT,
    ColumnKind.BINARY: Family.BINARY,
    ColumnKind.ENUM: Family.NAMED,
    ColumnKind.SET: Family.NAMED,
    ColumnKind.DATE: Family.DATE,
    ColumnKind.DATETIME: Family.DATETIME,
    ColumnKind.TIMESTAMP: Family.DATETIME,
    ColumnKind.TIME: Family.TIME,
    ColumnKind.JSON: Family.JSON,
    ColumnKind.UNKNOWN: Family.TEXT,
}
_TYPES: Final[dict[ColumnKind, pa.DataType]] = {
    ColumnKind.YEAR: pa.int16(),
    ColumnKind.BIT: _UNSIGNED_LONG,
    ColumnKind.FLOAT: pa.float32(),
    ColumnKind.DOUBLE: pa.float64(),
    ColumnKind.BINARY: pa.binary(),
    ColumnKind.DATE: pa.date32(),
    ColumnKind.DATETIME: pa.timestamp("us"),
    ColumnKind.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnKind.TIME: pa.duration("us"),
}


def family_of(field_type: FieldType) -> Family:
    """Say with which types a type is built alike."""
    return _FAMILIES[field_type.kind]


def arrow_type(field_type: FieldType) -> pa.DataType:
    """Choose the type in Arrow of a column."""
    kind = field_type.kind
    if kind is ColumnKind.SIGNED:
        return _SIGNED[field_type.tp]
    if kind is ColumnKind.UNSIGNED:
        return _UNSIGNED[field_type.tp]
    if kind is ColumnKind.DECIMAL and 0 < field_type.flen <= _DIGITS_MAX:
        return pa.decimal128(field_type.flen, field_type.fsp)
    return _TYPES.get(kind, pa.string())
