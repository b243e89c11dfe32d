"""Cast: what TiDB makes of a value when its column's type changes.

Out    the value that the upstream has now. Values are int (integers, YEAR, BIT, ENUM's number, SET's bits),
       float (FLOAT: as a double), Decimal, bytes (texts, JSON) and str (dates and times as a server prints
       them; TIMESTAMP in UTC)
Holds  the session was not strict: a strict one refuses what would lose something, and then there is no DDL.
       What TiDB stores although the column cannot hold it (2^64-1 in a TINYINT UNSIGNED) is what comes out
Never  guesses: `NoCast` for what is not known

Tests  tests/drainer/ddl/convert/test_cast.py
"""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from drainer.ddl.convert import moments
from drainer.ddl.convert.moments import Moment, NoCast
from tidb_binlog import table_info as ti
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.binary_json import double_text, read_json
from tidb_binlog.rowcodec.json_encode import put_json
from tidb_binlog.rowcodec.put import element, elements_mask
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import ColumnKind, FieldType

Value = int | float | Decimal | bytes | str | None

_INT64: Final = (1 << 63) - 1
_FLOAT_MAX: Final = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_DOUBLE_MAX: Final = 1.7976931348623157e308
_INTEGERS: Final = frozenset({ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.YEAR, ColumnKind.BIT})
_FLOATS: Final = frozenset({ColumnKind.FLOAT, ColumnKind.DOUBLE})
_CALENDAR: Final = frozenset({ColumnKind.DATE, ColumnKind.DATETIME, ColumnKind.TIMESTAMP})
_MEMBERS: Final = frozenset({ColumnKind.ENUM, ColumnKind.SET})
_STRINGS: Final = frozenset({ColumnKind.TEXT, ColumnKind.BINARY})


@dataclass(frozen=True, slots=True)
class Moments:
    """What a cast takes from its job. `day`: on which it ran, where that is known."""

    zone: tzinfo = UTC
    day: datetime | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A value before its cast, with all that the ways out ask of it."""

    value: Any
    type: FieldType
    job: Moments
    kind: ColumnKind = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.type.kind)

    def moment(self) -> Moment:
        moment = moments.read(str(self.value))
        return moments.to_zone(moment, self.job.zone) if self.kind is ColumnKind.TIMESTAMP else moment

    def text(self) -> str:
        """As a text that TiDB reads numbers and dates from; bytes that are no UTF-8 stand for themselves."""
        return self.bytes().decode("utf-8", "surrogateescape")

    def bytes(self) -> bytes:
        value, kind = self.value, self.kind
        if isinstance(value, bytes):
            return value
        if kind in _MEMBERS:
            return member_name(value, self.type).encode()
        if kind in _FLOATS:
            return float_text(value, kind is ColumnKind.FLOAT).encode()
        if kind in _CALENDAR:
            clock = kind is not ColumnKind.DATE
            return moments.text_of(self.moment(), self.type.fsp, clock=clock).encode()
        return f"{value:f}".encode() if isinstance(value, Decimal) else str(value).encode()

    def document(self) -> Any:
        """Of JSON."""
        return json.loads(self.value)


def cast(value: Value, source: FieldType, target: FieldType, job: Moments) -> Value:
    """Raises `NoCast`."""
    way = _WAYS.get(target.kind)
    if way is None or source.kind is ColumnKind.UNKNOWN or source.array or target.array:
        raise NoCast(f"type {source.tp} to {target.tp}")
    return None if value is None else way(Source(value, source, job), target)


# Numbers -------------------------------------------------------------------------------------------------


def _number(source: Source) -> int | float | Decimal:
    """A number that is not rounded; for DOUBLE and DECIMAL."""
    value, kind = source.value, source.kind
    if kind in _STRINGS:
        return decimal_of(prefix(source.text()))
    if kind in _CALENDAR:
        moment = source.moment()
        if kind is ColumnKind.DATE:
            return moments.to_number(moment) // 1_000_000
        return _fraction(moments.to_number(moment), moment.micro)
    if kind is ColumnKind.TIME:
        return _time_number(moments.read_time(value))
    if kind is ColumnKind.JSON:
        content = source.document()
        if isinstance(content, str):
            return decimal_of(prefix(content))
        return content if isinstance(content, float) else int(content) if isinstance(content, int) else 0
    assert isinstance(value, int | float | Decimal)
    return value


def _fraction(whole: int, micro: int) -> Decimal:
    return Decimal(whole) + Decimal(micro).scaleb(-6)


def _time_number(size: int) -> Decimal:
    seconds, micro = divmod(abs(size), moments.SECOND_US)
    number = _fraction(seconds // 3600 * 10000 + seconds // 60 % 60 * 100 + seconds % 60, micro)
    return -number if size < 0 else number


def _signed(source: Source, low: int, high: int) -> int:
    """With the value as TiDB rounds it: floats to even, texts and decimals away from zero."""
    value, kind = source.value, source.kind
    if kind in _STRINGS:
        number = digits_of(source.text())
        if number is None:
            number = low if source.text().lstrip().startswith("-") else high
    elif kind in (ColumnKind.DATETIME, ColumnKind.TIMESTAMP):
        number = moments.to_number(moments.rounded(source.moment(), 0))
    elif kind is ColumnKind.TIME:
        number = int(_time_number(moments.round_half_up(moments.read_time(value), 6)))
    else:
        number = rounded(_number(source))
    return min(max(number, low), high)


def _unsigned(source: Source, high: int) -> int | None:
    """A double that is too large becomes 2^64-1, whatever the column can hold; a negative text is NULL."""
    if source.kind in _STRINGS:
        digits = digits_of(source.text())
        return None if digits is None or digits < 0 else min(digits, high)
    number = _number(source)
    whole = max(rounded(number), 0)
    if whole > high:
        return UINT64_MAX if isinstance(number, float) and source.kind is not ColumnKind.JSON else high
    return whole


def _to_integer(source: Source, target: FieldType) -> Value:
    bits = ti.INTEGER_BITS[target.tp]
    if target.kind is ColumnKind.UNSIGNED:
        return _unsigned(source, (1 << bits) - 1)
    return _signed(source, -(1 << bits - 1), (1 << bits - 1) - 1)


def _to_bit(source: Source, target: FieldType) -> Value:
    if source.kind in _STRINGS | _CALENDAR | {ColumnKind.TIME, ColumnKind.JSON, ColumnKind.YEAR}:
        raise NoCast(f"{source.kind.value} to BIT")
    high = (1 << max(target.flen, 1)) - 1
    if source.kind is ColumnKind.SIGNED:
        return min(int(source.value) & UINT64_MAX, high)
    number = _unsigned(source, high)
    return None if number is None else min(number, high)


def _to_float(source: Source, target: FieldType) -> Value:
    most = _FLOAT_MAX if target.kind is ColumnKind.FLOAT else _DOUBLE_MAX
    if target.flen >= 0 and target.decimal >= 0:
        most = min(most, 10.0 ** (target.flen - target.decimal) - 10.0**-target.decimal)
    try:
        number = float(_number(source))
    except OverflowError:
        number = math.inf
    if target.flen >= 0 and target.decimal >= 0 and math.isfinite(number):
        number = round(number * 10**target.decimal) / 10**target.decimal
    number = min(max(number, 0.0 if target.unsigned else -most), most)
    if target.kind is ColumnKind.FLOAT:
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return number


def _to_decimal(source: Source, target: FieldType) -> Value:
    number = _number(source)
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    digits, places = (target.flen if target.flen >= 0 else 10), max(target.decimal, 0)
    most = Decimal(10**digits - 1).scaleb(-places, EXACT)
    exact = min(max(exact, Decimal(0) if target.unsigned else -most), most)
    rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT)
    return rounded if rounded else abs(rounded)


def _to_year(source: Source, target: FieldType) -> Value:
    if source.kind in _FLOATS:
        raise NoCast(f"{source.kind.value} to YEAR")
    century = False
    if source.kind in _STRINGS:
        text = source.text()
        year = digits_of(text)
        if year is None or year > _INT64:
            return 0
        century = len(source.value) != 4 and not year and text.strip().startswith("0")
    elif source.kind in _CALENDAR:
        year = source.moment().year
    else:
        year = _signed(source, -_INT64, _INT64)
    if year < 0 or (not year and not century):
        return 0
    if year < 100:
        year += 2000 if year < 70 else 1900
    return min(max(year, 1901), 2155)


# Texts ---------------------------------------------------------------------------------------------------


def _to_text(source: Source, target: FieldType) -> Value:
    raw = source.bytes()
    fixed = target.tp == ti.STRING
    if (
        source.kind in _STRINGS
        and source.kind is not target.kind
        and "gbk" in (source.type.charset, target.charset)
    ):
        raise NoCast("bytes of GBK")
    if target.kind is ColumnKind.BINARY:
        length = ti.LONG_BYTES.get(target.tp, target.flen)
        raw = raw[:length] if length >= 0 else raw
        return raw.ljust(length, b"\0") if fixed else raw
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw[: error.start].decode()  # TiDB cuts a text where it is no text
    if target.tp in ti.LONG_BYTES:
        length = ti.LONG_BYTES[target.tp]
        return text.encode()[:length].decode("utf-8", "ignore").encode()
    if target.flen >= 0:
        text = text[: target.flen]
    return (text.rstrip(" ") if fixed else text).encode()


# Dates and times -----------------------------------------------------------------------------------------


def _to_calendar(source: Source, target: FieldType) -> Value:
    digits = target.fsp if target.kind is not ColumnKind.DATE else 0
    moment = _calendar(source, target, digits)
    if target.kind is ColumnKind.DATE:
        return moments.text_of(moment, 0, clock=False)
    if target.kind is ColumnKind.TIMESTAMP:
        moment = moments.to_utc(moment, source.job.zone)
    return moments.text_of(moment, digits)


def _calendar(source: Source, target: FieldType, digits: int) -> Moment:
    """In the zone of the job."""
    if source.kind in _CALENDAR:
        moment = source.moment()
        return moment if target.kind is ColumnKind.DATE else moments.rounded(moment, digits)
    if source.kind is ColumnKind.TIME:
        return _on_its_day(source, target, digits)
    read: Moment | None
    if source.kind in (ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.YEAR):
        read = moments.from_number(source.value)
    elif source.kind in _STRINGS | {ColumnKind.JSON}:
        read = moments.from_text(
            _unquoted(source), 6 if target.kind is ColumnKind.DATE else digits, source.job.zone
        )
    else:
        raise NoCast(f"{source.kind.value} to {target.kind.value}")
    if read is not None and target.kind is ColumnKind.TIMESTAMP:
        read = read if moments.is_timestamp(read, source.job.zone) else None
    return moments.ZERO if read is None else read


def _unquoted(source: Source) -> str:
    """The text of a JSON string; any other document, and any other value, as it is."""
    if source.kind is ColumnKind.JSON:
        content = source.document()
        if isinstance(content, str):
            return content
    return source.text()


def _on_its_day(source: Source, target: FieldType, digits: int) -> Moment:
    """A TIME becomes a moment of the day on which the job ran, where the clock then stood."""
    if source.job.day is None:
        raise NoCast(f"TIME to {target.kind.value}, as the day on which the job ran is not certain")
    size = moments.read_time(source.value)
    moment = moments.of(source.job.day + timedelta(microseconds=size))
    return moment if target.kind is ColumnKind.DATE else moments.rounded(moment, digits)


def _to_time(source: Source, target: FieldType) -> Value:
    digits = target.fsp
    if source.kind is ColumnKind.TIME:
        size: int | None = moments.round_half_up(moments.read_time(source.value), 6 - digits)
    elif source.kind in _CALENDAR:
        size = 0 if source.kind is ColumnKind.DATE else moments.time_of(source.moment(), digits)
    elif source.kind in _STRINGS | {ColumnKind.JSON}:
        size = moments.time_from_text(_unquoted(source), digits, source.job.zone)
    elif source.kind in _MEMBERS | {ColumnKind.BIT}:
        raise NoCast(f"{source.kind.value} to TIME")
    else:
        size = _time_of_number(source, digits)
    if size is None:
        return None
    size = min(max(size, -moments.TIME_MAX_US), moments.TIME_MAX_US)
    return moments.time_text(size, digits)


def _time_of_number(source: Source, digits: int) -> int | None:
    number = rounded(source.value)
    if not -8385959 <= number <= _INT64:
        return None
    if 8385959 < number < 10_000_000_000:
        return moments.TIME_MAX_US
    return moments.time_from_text(source.text(), digits, source.job.zone)


# Members -------------------------------------------------------------------------------------------------


def member_name(value: int, kind: FieldType) -> str:
    if kind.kind is ColumnKind.SET:
        return ",".join(name for place, name in enumerate(kind.elems) if value >> place & 1)
    return kind.elems[value - 1] if 0 < value <= len(kind.elems) else ""


def _to_enum(source: Source, target: FieldType) -> Value:
    if source.kind in _STRINGS | _MEMBERS:
        name = source.text()
        if source.kind is ColumnKind.ENUM and not source.value:
            return 0
        if (place := element(target, name)) is not None:
            return place
        number = as_number(name)
    else:
        number = _member_number(source, target)
    return number if number is not None and 0 < number <= len(target.elems) else 0


def _to_set(source: Source, target: FieldType) -> Value:
    if source.kind in _STRINGS | _MEMBERS:
        name = source.text()
        if (mask := elements_mask(target, name)) is not None:
            return mask
        number = as_number(name)
    else:
        number = _member_number(source, target)
    return number if number is not None and number < 1 << len(target.elems) else 0


def _member_number(source: Source, target: FieldType) -> int | None:
    if source.kind not in (ColumnKind.SIGNED, ColumnKind.UNSIGNED):
        raise NoCast(f"{source.kind.value} to {target.kind.value}")
    return _unsigned(source, UINT64_MAX)


# JSON ----------------------------------------------------------------------------------------------------


def _to_json(source: Source, target: FieldType) -> Value:
    kind, value = source.kind, source.value
    if kind is ColumnKind.JSON:
        return bytes(value)
    if kind is ColumnKind.BIT:
        raw = int(value).to_bytes((max(source.type.flen, 1) + 7) // 8, "big")
        return b'"' + raw.decode("utf-8", "surrogateescape").translate(_NOT_UTF8).encode() + b'"'
    if kind is ColumnKind.TIME:
        return f'"{moments.time_text(moments.read_time(value), 6)}"'.encode()
    if kind in _CALENDAR:
        return f'"{moments.text_of(source.moment(), 6, clock=kind is not ColumnKind.DATE)}"'.encode()
    if kind in _FLOATS or kind is ColumnKind.DECIMAL:
        return double_text(float(value))
    if kind in _STRINGS | _MEMBERS:
        try:
            return read_json(put_json(source.text()), 0)[0]
        except UnicodeError:
            raise NoCast("a JSON text with half a character") from None
        except (ValueError, RowError):  # no JSON, or a number that is too large
            return None
    return str(value).encode()


_NOT_UTF8: Final = {
    **{code: json.dumps(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))},
    **{0xDC80 + code: "\\ufffd" for code in range(128)},
}

_WAYS: Final = {
    ColumnKind.SIGNED: _to_integer,
    ColumnKind.UNSIGNED: _to_integer,
    ColumnKind.YEAR: _to_year,
    ColumnKind.BIT: _to_bit,
    ColumnKind.FLOAT: _to_float,
    ColumnKind.DOUBLE: _to_float,
    ColumnKind.DECIMAL: _to_decimal,
    ColumnKind.TEXT: _to_text,
    ColumnKind.BINARY: _to_text,
    ColumnKind.ENUM: _to_enum,
    ColumnKind.SET: _to_set,
    ColumnKind.DATE: _to_calendar,
    ColumnKind.DATETIME: _to_calendar,
    ColumnKind.TIMESTAMP: _to_calendar,
    ColumnKind.TIME: _to_time,
    ColumnKind.JSON: _to_json,
}


# Numerals: numbers as TiDB reads them from texts, rounds and prints them.

UINT64_MAX: Final = (1 << 64) - 1
EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
"""Has all digits that a column can have."""
_FLOAT_PREFIX: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def prefix(text: str) -> str:
    """The number that a text begins with, as TiDB reads it; "0" where there is none."""
    match = _FLOAT_PREFIX.match(text.strip())
    return match[0] if match else "0"


def digits_of(text: str) -> int | None:
    """Of the number that a text begins with, halves away from zero; None beyond 64 bits."""
    number_text = prefix(text)
    mantissa, mark, exponent = number_text.lower().partition("e")
    if mark and int(exponent) >= 0 and len(mantissa.partition(".")[0]) + int(exponent) > 21:
        return int(mantissa) if "." not in mantissa else 0  # what TiDB's early detection leaves
    if mark and int(exponent) < -400:
        return 0
    number = int(EXACT.create_decimal(number_text).to_integral_value(ROUND_HALF_UP))
    return number if -(1 << 63) <= number <= UINT64_MAX else None


def decimal_of(text: str) -> Decimal:
    mantissa, mark, exponent = text.lower().partition("e")
    if mark and abs(int(exponent)) > 400:
        exponent = "400" if int(exponent) > 0 else "-400"
    return Decimal(mantissa + mark + exponent)


def rounded(number: int | float | Decimal) -> int:
    if isinstance(number, float):
        return round(number)
    if isinstance(number, Decimal):
        return int(number.to_integral_value(ROUND_HALF_UP))
    return int(number)


def float_text(value: float, short: bool) -> str:
    """All digits, never an exponent; of a FLOAT as many as it needs."""
    if short:
        value = next(
            number for size in range(1, 10) if _is_float(number := float(f"{value:.{size}g}"), value)
        )
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_float(number: float, value: float) -> bool:
    """Both are the same FLOAT."""
    try:
        return struct.pack("<f", number) == struct.pack("<f", value)
    except OverflowError:
        return False


def as_number(text: str) -> int | None:
    """A text that is a number, as TiDB takes it for one (0x10 is 16)."""
    try:
        base = 8 if re.fullmatch(r"0\d+", text) else 0
        is_plain = text.isascii() and text[:1].isdigit() and not text[-1].isspace()
        return int(text, base) if is_plain else None
    except ValueError:
        return None
