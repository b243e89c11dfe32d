"""Datums of row values: one flag byte, then a payload. Skipping, and the forms shared by several types.

Nothing here knows columns. Every function takes the whole row and the offset of the flag byte and gives the
offset after the datum. IndexError means that the row ends inside; `RowError` that it is wrong.

Tests  tests/common/rowcodec/test_hostile.py
"""

from __future__ import annotations

import struct
from typing import Final

from tidb_binlog.rowcodec.binary_json import skip_json
from tidb_binlog.rowcodec.decimals import checked_size
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.varint import svarint, uvarint

NIL: Final = 0x00
BYTES: Final = 0x02
FLOAT: Final = 0x05
DECIMAL: Final = 0x06
DURATION: Final = 0x07
VARINT: Final = 0x08
UVARINT: Final = 0x09
JSON: Final = 0x0A
ROW_FORMAT_2: Final = 0x80

NULL_DATUM: Final = b"\x00"
_INTEGERS: Final = frozenset((VARINT, UVARINT))
_EIGHT_BYTES: Final = frozenset((FLOAT, DURATION))

_double: Final = struct.Struct(">d")
_uint64: Final = struct.Struct(">Q")
_binary32: Final = struct.Struct(">f")


def wrong_flag(flag: int, expected: str) -> RowError:
    return RowError(f"datum flag {flag:#04x} instead of {expected}")


def skip(b: bytes, i: int) -> int:
    """Offset after the datum at `i`, whatever its type."""
    flag = b[i]
    if flag in _INTEGERS:
        return uvarint(b, i + 1)[1]
    if flag == BYTES:
        end = bytes_span(b, i)[1]
    elif flag == NIL:
        return i + 1
    elif flag in _EIGHT_BYTES:
        end = i + 9
    elif flag == DECIMAL:
        end = i + 3 + checked_size(b[i + 1], b[i + 2])
    elif flag == JSON:
        return skip_json(b, i)
    else:
        raise RowError(f"unknown datum flag {flag:#04x}")
    if end > len(b):
        raise IndexError
    return end


def bytes_span(b: bytes, i: int) -> tuple[int, int]:
    """Start and end of the content of the compact bytes at `i`."""
    if b[i] != BYTES:
        raise wrong_flag(b[i], "a string")
    u, start = uvarint(b, i + 1)
    if u & 1:
        raise RowError("string of negative length")
    end = start + (u >> 1)
    if end > len(b):
        raise RowError(f"string of {u >> 1} bytes, but only {len(b) - start} are left")
    return start, end


def read_bytes(b: bytes, i: int) -> tuple[bytes, int]:
    start, end = bytes_span(b, i)
    return b[start:end], end


def read_int(b: bytes, i: int) -> tuple[int, int]:
    """Integer with either flag: around an ALTER the flag need not be the column's."""
    flag = b[i]
    if flag == VARINT:
        return svarint(b, i + 1)
    if flag == UVARINT:
        return uvarint(b, i + 1)
    raise wrong_flag(flag, "an integer")


def read_unsigned(b: bytes, i: int) -> tuple[int, int]:
    """Integer of a type that knows no sign (ENUM, SET, BIT): negative ones are refused."""
    value, end = read_int(b, i)
    if value < 0:
        raise RowError("negative number in an unsigned type")
    return value, end


def read_handle(b: bytes, i: int) -> tuple[int, int]:
    """Row handle in front of an INSERT: always a signed integer."""
    if b[i] != VARINT:
        raise wrong_flag(b[i], "an integer handle")
    return svarint(b, i + 1)


def read_double(b: bytes, i: int) -> tuple[float, int]:
    if b[i] != FLOAT:
        raise wrong_flag(b[i], "a floating-point number")
    end = i + 9
    if end > len(b):
        raise IndexError
    bits = _uint64.unpack_from(b, i + 1)[0]
    bits ^= 1 << 63 if bits >> 63 else (1 << 64) - 1
    value: float = _double.unpack(_uint64.pack(bits))[0]
    if value - value != 0:
        raise RowError("floating-point number is not finite")
    return value, end


def read_float(b: bytes, i: int) -> tuple[float, int]:
    """FLOAT: stored widened; the value is that of binary32."""
    value, end = read_double(b, i)
    try:
        return _binary32.unpack(_binary32.pack(value))[0], end
    except OverflowError:
        raise RowError("number too large for FLOAT") from None


def read_packed_time(b: bytes, i: int) -> tuple[int, int]:
    if b[i] != UVARINT:
        raise wrong_flag(b[i], "a time")
    return uvarint(b, i + 1)


def read_duration(b: bytes, i: int) -> tuple[int, int]:
    """TIME in nanoseconds; bodies hold a varint, clustered keys eight comparable bytes."""
    flag = b[i]
    if flag == VARINT:
        return svarint(b, i + 1)
    if flag != DURATION:
        raise wrong_flag(flag, "a TIME")
    end = i + 9
    if end > len(b):
        raise IndexError
    return _uint64.unpack_from(b, i + 1)[0] - (1 << 63), end


def put_double(value: float) -> bytes:
    bits = _uint64.unpack(_double.pack(value))[0]
    bits ^= (1 << 64) - 1 if bits >> 63 else 1 << 63
    return b"\x05" + _uint64.pack(bits)


def put_comparable_duration(ns: int) -> bytes:
    return b"\x07" + _uint64.pack(ns + (1 << 63))
