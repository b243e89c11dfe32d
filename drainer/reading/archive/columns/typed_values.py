"""Typed values: complete rows as the values of typed columns.

Out    a tuple of what the columns of a data frame are built from (`column_types`), in the order of the wanted
Holds  a value that the wanted type cannot hold (a zero date, an ENUM without a name) is an `Unfit` with its
       text, never another value; then `met_unfit` is set
Tests  tests/drainer/reading/archive/test_typed_values.py

A column is the same one in another version of the table when it has its id; where definitions were guessed,
when it has its name.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence
from typing import Any, Final

from drainer.changes.values import element_text, shown
from drainer.reading.archive.columns.column_types import Family, family_of
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_duration, read_packed_time, read_unsigned
from tidb_binlog.rowcodec.defaults import absent_datum
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.strict import Reader, StrictReader
from tidb_binlog.rowcodec.time_caches import Fractions, Seconds, cached_reader
from tidb_binlog.rowcodec.values import RAW, decimal_conversion, python_conversion, raw_conversion
from tidb_binlog.table_info import Column, ColumnKind, FieldType, TableInfo

_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
_TEXTS: Final = frozenset({Family.TEXT, Family.NAMED, Family.JSON, Family.DECIMAL})
_NAMES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Unfit:
    """A value that its column cannot hold, as text."""

    text: str


def _days(packed: int) -> int:
    """ValueError for a date that is none."""
    year, month = divmod(packed >> 46, 13)
    return datetime.date(year, month, packed >> 41 & 31).toordinal() - _EPOCH


def _microseconds(packed: int) -> int:
    hour, minute, second = packed >> 36 & 31, packed >> 30 & 63, packed >> 24 & 63
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("time of day out of range")
    seconds = (hour * 60 + minute) * 60 + second
    return _days(packed) * _DAY_US + seconds * 1_000_000 + (packed & 0xFFFFFF)


# One cache for all columns that are built alike.
_dates: Final = cached_reader(_days)
_TIME_NAMES: Final = {"second": Seconds(_microseconds), "fraction": Fractions(int)}


class _Names(dict[int, str]):
    """Names of the elements of an ENUM or SET by number; KeyError for a number without a name."""

    def __init__(self, field_type: FieldType) -> None:
        super().__init__()
        self._type = field_type

    def __missing__(self, number: int) -> str:
        name = element_text(self._type, number)
        if name is None:
            raise KeyError(number)
        if len(self) < _NAMES_MAX:
            self[number] = name
        return name


def _always(conversion: Conversion) -> Callable[[FieldType, int], Conversion]:
    return lambda field_type, place: conversion


def _date(field_type: FieldType, place: int) -> Conversion:
    reader, cache = _dates
    return Conversion(Shape.TIME, "", reader, cache=cache)


def _named(field_type: FieldType, place: int) -> Conversion:
    names = _Names(field_type)
    read = shown(read_unsigned, names.__getitem__)
    return Conversion(Shape.UNSIGNED, f"names{place}[u]", read, {f"names{place}": names})


_TIME: Final = _always(
    Conversion(Shape.TIME, "second[t] + fraction[q]", shown(read_packed_time, _microseconds), _TIME_NAMES)
)
_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType, int], Conversion]]] = {
    **dict.fromkeys(RAW, raw_conversion),
    ColumnKind.DECIMAL: decimal_conversion,
    ColumnKind.ENUM: _named,
    ColumnKind.SET: _named,
    ColumnKind.DATE: _date,
    ColumnKind.DATETIME: _TIME,
    ColumnKind.TIMESTAMP: _TIME,
    ColumnKind.TIME: _always(Conversion(Shape.CALL, "", shown(read_duration, lambda ns: ns // 1000))),
}
"""Values of a column as it is itself in a data frame."""


def _text_of(column: Column, place: int) -> Reader:
    """Any value as text."""

    def show(value: Any) -> str:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return str(getattr(value, "number", value)) if value == "" else str(value)

    return shown(python_conversion(column, place).read, show)


class ImageValues:
    """Reads images of one table version. `read` raises `RowError` for one that cannot be right."""

    read: Callable[[bytes], tuple[Any, ...]]

    def __init__(self, info: TableInfo, targets: Sequence[Column], *, by_name: bool) -> None:
        self.met_unfit = False
        self._lenient: list[Reader] = []
        mark: Callable[[Column], Any] = (
            (lambda column: column.name) if by_name else (lambda column: column.id)
        )
        self._targets = {mark(column): column for column in targets}
        self._mark = mark
        readers = RowReaders(info, self._convert)
        columns = readers.layout.columns
        have = {mark(column): place for place, column in enumerate(columns)}
        self._places = [have.get(mark(column), -1) for column in targets]
        self._strict = StrictReader(
            readers.layout, self._lenient, [], [absent_datum(column) for column in columns]
        )
        values = "".join("None, " if place < 0 else f"v{place}, " for place in self._places)
        places = sorted({place for place in self._places if place >= 0})
        self.read = readers.of_delete(places, [f"return ({values})"], self._slow, whole=False)

    def _convert(self, column: Column, place: int) -> Conversion:
        target = self._targets.get(self._mark(column), column)
        text = _text_of(column, place)
        unfit = shown(text, Unfit)
        if family_of(column.type) is family_of(target.type):
            conversion = _CONVERSIONS[column.type.kind](column.type, place)
            self._lenient.append(_or(conversion.read, unfit))
            return conversion
        reader = text if family_of(target.type) in _TEXTS - {Family.DECIMAL} else unfit
        self._lenient.append(reader)
        # Values of another type always go the slow way: nothing is left of them soon after an ALTER.
        return Conversion(Shape.CALL, "", _never)

    def _slow(self, image: bytes) -> tuple[Any, ...]:
        values = self._strict.delete(image)
        row = tuple([None if place < 0 else values[place] for place in self._places])
        if any(isinstance(value, Unfit) for value in row):
            self.met_unfit = True
        return row


def _or(read: Reader, otherwise: Reader) -> Reader:
    def reader(b: bytes, i: int) -> tuple[Any, int]:
        try:
            return read(b, i)
        except (ValueError, KeyError):
            return otherwise(b, i)

    return reader


def _never(b: bytes, i: int) -> tuple[Any, int]:
    raise ValueError("of another type")
