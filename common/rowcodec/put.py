"""Python values to datums: the writing side of `values`, used by the encoder and for defaults.

Takes what the readers give and a little more (numbers as text, ENUM and SET as number or text, Decimal).
ValueError or TypeError if a value does not fit the type.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

from common.rowcodec.datum import NULL_DATUM, put_double
from common.rowcodec.decimals import put_decimal
from common.rowcodec.json_encode import put_json
from common.rowcodec.temporal import pack_datetime, parse_duration
from common.rowcodec.values import EnumValue, SetValue
from common.rowcodec.varint import INT64_END, UINT64_END, put_svarint, put_uvarint
from common.table_info import (
    BIT,
    DATE,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    INTEGER_TYPES,
    JSON,
    NEWDATE,
    SET,
    STRING,
    STRING_TYPES,
    TIME,
    TIME_TYPES,
    YEAR,
    FieldType,
)

_binary32: Final = struct.Struct(">f")
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


def enum_number(kind: FieldType, value: Any) -> int:
    if isinstance(value, EnumValue):
        return value.number
    if isinstance(value, int):
        return value
    return kind.elems.index(value) + 1


def set_mask(kind: FieldType, value: Any) -> int:
    if isinstance(value, SetValue):
        return value.number
    if isinstance(value, int):
        return value
    mask = 0
    for name in value.split(",") if value else ():
        mask |= 1 << kind.elems.index(name)
    return mask


def string_bytes(kind: FieldType, value: str | bytes) -> bytes:
    """Stored bytes of a string: BINARY padded with zeros, CHAR without trailing blanks."""
    raw = value.encode() if isinstance(value, str) else bytes(value)
    if kind.tp == STRING:
        return raw.ljust(max(kind.flen, 0), b"\0") if kind.is_binary_string else raw.rstrip(b" ")
    return raw


def _number(kind: type[int] | type[float], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:  # whose text has the value in it
        raise ValueError("not a number") from None


def put_value(kind: FieldType, value: Any) -> bytes:
    """Datum of a value as a row body holds it; None is NULL."""
    tp = kind.tp
    if value is None:
        return NULL_DATUM
    if kind.array or tp == JSON:
        return put_json(value)
    if tp in INTEGER_TYPES:
        return put_int(_number(int, value), unsigned=kind.unsigned and tp != YEAR)
    if tp in STRING_TYPES:
        return put_bytes(string_bytes(kind, value))
    if tp in TIME_TYPES:
        packed = pack_datetime(value)
        if tp in (DATE, NEWDATE):
            packed &= ~_TIME_OF_DAY
        elif (packed & 0xFFFFFF) % 10 ** (6 - kind.fsp):
            raise ValueError("more digits of a second than the column has")
        return b"\x09" + put_uvarint(packed)
    if tp == TIME:
        ns = parse_duration(value)
        if ns % 10 ** (9 - kind.fsp):
            raise ValueError("more digits of a second than the column has")
        return b"\x08" + put_svarint(ns)
    if tp == DECIMAL:
        number = value if isinstance(value, str | int | Decimal) else repr(float(value))
        return put_decimal(number, kind.flen if kind.flen > 0 else 10, kind.fsp)
    if tp == DOUBLE:
        return put_double(_number(float, value))
    if tp == FLOAT:
        return put_double(_binary32.unpack(_binary32.pack(_number(float, value)))[0])
    if tp == BIT:
        return put_int(value if isinstance(value, int) else int.from_bytes(value, "big"), unsigned=True)
    if tp == ENUM:
        return put_int(enum_number(kind, value), unsigned=True)
    if tp == SET:
        return put_int(set_mask(kind, value), unsigned=True)
    raise ValueError(f"type {tp} cannot be written")
