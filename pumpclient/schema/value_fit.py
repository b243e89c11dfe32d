"""Value fit: what a column holds of a value, or why it cannot, as a strict server has it.

In     a column's type, a value without wrappers: str, bytes, int, float, Decimal, or the text of a time
Out    the value as it is stored: rounded, cut, an element's number. `Unfit` with the reason in words
Why    downstream is a server: what it refuses must be refused here, before it is published for ever
Holds  numbers and times round as servers round: Decimal and text half up, floats half to even, or down where
       the column holds no numbers; fractions of a second half up. Blanks behind the end of a text are cut

Tests  tests/pumpclient/publish/test_value_fit_mariadb.py
"""

from __future__ import annotations

import math
import re
import struct
from calendar import monthrange
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from tidb_binlog import table_info as ti
from tidb_binlog.rowcodec.put import element, elements_mask
from tidb_binlog.rowcodec.temporal import duration_text, parse_duration
from tidb_binlog.table_info import ColumnKind, FieldType

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d*)?)?)?", re.ASCII
)
_TIME: Final = re.compile(r"(-?\d{1,3}:\d{1,2})(?::(\d{1,2})(\.\d*)?)?", re.ASCII)
_BLANKS: Final = " \t\n\v\f\r"
_CHARSETS: Final = {"ascii": "ascii", "latin1": "cp1252", "gbk": "gbk"}
_WIDE: Final = Context(prec=400)
_TIMESTAMPS: Final = (datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 8))
_TIME_MAX_NS: Final = (838 * 3600 + 59 * 60 + 59) * 10**9


class Unfit(Exception):
    """Why a column cannot hold a value."""


def fit(kind: FieldType, value: Any) -> Any:
    """The value as the column holds it. Raises `Unfit`."""
    make = _FITS.get(kind.kind)
    if make is None:
        raise Unfit("its type is not known here")
    if isinstance(value, bytes) and kind.kind not in (ColumnKind.BINARY, ColumnKind.BIT):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise Unfit("these bytes are no text") from None
    return make(kind, value)


def _number(value: Any) -> Decimal:
    """Of a number, or the text of one."""
    if isinstance(value, str):
        value = value.strip()
        if not _NUMBER.fullmatch(value):
            raise Unfit("it is no number")
    elif isinstance(value, float):
        _finite(value)
        value = repr(value)
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() > 350:
        raise Unfit("it is out of range")
    return number


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise Unfit("it is out of range")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return round(_finite(value))
    return int(_number(value).to_integral_value(ROUND_HALF_UP, _WIDE))


def _cut(value: Any) -> int:
    return int(_finite(value)) if isinstance(value, float) else _whole(value)


def _integer(kind: FieldType, value: Any) -> int:
    number, bits = _whole(value), ti.INTEGER_BITS[kind.tp]
    lowest, end = (0, 1 << bits) if kind.unsigned else (-1 << bits - 1, 1 << bits - 1)
    if not lowest <= number < end or (isinstance(value, Decimal) and kind.unsigned and value < 0):
        raise Unfit(f"it is out of range: {lowest} to {end - 1}")
    return number


def _year(kind: FieldType, value: Any) -> int:
    number = _cut(value)
    if 0 <= number < 100 and (number or (isinstance(value, str) and len(value.strip()) < 4)):
        number += 2000 if number < 70 else 1900
    negative = not isinstance(value, str) and value < 0
    if negative or (number and not 1901 <= number <= 2155):
        raise Unfit("it is out of range: 1901 to 2155")
    return number


def _bit(kind: FieldType, value: Any) -> int:
    raw = value.encode() if isinstance(value, str) else value
    number = int.from_bytes(raw, "big") if isinstance(raw, bytes) else _cut(raw)
    if kind.flen == 64 and -1 << 63 <= number < 0:  # servers take its bits
        number += 1 << 64
    if not 0 <= number < 1 << max(kind.flen, 1):
        raise Unfit(f"it has more than {max(kind.flen, 1)} bits")
    return number


def _real(kind: FieldType, value: Any) -> float:
    number = _finite(float(_number(value)))
    if kind.kind is ColumnKind.FLOAT:
        try:
            number = struct.unpack(">f", struct.pack(">f", number))[0]
        except OverflowError:
            raise Unfit("it is out of range") from None
    _check_sign(kind, number)
    return number


def _decimal(kind: FieldType, value: Any) -> Decimal:
    scale, exact = kind.fsp, _number(value)
    _check_sign(kind, exact)
    number = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    precision = kind.flen if kind.flen > 0 else 10
    if number and number.adjusted() >= precision - scale:
        raise Unfit(f"it has more digits than DECIMAL({precision},{scale})")
    return number


def _check_sign(kind: FieldType, number: float | Decimal) -> None:
    if kind.unsigned and number < 0:
        raise Unfit("it is negative")


def _text_of(value: Any) -> str:
    if isinstance(value, float):
        return repr(_finite(value)).replace("e+", "e").removesuffix(".0")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _text(kind: FieldType, value: Any) -> str:
    text = _text_of(value)
    try:
        raw = text.encode()
        if kind.charset in _CHARSETS:
            text.encode(_CHARSETS[kind.charset])
    except UnicodeEncodeError:
        raise Unfit(f"the character set {kind.charset or 'utf8mb4'} does not have all of it") from None
    if kind.charset in ("utf8", "utf8mb3") and max(text, default="") > "\uffff":
        raise Unfit(f"the character set {kind.charset} does not have all of it")
    if kind.tp in ti.LONG_BYTES:
        _fits_into(len(raw), ti.LONG_BYTES[kind.tp], "bytes")
    elif 0 <= kind.flen < len(text):
        _fits_into(len(text.rstrip(_BLANKS)), kind.flen, "characters")
        text = text[: kind.flen]
    return text


def _binary(kind: FieldType, value: Any) -> bytes:
    raw = value if isinstance(value, bytes) else _text_of(value).encode("utf-8", "surrogatepass")
    most = ti.LONG_BYTES.get(kind.tp, kind.flen)
    if most >= 0:
        _fits_into(len(raw), most, "bytes")
    return raw


def _fits_into(length: int, most: int, what: str) -> None:
    if length > most:
        raise Unfit(f"it has {length} {what}, the column {most}")


def _enum(kind: FieldType, value: Any) -> int:
    named = element(kind, value) if isinstance(value, str) else None
    return _element_number(value, 1, len(kind.elems)) if named is None else named


def _set(kind: FieldType, value: Any) -> int:
    named = elements_mask(kind, value) if isinstance(value, str) else None
    return _element_number(value, 0, (1 << len(kind.elems)) - 1) if named is None else named


def _element_number(value: Any, lowest: int, most: int) -> int:
    digits = not isinstance(value, str) or value.removeprefix("+").isdecimal()
    if not digits or not lowest <= (number := _cut(value)) <= most:
        raise Unfit("it is none of the elements")
    return number


def _moment(kind: FieldType, value: Any) -> str:
    match = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise Unfit("it is no date or time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(year or 1, month)[1]:
        raise Unfit("there is no such day")
    if hour > 23 or minute > 59 or second > 59:
        raise Unfit("there is no such time of day")
    if kind.kind is ColumnKind.DATE:
        return f"{year:04d}-{month:02d}-{day:02d}"
    fraction = timedelta(microseconds=_fraction(match[7], kind.fsp))
    try:
        moment = datetime(year or 1, month, day, hour, minute, second) + fraction
    except OverflowError:
        raise Unfit("it is out of range") from None
    if kind.kind is ColumnKind.TIMESTAMP and not _TIMESTAMPS[0] <= moment < _TIMESTAMPS[1]:
        raise Unfit("it is out of range: 1970-01-01 00:00:01 to 2038-01-19 03:14:07, in UTC")
    return f"{moment.year - (not year):04d}{moment.isoformat(sep=' ')[4:]}"


def _fraction(digits: str | None, fsp: int) -> int:
    """Microseconds of ".5", rounded to the digits that the column has."""
    rounded = Decimal(f"0{digits or ''}").quantize(Decimal(1).scaleb(-fsp), ROUND_HALF_UP, _WIDE)
    return int(rounded.scaleb(6))


def _duration(kind: FieldType, value: Any) -> str:
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1].split(":")[1]) > 59 or int(match[2] or 0) > 59:
        raise Unfit("it is no TIME")
    try:
        whole = parse_duration(f"{match[1]}:{match[2] or 0}")
    except ValueError:
        raise Unfit("it is out of range: -838:59:59 to 838:59:59") from None
    ns = abs(whole) + _fraction(match[3], kind.fsp) * 1000
    if ns > _TIME_MAX_NS:
        raise Unfit("it is out of range: -838:59:59 to 838:59:59")
    return duration_text(-ns if match[1].startswith("-") else ns, 6 if ns % 10**9 else 0)


_FITS: Final[dict[ColumnKind, Callable[[FieldType, Any], Any]]] = {
    ColumnKind.SIGNED: _integer,
    ColumnKind.UNSIGNED: _integer,
    ColumnKind.YEAR: _year,
    ColumnKind.BIT: _bit,
    ColumnKind.FLOAT: _real,
    ColumnKind.DOUBLE: _real,
    ColumnKind.DECIMAL: _decimal,
    ColumnKind.TEXT: _text,
    ColumnKind.BINARY: _binary,
    ColumnKind.ENUM: _enum,
    ColumnKind.SET: _set,
    ColumnKind.DATE: _moment,
    ColumnKind.DATETIME: _moment,
    ColumnKind.TIMESTAMP: _moment,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: lambda _, value: value,  # `RowEncoder` reads it, and refuses what is none
}
