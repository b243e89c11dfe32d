"""Python values to datums: the writing side of `values`, used by the encoder and for defaults.

Takes what readers of any kind give and a little more: numbers as text, ENUM and SET as number or text,
Decimal, date, datetime, time, timedelta, JSON as text or document. A datetime with a zone becomes UTC.
ValueError or TypeError if a value does not fit the type.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import math
import struct
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from tidb_binlog.rowcodec.datum import NULL_DATUM, put_double
from tidb_binlog.rowcodec.decimals import put_decimal
from tidb_binlog.rowcodec.json_encode import put_json
from tidb_binlog.rowcodec.temporal import clock_text, pack_datetime, parse_duration
from tidb_binlog.rowcodec.values import EnumValue, JsonText, SetValue
from tidb_binlog.rowcodec.varint import INT64_END, UINT64_END, put_svarint, put_uvarint
from tidb_binlog.table_info import STRING, ColumnKind, FieldType

_binary32: Final = struct.Struct(">f")
_DIGITS_MAX: Final = 400  # an int of a million digits takes a minute
_TIME_OF_DAY: Final = (1 << 41) - 1


def put_bytes(raw: bytes) -> bytes:
    return b"\x02" + put_svarint(len(raw)) + raw


def put_int(value: int, *, unsigned: bool) -> bytes:
    if unsigned:
        if not 0 <= value < UINT64_END:
            raise ValueError("out of range for an unsigned integer")
        return b"\x09" + put_uvarint(value)
    if not -INT64_END <= value < INT64_END:
        raise ValueError("out of range for a signed integer")
    return b"\x08" + put_svarint(value)


def element(field_type: FieldType, name: str) -> int | None:
    """Number of the element of an ENUM or SET that is this one by its collation, from 1 on."""
    if name in field_type.elems:  # beside it may be another that a collation of here takes for it
        return field_type.elems.index(name) + 1
    collate = field_type.collate
    folded = _folded(name, collate)
    places = (at for at, candidate in enumerate(field_type.elems, 1) if _folded(candidate, collate) == folded)
    return next(places, None)


def _folded(name: str, collate: str) -> str:
    if "_0900_" not in collate and collate != "binary":
        name = name.rstrip(" ")
    if collate.endswith("_ci"):
        plain = unicodedata.normalize("NFD", name)
        name = "".join(character for character in plain if not unicodedata.combining(character)).casefold()
    return name


def elements_mask(field_type: FieldType, names: str) -> int | None:
    """Bits of a SET's elements, `a,b`; None if one of them is none."""
    numbers = [element(field_type, name) for name in names.split(",")] if names else []
    if None in numbers:
        return None
    return sum({1 << number - 1 for number in numbers if number})


def enum_number(field_type: FieldType, value: Any) -> int:
    if isinstance(value, EnumValue):
        return value.number
    if isinstance(value, int):
        return value
    return _known(element(field_type, value))


def set_mask(field_type: FieldType, value: Any) -> int:
    if isinstance(value, SetValue):
        return value.number
    if isinstance(value, int):
        return value
    return _known(elements_mask(field_type, value))


def _known(number: int | None) -> int:
    if number is None:
        raise ValueError("none of its elements")
    return number


def string_bytes(field_type: FieldType, value: str | bytes) -> bytes:
    """Stored bytes of a string: BINARY padded with zeros, CHAR without trailing blanks."""
    raw = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    if field_type.tp == STRING:
        return raw.ljust(max(field_type.flen, 0), b"\0") if field_type.is_binary_string else raw.rstrip(b" ")
    return raw


def _number(number_type: type[int] | type[float], value: Any) -> Any:
    if isinstance(value, Decimal) and value.adjusted() > _DIGITS_MAX:
        raise ValueError("out of range")
    try:
        number = number_type(value)
    except ValueError:  # whose text has the value in it
        raise ValueError("not a number") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError("not a finite number")
    return number


def _put_signed(field_type: FieldType, value: Any) -> bytes:
    return put_int(_number(int, value), unsigned=False)


def _put_unsigned(field_type: FieldType, value: Any) -> bytes:
    return put_int(_number(int, value), unsigned=True)


def _put_bit(field_type: FieldType, value: Any) -> bytes:
    return put_int(value if isinstance(value, int) else int.from_bytes(value, "big"), unsigned=True)


def _put_float(field_type: FieldType, value: Any) -> bytes:
    return put_double(_binary32.unpack(_binary32.pack(_number(float, value)))[0])


def _put_decimal(field_type: FieldType, value: Any) -> bytes:
    number = value if isinstance(value, str | int | Decimal) else repr(_number(float, value))
    return put_decimal(number, field_type.flen if field_type.flen > 0 else 10, field_type.fsp)


def _put_string(field_type: FieldType, value: Any) -> bytes:
    return put_bytes(string_bytes(field_type, value))


def _clock(value: Any) -> str:
    return value if isinstance(value, str) else clock_text(value)


def duration_ns(value: Any) -> int:
    """Nanoseconds of a TIME: a text, timedelta or time."""
    return parse_duration(_clock(value))


def _put_json(field_type: FieldType, value: Any) -> bytes:
    binary = value.binary if isinstance(value, JsonText) else None
    return put_json(value) if binary is None else binary


def _put_date(field_type: FieldType, value: Any) -> bytes:
    return b"\x09" + put_uvarint(pack_datetime(_clock(value)) & ~_TIME_OF_DAY)


def _put_datetime(field_type: FieldType, value: Any) -> bytes:
    packed = pack_datetime(_clock(value))
    if (packed & 0xFFFFFF) % 10 ** (6 - field_type.fsp):
        raise ValueError("more digits of a second than the column has")
    return b"\x09" + put_uvarint(packed)


def _put_duration(field_type: FieldType, value: Any) -> bytes:
    ns = duration_ns(value)
    if ns % 10 ** (9 - field_type.fsp):
        raise ValueError("more digits of a second than the column has")
    return b"\x08" + put_svarint(ns)


_WRITERS: Final[dict[ColumnKind, Callable[[FieldType, Any], bytes]]] = {
    ColumnKind.SIGNED: _put_signed,
    ColumnKind.UNSIGNED: _put_unsigned,
    ColumnKind.YEAR: _put_signed,
    ColumnKind.BIT: _put_bit,
    ColumnKind.FLOAT: _put_float,
    ColumnKind.DOUBLE: lambda field_type, value: put_double(_number(float, value)),
    ColumnKind.DECIMAL: _put_decimal,
    ColumnKind.TEXT: _put_string,
    ColumnKind.BINARY: _put_string,
    ColumnKind.ENUM: lambda field_type, value: put_int(enum_number(field_type, value), unsigned=True),
    ColumnKind.SET: lambda field_type, value: put_int(set_mask(field_type, value), unsigned=True),
    ColumnKind.DATE: _put_date,
    ColumnKind.DATETIME: _put_datetime,
    ColumnKind.TIMESTAMP: _put_datetime,
    ColumnKind.TIME: _put_duration,
    ColumnKind.JSON: _put_json,
}


def put_value(field_type: FieldType, value: Any) -> bytes:
    """Datum of a value as a row body holds it; None is NULL."""
    if value is None:
        return NULL_DATUM
    put = _WRITERS.get(field_type.kind)
    if put is None:
        raise ValueError(f"type {field_type.tp} cannot be written")
    return put(field_type, value)
