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
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from pyspark.sql import types as spark

from common.table_info import (
    BIT,
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    INT24,
    INTEGER_TYPES,
    JSON,
    LONG,
    LONGLONG,
    NEWDATE,
    SET,
    SHORT,
    STRING_TYPES,
    TIME,
    TIMESTAMP,
    TINY,
    YEAR,
    FieldType,
)

_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = spark.DecimalType(20, 0)
_SIGNED: Final = {
    TINY: spark.ByteType(),
    SHORT: spark.ShortType(),
    INT24: spark.IntegerType(),
    LONG: spark.IntegerType(),
    LONGLONG: spark.LongType(),
    YEAR: spark.ShortType(),
}
_UNSIGNED: Final = {
    TINY: spark.ShortType(),
    SHORT: spark.IntegerType(),
    INT24: spark.IntegerType(),
    LONG: spark.LongType(),
    LONGLONG: _UNSIGNED_LONG,
    YEAR: spark.ShortType(),
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


def family_of(kind: FieldType) -> Family:
    tp = kind.tp
    if kind.array or tp == JSON:
        return Family.JSON
    if tp in INTEGER_TYPES or tp == BIT:
        return Family.INTEGER
    if tp in (FLOAT, DOUBLE):
        return Family.FLOATING
    if tp in STRING_TYPES:
        return Family.BINARY if kind.is_binary_string else Family.TEXT
    if tp in (ENUM, SET):
        return Family.NAMED
    if tp in (DATE, NEWDATE):
        return Family.DATE
    if tp in (DATETIME, TIMESTAMP):
        return Family.DATETIME
    return Family.TIME if tp == TIME else Family.DECIMAL


def spark_type(kind: FieldType) -> spark.DataType:
    tp = kind.tp
    if tp in INTEGER_TYPES and not kind.array:
        return (_UNSIGNED if kind.unsigned else _SIGNED)[tp]
    if tp == BIT:
        return _UNSIGNED_LONG
    if tp == DECIMAL and 0 < kind.flen <= _DIGITS_MAX:
        return spark.DecimalType(kind.flen, kind.fsp)
    if tp == DATETIME:
        return spark.TimestampNTZType()
    if tp == TIMESTAMP:
        return spark.TimestampType()
    family = family_of(kind)
    if family is Family.FLOATING:
        return spark.FloatType() if tp == FLOAT else spark.DoubleType()
    if family is Family.DATE:
        return spark.DateType()
    if family is Family.TIME:
        return spark.DayTimeIntervalType()
    return spark.BinaryType() if family is Family.BINARY else spark.StringType()
