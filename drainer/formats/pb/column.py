"""pb columns: how a value of a row becomes the serialised `Column` of an archive's event.

In     a column's definition
Out    how a generated walk reads it (`Conversion`: always a datum, flag byte included), and expressions of
       the pieces that are its message
Tests  tests/drainer/formats/pb/test_writer.py

    type                                     datum
    integers, YEAR                           8 zigzag varint, 9 varint: as it stands in the row
    ENUM, SET, BIT                           9 varint: as it stands in the row
    strings                                  2 and the bytes: as it stands in the row
    FLOAT, DOUBLE                            5, comparable
    DECIMAL, JSON, dates and times           2 and the text; TIMESTAMP in UTC
    NULL                                     0

Source: the Go drainer's file sink; its value codec is TiDB's, not comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drainer.formats.obinlog.column import ByNumber, delimited, shown, time_reader, varint
from drainer.formats.obinlog.writer import type_name
from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    NULL_DATUM,
    put_double,
    read_bytes,
    read_double,
    read_duration,
    read_int,
    read_unsigned,
)
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.put import put_bytes, put_int
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import duration_text
from tidb_binlog.rowcodec.varint import UINT64_END, put_uvarint
from tidb_binlog.table_info import JSON, Column, ColumnKind, FieldType

_HEADS_MAX: Final = 1 << 10
_PAIR: Final = 32
_INTEGER_MAX: Final = 11  # flag and 64 bits as a varint
NIL: Final = NULL_DATUM


def put_unsigned(value: int) -> bytes:
    return b"\x09" + put_uvarint(value)


class _Heads(dict[int, bytes]):
    """Bytes made from a number; so many of them are kept."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> bytes:
        made = self._make(number)
        if len(self) < _HEADS_MAX:
            self[number] = made
        return made


CHANGED_HEADS: Final = ByNumber(lambda size: b"\x2a" + varint(size))
"""What stands before `changed_value`, by its length."""


@dataclass(frozen=True, slots=True)
class PbColumn:
    """How one column is read and written. `prefix`: name, type code and type name."""

    conversion: Conversion
    prefix: bytes
    one: _Heads = field(init=False, repr=False)
    two: _Heads = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "one", _Heads(self._one_head))
        object.__setattr__(self, "two", _Heads(self._two_head))

    def _one_head(self, size: int) -> bytes:
        """What stands before a value of a length: tags and lengths of row element and value."""
        head = self.prefix + b"\x22" + varint(size)
        return b"\x22" + varint(len(head) + size) + head

    def _two_head(self, sizes: int) -> bytes:
        """The same with a changed value after it."""
        old, new = sizes >> _PAIR, sizes & ((1 << _PAIR) - 1)
        head = self.prefix + b"\x22" + varint(old)
        return b"\x22" + varint(len(head) + old + len(CHANGED_HEADS[new]) + new) + head

    def heads(self) -> Sequence[bytes] | _Heads:
        """What stands before a value, by its length; of integers all that there can be."""
        if self.conversion.shape in (Shape.SIGNED, Shape.UNSIGNED):
            return tuple(self._one_head(size) for size in range(_INTEGER_MAX + 1))
        return self.one

    def element(self, datum: bytes) -> bytes:
        """A `row` field of an INSERT or DELETE."""
        return self.one[len(datum)] + datum

    def pair(self, old: bytes, new: bytes) -> bytes:
        """A `row` field of an UPDATE."""
        return self.two[len(old) << _PAIR | len(new)] + old + CHANGED_HEADS[len(new)] + new

    @staticmethod
    def element_source(place: int) -> str:
        return f"ONE{place}[len(v{place})], v{place}"

    @staticmethod
    def pair_source(place: int) -> str:
        old, new = f"o{place}", f"v{place}"
        return f"TWO{place}[len({old}) << {_PAIR} | len({new})], {old}, CHANGED[len({new})], {new}"

    def datum(self, value: Any) -> bytes:
        """A strict reader's value: a datum already, NULL, or an integer handle."""
        if value is None:
            return NIL
        if isinstance(value, int):
            return put_int(value, unsigned=value >= 0 and self.conversion.shape is Shape.UNSIGNED)
        assert isinstance(value, bytes)
        return value


def _signed(value: int) -> bytes:
    return put_int(value - UINT64_END if value >= UINT64_END >> 1 else value, unsigned=False)


def _unsigned(value: int) -> bytes:
    return put_unsigned(value & (UINT64_END - 1))


def _text(text: str) -> bytes:
    return put_bytes(text.encode())


_NAMES: Final = {"NIL": NIL, "put_unsigned": put_unsigned}


def _raw(shape: Shape, read: Reader) -> Callable[[FieldType], Conversion]:
    """A kind whose datum stands in the event as it stands in the row."""
    conversion = Conversion(shape, "", read, _NAMES, raw=True, null="NIL")
    return lambda field_type: conversion


def _call(read: Callable[[bytes, int], tuple[Any, int]], put: Callable[[Any], bytes]) -> Conversion:
    return Conversion(Shape.CALL, "", shown(read, put), _NAMES, null="NIL")


def _time(field_type: FieldType) -> Conversion:
    reader, cache = time_reader(field_type.kind is ColumnKind.DATE, field_type.fsp, _text)
    return Conversion(Shape.TIME, "", reader, _NAMES, cache=cache, null="NIL")


_SIGNED: Final = _raw(Shape.SIGNED, shown(read_int, _signed))
_NUMBER: Final = _raw(Shape.UNSIGNED, shown(read_unsigned, put_unsigned))
_STRING: Final = _raw(Shape.BYTES, shown(read_bytes, put_bytes))
_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType], Conversion]]] = {
    ColumnKind.SIGNED: _SIGNED,
    ColumnKind.UNSIGNED: _raw(Shape.UNSIGNED, shown(read_int, _unsigned)),
    ColumnKind.YEAR: _SIGNED,
    ColumnKind.BIT: _NUMBER,
    ColumnKind.FLOAT: lambda field_type: _call(read_double, put_double),
    ColumnKind.DOUBLE: lambda field_type: _call(read_double, put_double),
    ColumnKind.DECIMAL: lambda field_type: _call(read_decimal, _text),
    ColumnKind.TEXT: _STRING,
    ColumnKind.BINARY: _STRING,
    ColumnKind.ENUM: _NUMBER,
    ColumnKind.SET: _NUMBER,
    ColumnKind.DATE: _time,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: lambda field_type: _call(
        read_duration, lambda ns: _text(duration_text(ns, field_type.fsp))
    ),
    ColumnKind.JSON: lambda field_type: _call(read_json, put_bytes),
}


def pb_column(column: Column) -> PbColumn:
    field_type = column.type
    tp, name = (JSON, "json") if field_type.array else (field_type.tp, type_name(field_type))
    prefix = (
        delimited(b"\n", column.name.encode())
        + delimited(b"\x12", bytes((tp,)))
        + delimited(b"\x1a", name.encode())
    )
    return PbColumn(_CONVERSIONS[field_type.kind](field_type), prefix)
