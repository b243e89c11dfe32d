"""JSON datums: TiDB's binary JSON, read into the text TiDB prints.

All numbers are little-endian. Containers carry their size and tables of offsets relative to their own first
byte. Those offsets come from outside: every one must lie after all that was read before it, so the work and
the output stay proportional to the input and a container can never be visited twice.

Tests  tests/common/rowcodec/test_golden.py
"""

from __future__ import annotations

import base64
import struct
from typing import Final

from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.temporal import datetime_text, duration_text
from tidb_binlog.rowcodec.varint import uvarint

OBJECT: Final = 0x01
ARRAY: Final = 0x03
LITERAL: Final = 0x04
INT64: Final = 0x09
UINT64: Final = 0x0A
DOUBLE: Final = 0x0B
STRING: Final = 0x0C
OPAQUE: Final = 0x0D
DATE: Final = 0x0E
DATETIME: Final = 0x0F
TIMESTAMP: Final = 0x10
DURATION: Final = 0x11

DEPTH_MAX: Final = 100
HEADER: Final = 8
KEY_ENTRY: Final = 6
VALUE_ENTRY: Final = 5

_LITERALS: Final = (b"null", b"true", b"false")
_FIXED: Final = {LITERAL: 1, INT64: 8, UINT64: 8, DOUBLE: 8, DATE: 8, DATETIME: 8, TIMESTAMP: 8, DURATION: 12}
_two_u32: Final = struct.Struct("<II").unpack_from
_u32: Final = struct.Struct("<I").unpack_from
_key_entry: Final = struct.Struct("<IH").unpack_from
_int64: Final = struct.Struct("<q").unpack_from
_uint64: Final = struct.Struct("<Q").unpack_from
_double: Final = struct.Struct("<d").unpack_from
_duration: Final = struct.Struct("<qI").unpack_from

_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    ord("\\"): "\\\\",
    ord('"'): '\\"',
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
    **{0xDC80 + code: "\\ufffd" for code in range(128)},  # bytes that were not UTF-8
}


def value_end(b: bytes, i: int, limit: int, tp: int) -> int:
    """Offset after the value of type `tp` at `i`; `RowError` unless it ends at or before `limit`."""
    if tp in _FIXED:
        end = i + _FIXED[tp]
    elif tp in (OBJECT, ARRAY):
        if i + HEADER > limit:
            raise RowError("JSON container cut off")
        size = _u32(b, i + 4)[0]
        if size < HEADER:
            raise RowError("JSON container smaller than its header")
        end = i + size
    elif tp in (STRING, OPAQUE):
        length, i = uvarint(b, i + (tp == OPAQUE))
        end = i + length
    else:
        raise RowError(f"JSON type {tp:#04x}")
    if end > limit:
        raise RowError("JSON value longer than what holds it")
    return end


def skip_json(b: bytes, i: int) -> int:
    """Offset after the datum whose flag byte is at `i`; containers are not decoded."""
    return value_end(b, i + 2, len(b), b[i + 1])


def read_json(b: bytes, i: int) -> tuple[bytes, int]:
    """Canonical UTF-8 text of the datum whose flag byte is at `i`, and the next offset."""
    if b[i] != 0x0A:
        raise RowError(f"datum flag {b[i]:#04x} instead of JSON")
    tp = b[i + 1]
    end = value_end(b, i + 2, len(b), tp)
    out = bytearray()
    _write(out, b, i + 2, end, tp, 1)
    return bytes(out), end


def _write(out: bytearray, b: bytes, i: int, end: int, tp: int, depth: int) -> None:
    """Append the text of the value that fills b[i:end]."""
    if tp in (OBJECT, ARRAY):
        if depth > DEPTH_MAX:
            raise RowError(f"JSON nested deeper than {DEPTH_MAX}")
        _write_container(out, b, i, i + _u32(b, i + 4)[0], tp == OBJECT, depth)
    elif tp == STRING:
        _, start = uvarint(b, i)
        _write_string(out, b[start:end])
    elif tp == INT64:
        out += b"%d" % _int64(b, i)[0]
    elif tp == LITERAL:
        out += _literal(b[i])
    elif tp == UINT64:
        out += b"%d" % _uint64(b, i)[0]
    elif tp == DOUBLE:
        out += double_text(_double(b, i)[0])
    elif tp == OPAQUE:
        _, start = uvarint(b, i + 1)
        out += b'"base64:type%d:%s"' % (b[i], base64.b64encode(b[start:end]))
    elif tp == DURATION:
        out += b'"%s"' % duration_text(_duration(b, i)[0], 6).encode()
    else:
        out += b'"%s"' % _core_time_text(_uint64(b, i)[0], tp).encode()


def _literal(code: int) -> bytes:
    if code > 2:
        raise RowError(f"JSON literal {code}")
    return _LITERALS[code]


def _write_container(out: bytearray, b: bytes, i: int, end: int, keyed: bool, depth: int) -> None:
    count, size = _two_u32(b, i)
    keys = i + HEADER
    entries = keys + (count * KEY_ENTRY if keyed else 0)
    cursor = entries + count * VALUE_ENTRY  # everything below this offset is read already
    if cursor > end:
        raise RowError(f"JSON container of {size} bytes with {count} elements")
    if keyed:  # keys lie before all values
        names_end = cursor
        for at in range(keys, entries, KEY_ENTRY):
            offset, length = _key_entry(b, at)
            if i + offset < names_end or i + offset + length > end:
                raise RowError("JSON key outside its place")
            names_end = i + offset + length
        cursor = names_end
    out += b"{" if keyed else b"["
    for index in range(count):
        if index:
            out += b", "
        if keyed:
            offset, length = _key_entry(b, keys + index * KEY_ENTRY)
            _write_string(out, b[i + offset : i + offset + length])
            out += b": "
        at = entries + index * VALUE_ENTRY
        tp = b[at]
        if tp == LITERAL:
            out += _literal(b[at + 1])
            continue
        start = i + _u32(b, at + 1)[0]
        if start < cursor:
            raise RowError("JSON value outside its place")
        cursor = value_end(b, start, end, tp)
        _write(out, b, start, cursor, tp, depth + 1)
    out += b"}" if keyed else b"]"


def _write_string(out: bytearray, raw: bytes) -> None:
    out += b'"'
    # surrogateescape keeps the places of bytes that are not UTF-8; the table turns them into \ufffd
    out += raw.decode("utf-8", "surrogateescape").translate(_ESCAPES).encode()
    out += b'"'


def double_text(value: float) -> bytes:
    """Shortest decimal text; exponents only below 1e-6 and from 1e21 on, without leading zeros."""
    if value - value != 0:
        raise RowError("JSON number is not finite")
    mantissa, _, exponent_text = f"{value!r}".partition("e")
    magnitude = abs(value)
    if value and (magnitude < 1e-6 or magnitude >= 1e21):
        mantissa = mantissa.removesuffix(".0")
        exponent = int(exponent_text)
        return f"{mantissa}e{'+' if exponent > 0 else '-'}{abs(exponent)}".encode()
    if not exponent_text:
        return mantissa.removesuffix(".0").encode()
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    exponent = int(exponent_text)
    fraction = "" if fraction == "0" else fraction
    if exponent > 0:
        return f"{sign}{whole}{fraction.ljust(exponent, '0')}".encode()
    return f"{sign}0.{'0' * (-exponent - 1)}{whole}{fraction}".encode()


def _core_time_text(core: int, tp: int) -> str:
    """Text of a time as JSON holds it: year and month have fields of their own."""
    packed = (core >> 50) * 13 + (core >> 46 & 15) << 46
    if core >> 46 & 15 > 12:
        raise RowError("month out of range")
    packed |= (core & ((1 << 46) - 1)) >> 24 << 24 | (core >> 4 & 0xFFFFF)
    text = datetime_text(packed, 6)
    return text[:10] if tp == DATE else text
