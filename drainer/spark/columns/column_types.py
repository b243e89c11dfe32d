"""Column types: what a column of a table is in a data frame, when columns are typed.

MySQL                          Spark                  Arrow is built from
TINYINT ... BIGINT, YEAR       byte ... long, short   int
unsigned ones                  the next larger one; BIGINT UNSIGNED, BIT: decimal(20,0)
FLOAT, DOUBLE                  float, double          float
DECIMAL(p,s), p <= 38          decimal(p,s)           text
DECIMAL of more digits         string                 text
DATE                           date                   days since 1970
DATETIME                       timestamp_ntz          microseconds since 1970
TIMESTAMP                      timestamp              the same, UTC
TIME                           interval day to second microseconds
CHAR ... TEXT, ENUM, SET       string                 text, as str or bytes
BINARY, BLOB                   binary                 bytes
JSON                           string, verbatim       text

Tests  tests/spark/columns/test_typed_values.py
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pyspark.sql import types as spark

from common.table_info import INT24, LONG, LONGLONG, SHORT, TINY, ColumnKind, FieldType

_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = spark.DecimalType(20, 0)
_SIGNED: Final = {
    TINY: spark.ByteType(),
    SHORT: spark.ShortType(),
    INT24: spark.IntegerType(),
    LONG: spark.IntegerType(),
    LONGLONG: spark.LongType(),
}
_UNSIGNED: Final = {
    TINY: spark.ShortType(),
    SHORT: spark.IntegerType(),
    INT24: spark.IntegerType(),
    LONG: spark.LongType(),
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
_SPARK_TYPES: Final[dict[ColumnKind, spark.DataType]] = {
    ColumnKind.YEAR: spark.ShortType(),
    ColumnKind.BIT: _UNSIGNED_LONG,
    ColumnKind.FLOAT: spark.FloatType(),
    ColumnKind.DOUBLE: spark.DoubleType(),
    ColumnKind.BINARY: spark.BinaryType(),
    ColumnKind.DATE: spark.DateType(),
    ColumnKind.DATETIME: spark.TimestampNTZType(),
    ColumnKind.TIMESTAMP: spark.TimestampType(),
    ColumnKind.TIME: spark.DayTimeIntervalType(),
}


def family_of(field_type: FieldType) -> Family:
    return _FAMILIES[field_type.kind]


def spark_type(field_type: FieldType) -> spark.DataType:
    kind = field_type.kind
    if kind is ColumnKind.SIGNED:
        return _SIGNED[field_type.tp]
    if kind is ColumnKind.UNSIGNED:
        return _UNSIGNED[field_type.tp]
    if kind is ColumnKind.DECIMAL and 0 < field_type.flen <= _DIGITS_MAX:
        return spark.DecimalType(field_type.flen, field_type.fsp)
    return _SPARK_TYPES.get(kind, spark.StringType())
