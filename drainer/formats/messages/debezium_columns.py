"""debezium-json columns: values and schema types of Debezium's MySQL connector, column by column.

In     a column's definition
Out    how its values are written (`json_rows.JsonColumn`), and its field in Kafka Connect's schema
Source the documentation of Debezium's MySQL connector, "data type mappings"
Tests  tests/drainer/formats/messages/test_debezium_json.py

    value                              JSON                                 schema
    integers                           number                               int16, int32, int64
    BIGINT UNSIGNED                    base64 of a number                   Decimal; int64 with "long"
    DECIMAL                            base64 of the digits as a number     Decimal; string, double on request
    FLOAT, DOUBLE                      number                               float, double
    BIT(1), other BIT                  boolean; base64, low byte first      boolean; Bits
    YEAR                               number                               Year
    DATE                               number of days since 1970            Date
    DATETIME                           milliseconds, beyond 3 digits microseconds    Timestamp, MicroTimestamp
    TIMESTAMP                          string, ISO 8601 in UTC              ZonedTimestamp
    TIME                               number of microseconds               MicroTime
    text                               string; U+FFFD for what is not UTF-8 string
    BINARY, VARBINARY, BLOB            base64                               bytes
    ENUM, SET                          string                               Enum, EnumSet
    JSON                               string that has the document         Json

A date that no calendar has is null, or the beginning of 1970 in a column that cannot be NULL.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from drainer.formats.messages.connect_decimal import scaled_digits, unscaled
from drainer.formats.messages.json_rows import (
    NULL,
    JsonColumn,
    decimal_column,
    document_column,
    float_column,
    integer_column,
    json_string,
    shown,
    string_column,
    text_column,
)
from drainer.formats.messages.message import FormatOptions
from tidb_binlog import table_info as ti
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_bytes, read_double, read_duration, read_int, read_unsigned
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import datetime_text
from tidb_binlog.rowcodec.time_caches import cached_reader
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType

Schema = dict[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)
_SIGNED: Final = {ti.TINY: "int16", ti.SHORT: "int16", ti.INT24: "int32", ti.LONG: "int32"}
_UNSIGNED: Final = {ti.TINY: "int16", ti.SHORT: "int32", ti.INT24: "int32", ti.LONG: "int64"}
_DECIMAL_MODES: Final = ("precise", "string", "double")
_UNSIGNED_MODES: Final = ("", "precise", "long")


def _base64(raw: bytes) -> str:
    return f'"{base64.b64encode(raw).decode()}"'


def _micro(packed: int) -> int | None:
    """Microseconds since 1970 of a time; None if no calendar has it."""
    year, month = divmod(packed >> 46, 13)
    day, hour, minute, second = packed >> 41 & 31, packed >> 36 & 31, packed >> 30 & 63, packed >> 24 & 63
    try:
        at = datetime(year, month, day, hour, minute, second, packed & 0xFFFFFF, UTC)
    except ValueError:
        datetime_text(packed, 6)  # raises for what is no time at all
        return None
    return (at - _EPOCH) // _MICRO


@functools.cache
def _times(kind: ColumnKind, fsp: int, not_null: bool) -> tuple[Reader, dict[bytes, Any]]:
    """One cache for all columns that show times alike."""
    unit = {ColumnKind.DATE: 86_400_000_000, ColumnKind.DATETIME: 1 if fsp > 3 else 1000}.get(kind)

    def show(packed: int) -> str:
        micro = _micro(packed)
        if micro is None:
            nothing = "0" if unit else '"1970-01-01T00:00:00Z"'
            return nothing if not_null else NULL
        if unit:
            return str(micro // unit)
        return f'"{datetime_text(packed, fsp).replace(" ", "T")}Z"'

    return cached_reader(show)


def _time(column: Column) -> JsonColumn:
    kind = column.type
    read, cache = _times(kind.kind, kind.fsp, kind.not_null)
    return JsonColumn(column, Conversion(Shape.TIME, "", read, {"NULL": NULL}, cache=cache, null="NULL"))


def _duration(column: Column) -> JsonColumn:
    return text_column(
        column, shown(read_duration, lambda ns: str(ns // 1000 if ns >= 0 else -(-ns // 1000)))
    )


def _bit(column: Column) -> JsonColumn:
    width = (max(column.type.flen, 1) + 7) // 8

    def show(value: int) -> str:
        if column.type.flen <= 1:
            return "true" if value else "false"
        return _base64(value.to_bytes(max(width, (value.bit_length() + 7) // 8), "little"))

    return text_column(column, shown(read_unsigned, show))


def _named(column: Column) -> JsonColumn:
    kind, elements = column.type, column.type.elems

    def show(number: int) -> str:
        if kind.kind is ColumnKind.ENUM:
            return json_string(elements[number - 1]) if 0 < number <= len(elements) else '""'
        return json_string(set_text(kind, number))

    return text_column(column, shown(read_unsigned, show))


def _binary(column: Column) -> JsonColumn:
    conversion = Conversion(
        Shape.BYTES,
        "in_base64(s)",
        shown(read_bytes, _base64),
        {"NULL": NULL, "in_base64": _base64},
        null="NULL",
    )
    return JsonColumn(column, conversion)


def _integer(column: Column) -> JsonColumn:
    return integer_column(column, str, "")


def _unsigned(column: Column) -> JsonColumn:
    if column.type.not_null:
        return JsonColumn(column, Conversion(Shape.UNSIGNED, "u", read_int))
    return text_column(column, shown(read_int, str), Shape.UNSIGNED, "str(u)")


def _large(column: Column, show: Callable[[int], str]) -> JsonColumn:
    """BIGINT UNSIGNED: a number until it is written, since it may come out of the handle."""
    name = f"large{column.id}"
    conversion = Conversion(Shape.UNSIGNED, "u", read_int)
    piece = f"{{{name}(<v>)}}" if column.type.not_null else f"{{NULL if <v> is None else {name}(<v>)}}"
    return JsonColumn(column, conversion, piece, show, {name: show})


_COLUMNS: Final[dict[ColumnKind, Callable[[Column], JsonColumn]]] = {
    ColumnKind.SIGNED: _integer,
    ColumnKind.YEAR: _integer,
    ColumnKind.UNSIGNED: _unsigned,
    ColumnKind.BIT: _bit,
    ColumnKind.ENUM: _named,
    ColumnKind.SET: _named,
    ColumnKind.FLOAT: float_column,
    ColumnKind.DOUBLE: lambda column: text_column(column, shown(read_double, repr)),
    ColumnKind.TEXT: string_column,
    ColumnKind.BINARY: _binary,
    ColumnKind.DATE: _time,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: document_column,
}

_NAMED_TYPES: Final = {
    ColumnKind.YEAR: ("int32", "io.debezium.time.Year"),
    ColumnKind.DATE: ("int32", "io.debezium.time.Date"),
    ColumnKind.TIMESTAMP: ("string", "io.debezium.time.ZonedTimestamp"),
    ColumnKind.TIME: ("int64", "io.debezium.time.MicroTime"),
    ColumnKind.JSON: ("string", "io.debezium.data.Json"),
    ColumnKind.ENUM: ("string", "io.debezium.data.Enum"),
    ColumnKind.SET: ("string", "io.debezium.data.EnumSet"),
}
_PLAIN_TYPES: Final = {
    ColumnKind.FLOAT: "float",
    ColumnKind.DOUBLE: "double",
    ColumnKind.TEXT: "string",
    ColumnKind.BINARY: "bytes",
}


class DebeziumColumns:
    """How columns are written, as the options say."""

    def __init__(self, options: FormatOptions) -> None:
        self._decimal, self._large = options.decimal, options.bigint_unsigned
        _check("decimal", self._decimal, _DECIMAL_MODES)
        _check("bigint-unsigned", self._large, _UNSIGNED_MODES)

    def convert(self, column: Column, place: int) -> JsonColumn:
        kind = column.type
        if kind.kind is ColumnKind.DECIMAL:
            if self._decimal == "string":
                return decimal_column(column)
            precise = self._decimal == "precise"
            scale = kind.fsp

            def show(text: str) -> str:
                return _base64(unscaled(scaled_digits(text, scale))) if precise else repr(float(text))

            return text_column(column, shown(read_decimal, show))
        if kind.kind is ColumnKind.UNSIGNED and kind.tp == ti.LONGLONG:
            if self._large == "long":
                return _large(column, lambda value: str(value - (1 << 64) if value >> 63 else value))
            return _large(column, lambda value: _base64(unscaled(value)))
        return _COLUMNS[kind.kind](column)

    def field(self, column: Column) -> Schema:
        """The column's field in the schema of its row."""
        kind = column.type
        return {**self._type(kind), "optional": not kind.not_null, "field": column.name}

    def _type(self, kind: FieldType) -> Schema:
        if kind.kind in _PLAIN_TYPES:
            return {"type": _PLAIN_TYPES[kind.kind]}
        if kind.kind in _NAMED_TYPES:
            name, semantic = _NAMED_TYPES[kind.kind]
            found: Schema = {"type": name, "name": semantic, "version": 1}
            if kind.elems:
                found["parameters"] = {"allowed": ",".join(one.replace(",", "\\,") for one in kind.elems)}
            return found
        if kind.kind is ColumnKind.DATETIME:
            semantic = "MicroTimestamp" if kind.fsp > 3 else "Timestamp"
            return {"type": "int64", "name": f"io.debezium.time.{semantic}", "version": 1}
        if kind.kind is ColumnKind.BIT:
            if kind.flen <= 1:
                return {"type": "boolean"}
            length = {"length": str(kind.flen)}
            return {"type": "bytes", "name": "io.debezium.data.Bits", "version": 1, "parameters": length}
        if kind.kind is ColumnKind.DECIMAL:
            if self._decimal != "precise":
                return {"type": self._decimal}
            return _decimal_type(kind.fsp, kind.flen if kind.flen > 0 else 10)
        return self._integer_type(kind)

    def _integer_type(self, kind: FieldType) -> Schema:
        if kind.tp == ti.LONGLONG and kind.unsigned and self._large != "long":
            return _decimal_type(0, 20)
        return {"type": (_UNSIGNED if kind.unsigned else _SIGNED).get(kind.tp, "int64")}


def _decimal_type(scale: int, precision: int) -> Schema:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "version": 1, "parameters": parameters}


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        words = ", ".join(repr(one) for one in known if one)
        raise ConfigError(f"{name} = {value!r} is no mode of debezium-json", hint=f"use one of {words}")
