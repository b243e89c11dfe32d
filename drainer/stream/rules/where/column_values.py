"""Column values of `where`: a column's datum as a value that compares, and a literal as the same.

In     a column's type; a literal
Out    a conversion for the generated readers; the class that says what may be compared with it
Holds  numbers keep every digit; dates and times are packed integers; text is its raw bytes. A literal is
       turned into the column's form once, or refused with what to write instead
Never  converts as MySQL does where people are surprised: text to number, number to text, number to date

Tests  tests/drainer/stream/rules/where/test_compiler.py
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from drainer.stream.rules.where.expression import Literal, LiteralKind
from tidb_binlog.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    read_bytes,
    read_double,
    read_duration,
    read_float,
    read_int,
    read_packed_time,
    read_unsigned,
)
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.temporal import pack_datetime, parse_duration
from tidb_binlog.rowcodec.values import python_conversion, set_reader
from tidb_binlog.table_info import Column, ColumnKind, FieldType

_DATE_TEXT: Final = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}(?:[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d{1,6})?)?)?", re.ASCII
)
_TIME_TEXT: Final = re.compile(r"-?\d{1,3}:\d{1,2}:\d{1,2}(?:\.\d{1,6})?", re.ASCII)
# From here on not every whole number is a float, and servers answer differently from statement to statement.
_WHOLE_FLOATS_END: Final = 2.0**53


class ValueClass(Enum):
    """What is compared in one way."""

    EXACT = "an exact number"
    YEAR = "a YEAR"
    FLOAT = "a floating-point number"
    TEXT = "a text"
    BYTES = "a binary string"
    MOMENT = "a date or time of a day"
    DURATION = "a TIME"
    ENUM = "an ENUM"
    SET = "a SET"
    JSON = "JSON"


_CLASSES: Final = {
    ColumnKind.SIGNED: ValueClass.EXACT,
    ColumnKind.UNSIGNED: ValueClass.EXACT,
    ColumnKind.YEAR: ValueClass.YEAR,
    ColumnKind.BIT: ValueClass.EXACT,
    ColumnKind.FLOAT: ValueClass.FLOAT,
    ColumnKind.DOUBLE: ValueClass.FLOAT,
    ColumnKind.DECIMAL: ValueClass.EXACT,
    ColumnKind.TEXT: ValueClass.TEXT,
    ColumnKind.BINARY: ValueClass.BYTES,
    ColumnKind.ENUM: ValueClass.ENUM,
    ColumnKind.SET: ValueClass.SET,
    ColumnKind.DATE: ValueClass.MOMENT,
    ColumnKind.DATETIME: ValueClass.MOMENT,
    ColumnKind.TIMESTAMP: ValueClass.MOMENT,
    ColumnKind.TIME: ValueClass.DURATION,
    ColumnKind.JSON: ValueClass.JSON,
}
NUMBERS: Final = frozenset({ValueClass.EXACT, ValueClass.YEAR, ValueClass.FLOAT})
TEXTS: Final = frozenset({ValueClass.TEXT, ValueClass.BYTES})
ELEMENTS: Final = frozenset({ValueClass.ENUM, ValueClass.SET})


class Unlike(Exception):
    """A literal that does not go with a column: what it is, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def class_of(field_type: FieldType) -> ValueClass:
    return _CLASSES[field_type.kind]


def _read_decimal(b: bytes, i: int) -> tuple[Decimal, int]:
    text, end = read_decimal(b, i)
    return Decimal(text), end


_ALIKE: Final = {
    ColumnKind.SIGNED: Conversion(Shape.SIGNED, SIGNED_VALUE, read_int),
    ColumnKind.YEAR: Conversion(Shape.SIGNED, SIGNED_VALUE, read_int),
    ColumnKind.UNSIGNED: Conversion(Shape.UNSIGNED, "u", read_int),
    ColumnKind.BIT: Conversion(Shape.UNSIGNED, "u", read_unsigned),
    ColumnKind.FLOAT: Conversion(Shape.CALL, "", read_float),
    ColumnKind.DOUBLE: Conversion(Shape.DOUBLE, "u", read_double),
    ColumnKind.DECIMAL: Conversion(Shape.CALL, "", _read_decimal),
    ColumnKind.TEXT: Conversion(Shape.BYTES, "s", read_bytes),
    ColumnKind.BINARY: Conversion(Shape.BYTES, "s", read_bytes),
    ColumnKind.ENUM: Conversion(Shape.UNSIGNED, "u", read_unsigned),
    ColumnKind.DATE: Conversion(Shape.UNSIGNED, "u", read_packed_time),
    ColumnKind.DATETIME: Conversion(Shape.UNSIGNED, "u", read_packed_time),
    ColumnKind.TIMESTAMP: Conversion(Shape.UNSIGNED, "u", read_packed_time),
    ColumnKind.TIME: Conversion(Shape.CALL, "", read_duration),
}


def comparable_conversion(column: Column, place: int) -> Conversion:
    """How the column's datums become values that compare."""
    if column.type.kind is ColumnKind.SET:
        return Conversion(Shape.CALL, "", set_reader(column.type))
    return _ALIKE.get(column.type.kind) or python_conversion(column, place)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal in a column's form. `as_float`: the column's values are to be compared as floats."""

    value: Any
    as_float: bool = False


def constant(literal: Literal, field_type: FieldType) -> Constant:
    """Raises `Unlike`. Elements of ENUM and SET by name are texts, by number numbers."""
    kind, value = class_of(field_type), literal.value
    if kind is ValueClass.JSON:
        raise Unlike("JSON, of which only IS NULL is known", "use python = ... for what is inside")
    if kind in NUMBERS or (kind in ELEMENTS and literal.kind is LiteralKind.NUMBER):
        return _number(literal, kind)
    if kind in TEXTS or kind in ELEMENTS:
        if literal.kind is LiteralKind.BYTES:
            assert isinstance(value, bytes)
            return Constant(value)
        if literal.kind is LiteralKind.TEXT:
            return Constant(str(value).encode())
        raise Unlike(f"compared with {literal.kind.value}", "write a text in quotes: 'abc'")
    if kind is ValueClass.DURATION:
        return Constant(_duration(literal))
    return Constant(_moment(literal))


def _number(literal: Literal, kind: ValueClass) -> Constant:
    value = literal.value
    if literal.kind is not LiteralKind.NUMBER or isinstance(value, str | bytes | None):
        raise Unlike(f"compared with {literal.kind.value}", "write the number without quotes")
    if kind is ValueClass.YEAR and not (value == 0 or value >= 100):
        raise Unlike(f"a YEAR, compared with {value}", "write years with four digits")
    if isinstance(value, float) and kind is not ValueClass.FLOAT and abs(value) >= _WHOLE_FLOATS_END:
        raise Unlike(
            f"compared with {literal}, which stands for several whole numbers", "write all its digits"
        )
    if kind is ValueClass.FLOAT or isinstance(value, float):
        return Constant(float(value), as_float=True)
    return Constant(value)


def _moment(literal: Literal) -> int:
    text = str(literal.value)
    hint = "write '2024-05-01' or '2024-05-01 10:00:00', a TIMESTAMP in UTC"
    if literal.kind not in (LiteralKind.TEXT, LiteralKind.DATE, LiteralKind.TIMESTAMP):
        raise Unlike(f"compared with {literal.kind.value}", hint)
    if not _DATE_TEXT.fullmatch(text) or (literal.kind is LiteralKind.DATE and len(text) > len("2024-05-01")):
        raise Unlike(f"compared with {text!r}, which is no date or time", hint)
    try:
        packed = pack_datetime(text)
    except ValueError:
        raise Unlike(f"compared with {text!r}, which is no date or time", hint) from None
    year, month = divmod(packed >> 46, 13)
    if month and packed >> 41 & 31 > calendar.monthrange(year or 4, month)[1]:
        raise Unlike(f"compared with {text!r}, a day that does not exist", hint)
    return packed


def _duration(literal: Literal) -> int:
    text = str(literal.value)
    if literal.kind not in (LiteralKind.TEXT, LiteralKind.TIME):
        raise Unlike(f"compared with {literal.kind.value}", "write '10:00:00'")
    if not _TIME_TEXT.fullmatch(text):
        raise Unlike(f"compared with {text!r}, which is no TIME", "write '10:00:00'")
    try:
        return parse_duration(text)
    except ValueError:
        raise Unlike(f"compared with {text!r}, which is no TIME", "it ends at 838:59:59") from None
