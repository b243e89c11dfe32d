"""Image text: rows as JSON, one schema for all tables.

In     a table version once, then images of its rows
Out    JSON of the writable columns in table order; JSON of the key

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
import json
from collections.abc import Callable
from typing import Any, Final

from common.rowcodec.binary_json import read_json
from common.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from common.rowcodec.datum import (
    bytes_span,
    read_bytes,
    read_double,
    read_duration,
    read_float,
    read_int,
    read_unsigned,
)
from common.rowcodec.decimals import read_decimal
from common.rowcodec.plan import RowReaders
from common.rowcodec.strict import Reader
from common.rowcodec.temporal import date_text, datetime_text, duration_text
from common.rowcodec.values import cached_reader, set_text
from common.table_info import (
    BIT,
    DATE,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    INTEGER_TYPES,
    JSON,
    NEWDATE,
    SET,
    STRING_TYPES,
    TIME,
    TIME_TYPES,
    YEAR,
    Column,
    FieldType,
    TableInfo,
)
from drainer.sink.mysql.sql_literal.plan import compile_sql

_NULL: Final = "null"
_dumps: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode


def _quoted(value: object) -> str:
    return f'"{value}"'


def _binary(raw: bytes) -> str:
    return f'"{base64.b64encode(raw).decode()}"'


def _read_text(b: bytes, i: int) -> tuple[str, int]:
    start, end = bytes_span(b, i)
    raw = b[start:end]
    try:
        return _dumps(raw.decode()), end
    except UnicodeDecodeError:
        return f'{{"base64":{_binary(raw)}}}', end


def enum_name(kind: FieldType, index: int) -> str | None:
    """None for an index without a name: 0 is not the empty name."""
    return kind.elems[index - 1] if 0 < index <= len(kind.elems) else None


def set_names(kind: FieldType, mask: int) -> str | None:
    """None for a mask with bits that have no name, and where no names are known."""
    return set_text(kind, mask) if kind.elems and not mask >> len(kind.elems) else None


def _named(kind: FieldType) -> Callable[[int], str]:
    names = enum_name if kind.tp == ENUM else set_names

    @functools.lru_cache(maxsize=10_000)
    def show(number: int) -> str:
        name = names(kind, number)
        return str(number) if name is None else _dumps(name)

    return show


@functools.cache
def _times(is_date: bool, fsp: int) -> tuple[Reader, dict[bytes, Any]]:
    """One cache for all columns that show times alike."""
    if is_date:
        return cached_reader(lambda packed: _quoted(date_text(packed)))
    return cached_reader(lambda packed: _quoted(datetime_text(packed, fsp)))


def _shown(read: Callable[[bytes, int], tuple[Any, int]], show: Callable[[Any], str]) -> Reader:
    def shown(b: bytes, i: int) -> tuple[str, int]:
        value, end = read(b, i)
        return show(value), end

    return shown


def _conversion(column: Column, place: int) -> Conversion:
    kind = column.type
    tp = kind.tp
    names: dict[str, Any] = {"NULL": _NULL, "dumps": _dumps, "binary": _binary}

    def of(shape: Shape, expression: str, read: Reader, **more: Any) -> Conversion:
        return Conversion(shape, expression, read, names | more, null="NULL")

    if kind.array or tp == JSON:
        return of(Shape.CALL, "", _shown(read_json, lambda text: _dumps(text.decode())))
    if tp in INTEGER_TYPES and (not kind.unsigned or tp == YEAR):
        return of(Shape.SIGNED, SIGNED_VALUE, _shown(read_int, str))
    if tp in INTEGER_TYPES or tp == BIT:
        read = read_int if tp in INTEGER_TYPES else read_unsigned
        return of(Shape.UNSIGNED, "'\"%d\"' % u", _shown(read, _quoted))
    if tp in (ENUM, SET):
        show = _named(kind)
        return of(Shape.UNSIGNED, f"show{place}(u)", _shown(read_unsigned, show), **{f"show{place}": show})
    if tp in STRING_TYPES:
        if kind.is_binary_string:
            return of(Shape.BYTES, "binary(s)", _shown(read_bytes, _binary))
        return of(Shape.BYTES, "dumps(s.decode())", _read_text)
    if tp in TIME_TYPES:
        reader, cache = _times(tp in (DATE, NEWDATE), kind.fsp)
        return Conversion(Shape.TIME, "", reader, names, cache=cache, null="NULL")
    if tp in (FLOAT, DOUBLE):
        return of(Shape.CALL, "", _shown(read_float if tp == FLOAT else read_double, repr))
    if tp == TIME:
        return of(Shape.CALL, "", _shown(read_duration, lambda ns: _quoted(duration_text(ns, kind.fsp))))
    assert tp == DECIMAL, tp
    return of(Shape.CALL, "", _shown(read_decimal, _quoted))


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
        heads = [_dumps(columns[place].name).replace("%", "%%") for place in places]
        template = "{" + ",".join(f"{head}:%s" for head in heads) + "}"
        strict = readers.strict

        def slow(image: bytes) -> str:
            values = strict.delete(image)
            return template % tuple(_NULL if values[place] is None else values[place] for place in places)

        arguments = "".join(f"v{place}, " for place in places)
        return readers.of_delete(
            places, [f"return TEMPLATE % ({arguments})"], slow, whole=False, extra={"TEMPLATE": template}
        )
