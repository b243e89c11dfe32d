"""Cast: what TiDB makes of a value when its column's type changes.

In     a value as the downstream has it, the types before and after, the time zone of the job
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
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from drainer.ddl.convert import moments, numerals
from drainer.ddl.convert.moments import Moment, NoCast
from drainer.ddl.convert.numerals import EXACT, UINT64_MAX
from tidb_binlog import table_info as ti
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
        found = moments.read(str(self.value))
        return moments.to_zone(found, self.job.zone) if self.kind is ColumnKind.TIMESTAMP else found

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
            return numerals.float_text(value, kind is ColumnKind.FLOAT).encode()
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


def _number(one: Source) -> int | float | Decimal:
    """A number that is not rounded; for DOUBLE and DECIMAL."""
    value, kind = one.value, one.kind
    if kind in _STRINGS:
        return numerals.decimal_of(numerals.prefix(one.text()))
    if kind in _CALENDAR:
        moment = one.moment()
        if kind is ColumnKind.DATE:
            return moments.to_number(moment) // 1_000_000
        return _fraction(moments.to_number(moment), moment.micro)
    if kind is ColumnKind.TIME:
        return _time_number(moments.read_time(value))
    if kind is ColumnKind.JSON:
        found = one.document()
        if isinstance(found, str):
            return numerals.decimal_of(numerals.prefix(found))
        return found if isinstance(found, float) else int(found) if isinstance(found, int) else 0
    assert isinstance(value, int | float | Decimal)
    return value


def _fraction(whole: int, micro: int) -> Decimal:
    return Decimal(whole) + Decimal(micro).scaleb(-6)


def _time_number(size: int) -> Decimal:
    seconds, micro = divmod(abs(size), moments.SECOND_US)
    number = _fraction(seconds // 3600 * 10000 + seconds // 60 % 60 * 100 + seconds % 60, micro)
    return -number if size < 0 else number


def _signed(one: Source, low: int, high: int) -> int:
    """With the value as TiDB rounds it: floats to even, texts and decimals away from zero."""
    value, kind = one.value, one.kind
    if kind in _STRINGS:
        number = numerals.digits_of(one.text())
        if number is None:
            number = low if one.text().lstrip().startswith("-") else high
    elif kind in (ColumnKind.DATETIME, ColumnKind.TIMESTAMP):
        number = moments.to_number(moments.rounded(one.moment(), 0))
    elif kind is ColumnKind.TIME:
        number = int(_time_number(moments.round_half_up(moments.read_time(value), 6)))
    else:
        number = numerals.rounded(_number(one))
    return min(max(number, low), high)


def _unsigned(one: Source, high: int) -> int | None:
    """A double that is too large becomes 2^64-1, whatever the column can hold; a negative text is NULL."""
    if one.kind in _STRINGS:
        digits = numerals.digits_of(one.text())
        return None if digits is None or digits < 0 else min(digits, high)
    number = _number(one)
    whole = max(numerals.rounded(number), 0)
    if whole > high:
        return UINT64_MAX if isinstance(number, float) and one.kind is not ColumnKind.JSON else high
    return whole


def _to_integer(one: Source, target: FieldType) -> Value:
    bits = ti.INTEGER_BITS[target.tp]
    if target.kind is ColumnKind.UNSIGNED:
        return _unsigned(one, (1 << bits) - 1)
    return _signed(one, -(1 << bits - 1), (1 << bits - 1) - 1)


def _to_bit(one: Source, target: FieldType) -> Value:
    if one.kind in _STRINGS | _CALENDAR | {ColumnKind.TIME, ColumnKind.JSON, ColumnKind.YEAR}:
        raise NoCast(f"{one.kind.value} to BIT")
    high = (1 << max(target.flen, 1)) - 1
    if one.kind is ColumnKind.SIGNED:
        return min(int(one.value) & UINT64_MAX, high)
    number = _unsigned(one, high)
    return None if number is None else min(number, high)


def _to_float(one: Source, target: FieldType) -> Value:
    most = _FLOAT_MAX if target.kind is ColumnKind.FLOAT else _DOUBLE_MAX
    if target.flen >= 0 and target.decimal >= 0:
        most = min(most, 10.0 ** (target.flen - target.decimal) - 10.0**-target.decimal)
    try:
        number = float(_number(one))
    except OverflowError:
        number = math.inf
    if target.flen >= 0 and target.decimal >= 0 and math.isfinite(number):
        number = round(number * 10**target.decimal) / 10**target.decimal
    number = min(max(number, 0.0 if target.unsigned else -most), most)
    if target.kind is ColumnKind.FLOAT:
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return number


def _to_decimal(one: Source, target: FieldType) -> Value:
    number = _number(one)
    exact = number if isinstance(number, Decimal) else Decimal(repr(number))
    digits, places = (target.flen if target.flen >= 0 else 10), max(target.decimal, 0)
    most = Decimal(10**digits - 1).scaleb(-places, EXACT)
    exact = min(max(exact, Decimal(0) if target.unsigned else -most), most)
    found = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, EXACT)
    return found if found else abs(found)


def _to_year(one: Source, target: FieldType) -> Value:
    if one.kind in _FLOATS:
        raise NoCast(f"{one.kind.value} to YEAR")
    century = False
    if one.kind in _STRINGS:
        text = one.text()
        found = numerals.digits_of(text)
        if found is None or found > _INT64:
            return 0
        century = len(one.value) != 4 and not found and text.strip().startswith("0")
    elif one.kind in _CALENDAR:
        found = one.moment().year
    else:
        found = _signed(one, -_INT64, _INT64)
    if found < 0 or (not found and not century):
        return 0
    if found < 100:
        found += 2000 if found < 70 else 1900
    return min(max(found, 1901), 2155)


# Texts ---------------------------------------------------------------------------------------------------


def _to_text(one: Source, target: FieldType) -> Value:
    found = one.bytes()
    fixed = target.tp == ti.STRING
    if one.kind in _STRINGS and one.kind is not target.kind and "gbk" in (one.type.charset, target.charset):
        raise NoCast("bytes of GBK")
    if target.kind is ColumnKind.BINARY:
        length = ti.LONG_BYTES.get(target.tp, target.flen)
        found = found[:length] if length >= 0 else found
        return found.ljust(length, b"\0") if fixed else found
    try:
        text = found.decode()
    except UnicodeDecodeError as error:
        text = found[: error.start].decode()  # TiDB cuts a text where it is no text
    if target.tp in ti.LONG_BYTES:
        length = ti.LONG_BYTES[target.tp]
        return text.encode()[:length].decode("utf-8", "ignore").encode()
    if target.flen >= 0:
        text = text[: target.flen]
    return (text.rstrip(" ") if fixed else text).encode()


# Dates and times -----------------------------------------------------------------------------------------


def _to_calendar(one: Source, target: FieldType) -> Value:
    digits = target.fsp if target.kind is not ColumnKind.DATE else 0
    found = _calendar(one, target, digits)
    if target.kind is ColumnKind.DATE:
        return moments.text_of(found, 0, clock=False)
    if target.kind is ColumnKind.TIMESTAMP:
        found = moments.to_utc(found, one.job.zone)
    return moments.text_of(found, digits)


def _calendar(one: Source, target: FieldType, digits: int) -> Moment:
    """In the zone of the job."""
    if one.kind in _CALENDAR:
        moment = one.moment()
        return moment if target.kind is ColumnKind.DATE else moments.rounded(moment, digits)
    if one.kind is ColumnKind.TIME:
        return _on_its_day(one, target, digits)
    found: Moment | None
    if one.kind in (ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.YEAR):
        found = moments.from_number(one.value)
    elif one.kind in _STRINGS | {ColumnKind.JSON}:
        found = moments.from_text(
            _unquoted(one), 6 if target.kind is ColumnKind.DATE else digits, one.job.zone
        )
    else:
        raise NoCast(f"{one.kind.value} to {target.kind.value}")
    if found is not None and target.kind is ColumnKind.TIMESTAMP:
        found = found if moments.is_timestamp(found, one.job.zone) else None
    return moments.ZERO if found is None else found


def _unquoted(one: Source) -> str:
    """The text of a JSON string; any other document, and any other value, as it is."""
    if one.kind is ColumnKind.JSON:
        found = one.document()
        if isinstance(found, str):
            return found
    return one.text()


def _on_its_day(one: Source, target: FieldType, digits: int) -> Moment:
    """A TIME becomes a moment of the day on which the job ran, where the clock then stood."""
    if one.job.day is None:
        raise NoCast(f"TIME to {target.kind.value}, as the day on which the job ran is not certain")
    size = moments.read_time(one.value)
    found = moments.of(one.job.day + timedelta(microseconds=size))
    return found if target.kind is ColumnKind.DATE else moments.rounded(found, digits)


def _to_time(one: Source, target: FieldType) -> Value:
    digits = target.fsp
    if one.kind is ColumnKind.TIME:
        size: int | None = moments.round_half_up(moments.read_time(one.value), 6 - digits)
    elif one.kind in _CALENDAR:
        size = 0 if one.kind is ColumnKind.DATE else moments.time_of(one.moment(), digits)
    elif one.kind in _STRINGS | {ColumnKind.JSON}:
        size = moments.time_from_text(_unquoted(one), digits, one.job.zone)
    elif one.kind in _MEMBERS | {ColumnKind.BIT}:
        raise NoCast(f"{one.kind.value} to TIME")
    else:
        size = _time_of_number(one, digits)
    if size is None:
        return None
    size = min(max(size, -moments.TIME_MAX_US), moments.TIME_MAX_US)
    return moments.time_text(size, digits)


def _time_of_number(one: Source, digits: int) -> int | None:
    number = numerals.rounded(one.value)
    if not -8385959 <= number <= _INT64:
        return None
    if 8385959 < number < 10_000_000_000:
        return moments.TIME_MAX_US
    return moments.time_from_text(one.text(), digits, one.job.zone)


# Members -------------------------------------------------------------------------------------------------


def member_name(value: int, kind: FieldType) -> str:
    if kind.kind is ColumnKind.SET:
        return ",".join(name for place, name in enumerate(kind.elems) if value >> place & 1)
    return kind.elems[value - 1] if 0 < value <= len(kind.elems) else ""


def _to_enum(one: Source, target: FieldType) -> Value:
    if one.kind in _STRINGS | _MEMBERS:
        name = one.text()
        if one.kind is ColumnKind.ENUM and not one.value:
            return 0
        if (place := element(target, name)) is not None:
            return place
        number = numerals.as_number(name)
    else:
        number = _member_number(one, target)
    return number if number is not None and 0 < number <= len(target.elems) else 0


def _to_set(one: Source, target: FieldType) -> Value:
    if one.kind in _STRINGS | _MEMBERS:
        name = one.text()
        if (mask := elements_mask(target, name)) is not None:
            return mask
        number = numerals.as_number(name)
    else:
        number = _member_number(one, target)
    return number if number is not None and number < 1 << len(target.elems) else 0


def _member_number(one: Source, target: FieldType) -> int | None:
    if one.kind not in (ColumnKind.SIGNED, ColumnKind.UNSIGNED):
        raise NoCast(f"{one.kind.value} to {target.kind.value}")
    return _unsigned(one, UINT64_MAX)


# JSON ----------------------------------------------------------------------------------------------------


def _to_json(one: Source, target: FieldType) -> Value:
    kind, value = one.kind, one.value
    if kind is ColumnKind.JSON:
        return bytes(value)
    if kind is ColumnKind.BIT:
        raw = int(value).to_bytes((max(one.type.flen, 1) + 7) // 8, "big")
        return b'"' + raw.decode("utf-8", "surrogateescape").translate(_NOT_UTF8).encode() + b'"'
    if kind is ColumnKind.TIME:
        return f'"{moments.time_text(moments.read_time(value), 6)}"'.encode()
    if kind in _CALENDAR:
        return f'"{moments.text_of(one.moment(), 6, clock=kind is not ColumnKind.DATE)}"'.encode()
    if kind in _FLOATS or kind is ColumnKind.DECIMAL:
        return double_text(float(value))
    if kind in _STRINGS | _MEMBERS:
        try:
            return read_json(put_json(one.text()), 0)[0]
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
