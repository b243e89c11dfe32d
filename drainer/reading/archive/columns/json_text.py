"""JSON text: images of rows as JSON, one schema for all tables.

In     a table version once, then images of its rows
Out    JSON of the writable columns in table order; JSON of the key
Tests  tests/drainer/reading/archive/test_typed_values.py

    type                                      JSON
    signed integers, YEAR, FLOAT, DOUBLE      number
    unsigned integers, BIT, DECIMAL           string of digits: readers of JSON lose what 53 bits do not hold
    text, ENUM, SET, dates and times          string; TIMESTAMP in UTC
    JSON                                      string with the document as it stands: no digit is lost
    binary strings                            string, base64
    text that is not UTF-8                    {"base64": "..."}
    ENUM, SET without a name for it           number: index, mask
    NULL                                      null
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from typing import Any, Final

from drainer.formats.messages.json_rows import NULL, json_string, quoted, quoted_times, shown
from drainer.mysql.literal.plan import compile_sql
from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from tidb_binlog.rowcodec.datum import (
    bytes_span,
    read_bytes,
    read_double,
    read_duration,
    read_float,
    read_int,
    read_unsigned,
)
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import duration_text
from tidb_binlog.rowcodec.values import set_text
from tidb_binlog.table_info import Column, ColumnKind, FieldType, TableInfo


def _binary(raw: bytes) -> str:
    return f'"{base64.b64encode(raw).decode()}"'


def _read_text(b: bytes, i: int) -> tuple[str, int]:
    start, end = bytes_span(b, i)
    raw = b[start:end]
    try:
        return json_string(raw.decode()), end
    except UnicodeDecodeError:
        return f'{{"base64":{_binary(raw)}}}', end


def name_of(field_type: FieldType, number: int) -> str | None:
    """What an ENUM's index or a SET's mask stands for.

    None for an index without a name (0 is not the empty name), a mask with bits that have none, and where no
    names are known.
    """
    elems = field_type.elems
    if field_type.kind is ColumnKind.ENUM:
        return elems[number - 1] if 0 < number <= len(elems) else None
    return set_text(field_type, number) if elems and not number >> len(elems) else None


_NAMES: Final[dict[str, Any]] = {"NULL": NULL, "dumps": json_string, "binary": _binary}


def _always(shape: Shape, expression: str, read: Reader) -> Callable[[FieldType, int], Conversion]:
    conversion = Conversion(shape, expression, read, _NAMES, null="NULL")
    return lambda field_type, place: conversion


def _named(field_type: FieldType, place: int) -> Conversion:
    @functools.lru_cache(maxsize=10_000)
    def show(number: int) -> str:
        name = name_of(field_type, number)
        return str(number) if name is None else json_string(name)

    read, names = shown(read_unsigned, show), _NAMES | {f"show{place}": show}
    return Conversion(Shape.UNSIGNED, f"show{place}(u)", read, names, null="NULL")


def _time(field_type: FieldType, place: int) -> Conversion:
    reader, cache = quoted_times(field_type.kind is ColumnKind.DATE, field_type.fsp)
    return Conversion(Shape.TIME, "", reader, _NAMES, cache=cache, null="NULL")


def _duration(field_type: FieldType, place: int) -> Conversion:
    fsp = field_type.fsp
    read = shown(read_duration, lambda ns: quoted(duration_text(ns, fsp)))
    return Conversion(Shape.CALL, "", read, _NAMES, null="NULL")


_SIGNED: Final = _always(Shape.SIGNED, SIGNED_VALUE, shown(read_int, str))
_DIGITS: Final = "'\"%d\"' % u"
_CONVERSIONS: Final[dict[ColumnKind, Callable[[FieldType, int], Conversion]]] = {
    ColumnKind.SIGNED: _SIGNED,
    ColumnKind.UNSIGNED: _always(Shape.UNSIGNED, _DIGITS, shown(read_int, quoted)),
    ColumnKind.YEAR: _SIGNED,
    ColumnKind.BIT: _always(Shape.UNSIGNED, _DIGITS, shown(read_unsigned, quoted)),
    ColumnKind.FLOAT: _always(Shape.CALL, "", shown(read_float, repr)),
    ColumnKind.DOUBLE: _always(Shape.CALL, "", shown(read_double, repr)),
    ColumnKind.DECIMAL: _always(Shape.CALL, "", shown(read_decimal, quoted)),
    ColumnKind.TEXT: _always(Shape.BYTES, "dumps(s.decode())", _read_text),
    ColumnKind.BINARY: _always(Shape.BYTES, "binary(s)", shown(read_bytes, _binary)),
    ColumnKind.ENUM: _named,
    ColumnKind.SET: _named,
    ColumnKind.DATE: _time,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: _always(Shape.CALL, "", shown(read_json, lambda text: json_string(text.decode()))),
}


def _conversion(column: Column, place: int) -> Conversion:
    return _CONVERSIONS[column.type.kind](column.type, place)


class ImageText:
    """Of one table version. Functions raise `RowError` for an image that cannot be right.

    `key` is None for a table without a key.
    """

    row: Callable[[bytes], str]
    key: Callable[[bytes], str] | None

    def __init__(self, info: TableInfo) -> None:
        readers = RowReaders(info, _conversion, None)
        columns = readers.layout.columns
        self.row = self._reader(readers, list(range(len(columns))))
        names = [column.name for column in columns]
        key = [names.index(column.name) for column in compile_sql(info).key_columns]
        self.key = self._reader(readers, key) if key else None

    @staticmethod
    def _reader(readers: RowReaders, places: list[int]) -> Callable[[bytes], str]:
        columns = readers.layout.columns
        heads = [json_string(columns[place].name).replace("%", "%%") for place in places]
        template = "{" + ",".join(f"{head}:%s" for head in heads) + "}"
        strict = readers.strict

        def slow(image: bytes) -> str:
            values = strict.delete(image)
            return template % tuple(NULL if values[place] is None else values[place] for place in places)

        arguments = "".join(f"v{place}, " for place in places)
        return readers.of_delete(
            places, [f"return TEMPLATE % ({arguments})"], slow, whole=False, extra={"TEMPLATE": template}
        )
