"""JSON text: images of rows as JSON, one schema for all tables.

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
from collections.abc import Callable, Sequence
from typing import Final

from drainer.changes.values import element_text
from drainer.formats.messages.json_rows import (
    COLUMNS,
    JsonColumn,
    JsonRows,
    ToColumn,
    column_by_type,
    integer_column,
    json_string,
    quoted,
    shown_column,
)
from drainer.txn import TableVersion
from tidb_binlog.rowcodec.codegen import Shape
from tidb_binlog.table_info import Column, ColumnKind, FieldType


def _binary(raw: bytes) -> str:
    return f'"{base64.b64encode(raw).decode()}"'


def _text(raw: bytes) -> str:
    try:
        return json_string(raw.decode())
    except UnicodeDecodeError:
        return f'{{"base64":{_binary(raw)}}}'


def _named(field_type: FieldType) -> Callable[[int], str]:
    @functools.lru_cache(maxsize=10_000)
    def show(number: int) -> str:
        text = element_text(field_type, number)
        return str(number) if text is None else json_string(text)

    return show


_SIGNED: Final = integer_column(str, "")
_DIGITS: Final = shown_column(quoted, Shape.UNSIGNED, "'\"%d\"' % u")
_NAMED: Final = column_by_type(_named)
_COLUMNS: Final[dict[ColumnKind, ToColumn]] = {
    **COLUMNS,
    ColumnKind.SIGNED: _SIGNED,
    ColumnKind.UNSIGNED: _DIGITS,
    ColumnKind.YEAR: _SIGNED,
    ColumnKind.BIT: _DIGITS,
    ColumnKind.FLOAT: shown_column(repr),
    ColumnKind.DOUBLE: shown_column(repr),
    ColumnKind.TEXT: shown_column(_text, Shape.BYTES, "json_string(s.decode())"),
    ColumnKind.BINARY: shown_column(_binary, Shape.BYTES, "binary(s)", binary=_binary),
    ColumnKind.ENUM: _NAMED,
    ColumnKind.SET: _NAMED,
}


def _column(column: Column, place: int) -> JsonColumn:
    return _COLUMNS[column.type.kind](column)


class ImageText:
    """Of one table version. Functions raise `RowError` for an image that cannot be right.

    `key` is None for a table without a key.
    """

    def __init__(self, version: TableVersion) -> None:
        self._rows = rows = JsonRows(version, _column)
        self.row = self._reader(rows.places)
        self.key = self._reader(rows.key) if rows.key else None

    def _reader(self, places: Sequence[int]) -> Callable[[bytes], str]:
        rows = self._rows

        def slow(image: bytes) -> str:
            return f"{{{rows.text(rows.readers.strict.delete(image), places)}}}"

        inside = rows.source("v", places)
        return rows.readers.of_delete(
            places, [f"return f'{{{{{inside}}}}}'"], slow, whole=False, extra=rows.names
        )
