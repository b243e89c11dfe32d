"""Values: what a column's value is for a program that reads changes.

    integers, YEAR, BIT          int
    FLOAT, DOUBLE                float (FLOAT holds the binary32 value)
    DECIMAL                      Decimal, with the column's scale
    DATE                         date
    DATETIME                     datetime without a zone
    TIMESTAMP                    datetime in UTC
    dates that no calendar has   PartialDate: text
    TIME                         timedelta
    CHAR, VARCHAR, TEXT          str; bytes where the content is not UTF-8
    BINARY, VARBINARY, BLOB      bytes
    ENUM, SET                    EnumValue, SetValue: str with `number`, an index from 1 or a mask
    JSON                         JsonText: str with `load()`
    NULL                         None

Out    how a generated reader makes such values of its datums, or whatever a format shows of them
Why    lossless: the same values given to `tidb_binlog.rowcodec.put` are the same bytes again
Never  hands a text for a date that there is: who gets a str knows that it is no date
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import NULL_DATUM, read_duration, read_packed_time
from tidb_binlog.rowcodec.decimals import decimal_str, header_of, read_decimal
from tidb_binlog.rowcodec.put import put_bytes, put_int
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import TIME_END_NS, date_text, datetime_text, duration_text
from tidb_binlog.rowcodec.time_caches import CACHE_MAX, Fractions, Seconds, cached_reader
from tidb_binlog.rowcodec.values import (
    RAW,
    EnumValue,
    JsonText,
    PartialDate,
    SetValue,
    python_conversion,
    set_text,
)
from tidb_binlog.rowcodec.varint import UINT64_END, put_uvarint
from tidb_binlog.table_info import DATE_AND_TIME_KINDS, STRING_KINDS, Column, ColumnKind, FieldType

_NO_NAMES: Final[Mapping[str, Any]] = MappingProxyType({})


def shown(read: Reader, show: Callable[[Any], Any]) -> Reader:
    """A reader that gives what `show` makes of what another one gives."""

    def reader(b: bytes, i: int) -> tuple[Any, int]:
        value, end = read(b, i)
        return show(value), end

    return reader


@functools.cache
def _shown_times(is_date: bool, fsp: int, show: Callable[[str], Any]) -> tuple[Reader, dict[bytes, Any]]:
    """One cache for all columns that show times alike."""
    if is_date:
        return cached_reader(lambda packed: show(date_text(packed)))
    return cached_reader(lambda packed: show(datetime_text(packed, fsp)))


def shown_conversion(
    field_type: FieldType,
    show: Callable[[Any], Any],
    names: Mapping[str, Any] = _NO_NAMES,
    null: str = "None",
    *,
    shape: Shape = Shape.CALL,
    expression: str = "",
) -> Conversion:
    """How datums become what `show` makes of a number (of an ENUM its index, of a SET its mask), of the text
    of a DECIMAL, date or time, of the bytes of a string or of the text of JSON.

    `expression` is the same in source, of what `shape` gives. Of dates and times `show` is to be one function
    for all columns that show them alike, which share a cache then.
    """
    kind, fsp = field_type.kind, field_type.fsp
    if kind in DATE_AND_TIME_KINDS:
        read, cache = _shown_times(kind is ColumnKind.DATE, fsp, show)
        return Conversion(Shape.TIME, "", read, names, cache=cache, null=null)
    if kind is ColumnKind.TIME:
        read = shown(read_duration, lambda ns: show(duration_text(ns, fsp)))
    else:
        read = shown(RAW[kind].read, show)
    return Conversion(shape, expression, read, names, null=null)


def element_text(field_type: FieldType, number: int) -> str | None:
    """What an ENUM's index or a SET's mask stands for.

    None for an index without a name (0 is not the empty name), a mask with bits that have none, and where no
    names are known.
    """
    elems = field_type.elems
    if field_type.kind is ColumnKind.ENUM:
        return elems[number - 1] if 0 < number <= len(elems) else None
    return set_text(field_type, number) if elems and not number >> len(elems) else None


def put_unsigned(value: int) -> bytes:
    """Encode a number without a sign as a datum."""
    return b"\x09" + put_uvarint(value & (UINT64_END - 1))


def put_signed(value: int) -> bytes:
    """Encode a number with a sign, or the 64 bits of one, as a datum."""
    return put_int(value - UINT64_END if value >= UINT64_END >> 1 else value, unsigned=False)


def _standing(kind: ColumnKind, put: Callable[[Any], bytes]) -> Conversion:
    raw = RAW[kind]
    return Conversion(raw.shape, "", shown(raw.read, put), DATUM_NAMES, raw=True, null="NIL")


DATUM_NAMES: Final[Mapping[str, Any]] = {"NIL": NULL_DATUM, "put_unsigned": put_unsigned}
DATUMS: Final = {
    **{kind: _standing(kind, put_signed) for kind in (ColumnKind.SIGNED, ColumnKind.YEAR)},
    **{
        kind: _standing(kind, put_unsigned)
        for kind in (ColumnKind.UNSIGNED, ColumnKind.BIT, ColumnKind.ENUM, ColumnKind.SET)
    },
    **{kind: _standing(kind, put_bytes) for kind in STRING_KINDS},
}
"""Numbers and strings as datums, which stand in images and events of an archive as they do in a row."""

PYTHON_TYPES: Final[dict[ColumnKind, type]] = {
    ColumnKind.SIGNED: int,
    ColumnKind.UNSIGNED: int,
    ColumnKind.YEAR: int,
    ColumnKind.BIT: int,
    ColumnKind.FLOAT: float,
    ColumnKind.DOUBLE: float,
    ColumnKind.DECIMAL: Decimal,
    ColumnKind.TEXT: str,
    ColumnKind.BINARY: bytes,
    ColumnKind.ENUM: EnumValue,
    ColumnKind.SET: SetValue,
    ColumnKind.DATE: date,
    ColumnKind.DATETIME: datetime,
    ColumnKind.TIMESTAMP: datetime,
    ColumnKind.TIME: timedelta,
    ColumnKind.JSON: JsonText,
}
"""The class of the values of a column; beside it there are None, PartialDate and bytes as said above."""

_decimal_of: Final = functools.lru_cache(maxsize=CACHE_MAX)(Decimal)
_read_decimal: Final = shown(read_decimal, _decimal_of)


def _decimal(field_type: FieldType) -> Conversion:
    precision, scale = field_type.flen, field_type.decimal
    header = header_of(precision, scale)
    if not header:
        return Conversion(Shape.CALL, "", _read_decimal)
    name = f"decimal_{precision}_{scale}"
    names = {name: decimal_str(precision, scale), "decimal_of": _decimal_of}
    return Conversion(Shape.DECIMAL, f"decimal_of({name}(d))", _read_decimal, names, header=header)


def _json(b: bytes, i: int) -> tuple[JsonText, int]:
    text, end = read_json(b, i)
    return JsonText(text.decode(), b[i:end]), end


def _date_value(packed: int) -> date | PartialDate:
    year, month = divmod(packed >> 46, 13)
    try:
        return date(year, month, packed >> 41 & 31)
    except ValueError:
        return PartialDate(date_text(packed))


def _datetime_value(packed: int, fsp: int, zone: tzinfo | None) -> datetime | PartialDate:
    year, month = divmod(packed >> 46, 13)
    micro = packed & 0xFFFFFF
    try:
        return datetime(
            year,
            month,
            packed >> 41 & 31,
            packed >> 36 & 31,
            packed >> 30 & 63,
            packed >> 24 & 63,
            micro - micro % 10 ** (6 - fsp),
            zone,
        )
    except ValueError:
        return PartialDate(datetime_text(packed, fsp))


_dates: Final = cached_reader(_date_value)


def _date(field_type: FieldType) -> Conversion:
    read, cache = _dates
    return Conversion(Shape.TIME, "", read, cache=cache)


@functools.cache
def _seconds(zone: tzinfo | None) -> Seconds[datetime]:
    """One cache for all columns with the zone. ValueError for a time that no calendar has."""

    def moment(packed: int) -> datetime:
        value = _datetime_value(packed, 0, zone)
        if not isinstance(value, datetime):
            raise ValueError(value)
        return value

    return Seconds(moment)


@functools.cache
def _fractions(fsp: int) -> Fractions[timedelta]:
    unit = 10 ** (6 - fsp)
    return Fractions(lambda micro: timedelta(microseconds=micro - micro % unit))


def _time(field_type: FieldType) -> Conversion:
    zone, fsp = UTC if field_type.kind is ColumnKind.TIMESTAMP else None, field_type.fsp

    def read(b: bytes, i: int) -> tuple[datetime | PartialDate, int]:
        packed, end = read_packed_time(b, i)
        return _datetime_value(packed, fsp, zone), end

    second = "second" if zone is None else "second_utc"
    names = {second: _seconds(zone), f"fraction{fsp}": _fractions(fsp)}
    return Conversion(Shape.TIME, f"{second}[t] + fraction{fsp}[q]", read, names)


def _duration(field_type: FieldType) -> Conversion:
    unit = 10 ** (6 - field_type.fsp)

    def read(b: bytes, i: int) -> tuple[timedelta, int]:
        ns, end = read_duration(b, i)
        if abs(ns) >= TIME_END_NS:
            raise RowError("TIME out of range")
        micro = abs(ns) // 1000
        micro -= micro % unit
        return timedelta(microseconds=-micro if ns < 0 else micro), end

    return Conversion(Shape.CALL, "", read)


_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType], Conversion]]] = {
    ColumnKind.DECIMAL: _decimal,
    ColumnKind.DATE: _date,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: lambda field_type: Conversion(Shape.CALL, "", _json),
}


def value_conversion(column: Column, place: int) -> Conversion:
    """How the column's datums become values; `place` makes names unique within a reader."""
    own = _CONVERSIONS.get(column.type.kind)
    return python_conversion(column, place) if own is None else own(column.type)
