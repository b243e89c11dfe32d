"""Python values of columns: what the readers of `TablePlan` give.

integers, YEAR, BIT          int
FLOAT, DOUBLE                float (FLOAT holds the binary32 value)
DECIMAL                      str, canonical: exactly the scale's digits
DATE, DATETIME, TIMESTAMP    str; TIMESTAMP in UTC
TIME                         str
CHAR, VARCHAR, TEXT          str; bytes where the content is not UTF-8
BINARY, VARBINARY, BLOB      bytes
ENUM, SET                    str with `number`: index from 1, or mask
JSON                         str, canonical text
NULL                         None

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Final, Self

from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    bytes_span,
    read_bytes,
    read_double,
    read_duration,
    read_float,
    read_int,
    read_packed_time,
    read_unsigned,
)
from tidb_binlog.rowcodec.decimals import decimal_str, header_of, read_decimal
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import date_text, datetime_text, duration_text, fraction_text
from tidb_binlog.rowcodec.time_caches import Fractions, Seconds, cached_reader
from tidb_binlog.table_info import Column, ColumnKind, FieldType


class _Numbered(str):
    """The text of a number."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> Self:
        self = super().__new__(cls, text)
        self.number = number
        return self

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]  # for copies and pickles
        return str(self), self.number


class EnumValue(_Numbered):
    """Element text of an ENUM; `number` is its index from 1, 0 (or beyond the list) with an empty text."""

    __slots__ = ()


class SetValue(_Numbered):
    """Element texts of a SET joined by commas; `number` is the mask."""

    __slots__ = ()


class JsonText(str):
    """The text of a JSON document, as TiDB prints it.

    `binary` is the datum that it was read from, None for a text from elsewhere: a double without a fraction,
    a date and a binary string inside a document cannot be told from their texts.
    """

    __slots__ = ("binary",)
    binary: bytes | None

    def __new__(cls, text: str, binary: bytes | None = None) -> Self:
        self = super().__new__(cls, text)
        self.binary = binary
        return self

    def __getnewargs__(self) -> tuple[str, bytes | None]:  # type: ignore[override]
        return str(self), self.binary

    def load(self) -> Any:
        """The document: dict, list, str, int, float, bool or None."""
        return json.loads(self)


class PartialDate(str):
    """A date or time that no calendar has: zero, with month or day 0, in the year 0, 30 February."""

    __slots__ = ()


def read_text(b: bytes, i: int) -> tuple[str | bytes, int]:
    start, end = bytes_span(b, i)
    raw = b[start:end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return raw, end


def set_reader(field_type: FieldType) -> Reader:
    """Masks of a SET; a bit without an element is refused."""
    limit = 1 << len(field_type.elems)

    def read(b: bytes, i: int) -> tuple[int, int]:
        mask, end = read_unsigned(b, i)
        if mask >= limit:
            raise RowError(f"SET of {len(field_type.elems)} elements has a bit beyond them")
        return mask, end

    return read


def set_text(field_type: FieldType, mask: int) -> str:
    return ",".join(name for bit, name in enumerate(field_type.elems) if mask >> bit & 1)


_dates: Final = cached_reader(date_text)
_seconds: Final = Seconds(lambda packed: datetime_text(packed, 0))


@functools.cache
def _fractions(fsp: int) -> Fractions[str]:
    return Fractions(lambda micro: fraction_text(micro, fsp))


def _enum(field_type: FieldType, place: int) -> Conversion:
    names = (EnumValue("", 0), *(EnumValue(text, n) for n, text in enumerate(field_type.elems, 1)))

    def read(b: bytes, i: int) -> tuple[EnumValue, int]:
        index, end = read_unsigned(b, i)
        return names[index] if index < len(names) else EnumValue("", index), end

    return Conversion(Shape.UNSIGNED, f"enum{place}[u]", read, {f"enum{place}": names})


def _set(field_type: FieldType, place: int) -> Conversion:
    mask_of = set_reader(field_type)

    def read(b: bytes, i: int) -> tuple[SetValue, int]:
        mask, end = mask_of(b, i)
        return SetValue(set_text(field_type, mask), mask), end

    return Conversion(Shape.CALL, "", read)


def _duration(field_type: FieldType, place: int) -> Conversion:
    fsp = field_type.fsp

    def read(b: bytes, i: int) -> tuple[str, int]:
        ns, end = read_duration(b, i)
        return duration_text(ns, fsp), end

    return Conversion(Shape.CALL, "", read)


def _date(field_type: FieldType, place: int) -> Conversion:
    read, cache = _dates
    return Conversion(Shape.TIME, "", read, cache=cache)


def _time(field_type: FieldType, place: int) -> Conversion:
    fsp = field_type.fsp

    def read(b: bytes, i: int) -> tuple[str, int]:
        packed, end = read_packed_time(b, i)
        return datetime_text(packed, fsp), end

    names = {"second": _seconds, f"fraction{fsp}": _fractions(fsp)}
    return Conversion(Shape.TIME, f"second[t] + fraction{fsp}[q]", read, names)


def decimal_conversion(field_type: FieldType, place: int) -> Conversion:
    """DECIMAL as text."""
    precision, scale = field_type.flen, field_type.decimal
    header = header_of(precision, scale)
    if not header:
        return Conversion(Shape.CALL, "", read_decimal)
    name = f"decimal_{precision}_{scale}"
    names = {name: decimal_str(precision, scale)}
    return Conversion(Shape.DECIMAL, f"{name}(d)", read_decimal, names, header=header)


def _json(b: bytes, i: int) -> tuple[str, int]:
    text, end = read_json(b, i)
    return text.decode(), end


_SIGNED: Final = Conversion(Shape.SIGNED, SIGNED_VALUE, read_int)
_NUMBER: Final = Conversion(Shape.UNSIGNED, "u", read_unsigned)
_STRING: Final = Conversion(Shape.BYTES, "s", read_bytes)
RAW: Final[dict[ColumnKind, Conversion]] = {
    ColumnKind.SIGNED: _SIGNED,
    ColumnKind.UNSIGNED: Conversion(Shape.UNSIGNED, "u", read_int),
    ColumnKind.YEAR: _SIGNED,
    ColumnKind.BIT: _NUMBER,
    ColumnKind.ENUM: _NUMBER,
    ColumnKind.SET: _NUMBER,
    ColumnKind.FLOAT: Conversion(Shape.CALL, "", read_float),
    ColumnKind.DOUBLE: Conversion(Shape.DOUBLE, "u", read_double),
    ColumnKind.DECIMAL: Conversion(Shape.CALL, "", read_decimal),
    ColumnKind.TEXT: _STRING,
    ColumnKind.BINARY: _STRING,
    ColumnKind.JSON: Conversion(Shape.CALL, "", read_json),
}
"""What a datum holds: a number (of an ENUM its index, of a SET its mask), the text of a DECIMAL, the bytes of
a string or of JSON as text. Of dates and times each target has a form of its own."""


def raw_conversion(field_type: FieldType, place: int) -> Conversion:
    """What the datums of a column hold."""
    return RAW[field_type.kind]


def _always(conversion: Conversion) -> Callable[[FieldType, int], Conversion]:
    return lambda field_type, place: conversion


_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType, int], Conversion]]] = {
    **dict.fromkeys(RAW, raw_conversion),
    ColumnKind.DECIMAL: decimal_conversion,
    ColumnKind.TEXT: _always(Conversion(Shape.BYTES, "s.decode()", read_text)),
    ColumnKind.ENUM: _enum,
    ColumnKind.SET: _set,
    ColumnKind.DATE: _date,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: _always(Conversion(Shape.CALL, "", _json)),
}


def python_conversion(column: Column, place: int) -> Conversion:
    """How the column's datums become Python values; `place` makes names unique within a reader."""
    return _CONVERSIONS[column.type.kind](column.type, place)
