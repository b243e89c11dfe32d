"""JSON rows: images of rows as the inside of JSON objects, by functions made for one table version.

In     a table version; of each column how its values are written
Out    source text and functions that turn encoded rows into `"id":1,"name":"a"`
Why    one pass from bytes to text: the pieces of an object are constants of one formatted string
Tests  tests/drainer/formats/messages/test_canal_json.py
"""

from __future__ import annotations

import functools
import json.encoder
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drainer.mysql.literal.keys import row_key_places
from drainer.mysql.rows.causality import Equality, equality_of_rows
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from tidb_binlog.rowcodec.datum import bytes_span, read_duration, read_float, read_int
from tidb_binlog.rowcodec.decimals import read_decimal
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.strict import Reader
from tidb_binlog.rowcodec.temporal import date_text, datetime_text, duration_text
from tidb_binlog.rowcodec.time_caches import cached_reader
from tidb_binlog.table_info import Column, ColumnKind, FieldType

Values = Sequence[Any]
NULL: Final = "null"
_binary32: Final = struct.Struct(">f")

json_string: Final[Callable[[str], str]] = json.encoder.encode_basestring
"""A text as JSON, in quotes; characters beyond ASCII stay as they are."""


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """How values of one column are written.

    A reader makes values of datums by `conversion`. `piece` is the JSON of one as text of a formatted string,
    with `{v}` for the local that holds it (None or its text for NULL, as `conversion.null` says); `show` is
    the same for any value but None.
    """

    column: Column
    conversion: Conversion
    piece: str = "{v}"
    show: Callable[[Any], str] = str
    names: Mapping[str, Any] = field(default_factory=dict)


def constant(text: str) -> str:
    """A text inside a formatted string of source."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def quoted(value: object) -> str:
    return f'"{value}"'


def shown(read: Reader, show: Callable[[Any], str]) -> Reader:
    """A reader whose values are JSON already."""

    def written(b: bytes, i: int) -> tuple[str, int]:
        value, end = read(b, i)
        return show(value), end

    return written


NAMES: Final[dict[str, Any]] = {"NULL": NULL, "json_string": json_string, "quoted": quoted}


def text_column(column: Column, read: Reader, shape: Shape = Shape.CALL, expression: str = "") -> JsonColumn:
    """A column whose reader gives JSON text."""
    return JsonColumn(column, Conversion(shape, expression, read, NAMES, null="NULL"))


def integer_column(column: Column, show: Callable[[Any], str], quotes: str) -> JsonColumn:
    """Signed integers, as they are or in quotes."""
    if column.type.not_null:
        conversion = Conversion(Shape.SIGNED, SIGNED_VALUE, read_int)
        return JsonColumn(column, conversion, f"{quotes}{{v}}{quotes}", show)
    return text_column(column, shown(read_int, show), Shape.SIGNED, f"f'{quotes}{{{SIGNED_VALUE}}}{quotes}'")


def _read_text(b: bytes, i: int) -> tuple[str, int]:
    start, end = bytes_span(b, i)
    return json_string(b[start:end].decode("utf-8", "replace")), end


def string_column(column: Column) -> JsonColumn:
    """Text; bytes that are not UTF-8 become U+FFFD, since JSON has no others."""
    return text_column(column, _read_text, Shape.BYTES, "json_string(s.decode())")


@functools.cache
def quoted_times(is_date: bool, fsp: int) -> tuple[Reader, dict[bytes, Any]]:
    """One cache for all columns that show times alike."""
    if is_date:
        return cached_reader(lambda packed: quoted(date_text(packed)))
    return cached_reader(lambda packed: quoted(datetime_text(packed, fsp)))


def time_column(column: Column) -> JsonColumn:
    """DATE, DATETIME and TIMESTAMP as MySQL's text."""
    read, cache = quoted_times(column.type.kind is ColumnKind.DATE, column.type.fsp)
    return JsonColumn(column, Conversion(Shape.TIME, "", read, NAMES, cache=cache, null="NULL"))


def duration_column(column: Column) -> JsonColumn:
    """TIME as MySQL's text."""
    fsp = column.type.fsp
    return text_column(column, shown(read_duration, lambda ns: quoted(duration_text(ns, fsp))))


def decimal_column(column: Column) -> JsonColumn:
    """DECIMAL as its digits, in quotes."""
    return text_column(column, shown(read_decimal, quoted))


def document_column(column: Column) -> JsonColumn:
    """JSON as a text that has the document."""
    return text_column(column, shown(read_json, lambda text: json_string(text.decode())))


def binary32_text(value: float) -> str:
    """The shortest text that is this FLOAT."""
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if _binary32.unpack(_binary32.pack(float(text)))[0] == value:
            return text
    return f"{value:.9g}"


def float_column(column: Column, show: Callable[[str], str] = str) -> JsonColumn:
    return text_column(column, shown(read_float, lambda value: show(binary32_text(value))))


_BLANKS: Final = re.compile(rb' +"')
KEY_FOLDS: Final[dict[Equality, Callable[[bytes], bytes | None]]] = {
    Equality.EXACT: bytes,
    Equality.PADDED: lambda key: _BLANKS.sub(b'"', key),
    Equality.LOOSE: lambda key: None,
}


class JsonRows:
    """The columns of one table version, and its readers.

    `places` are those of the columns that are written, `key` those of the columns that identify a row; `fold`
    makes the same bytes of the JSON of keys that the upstream takes for one, None where it cannot.
    """

    def __init__(self, version: TableVersion, convert: Callable[[Column, int], JsonColumn]) -> None:
        self.columns: list[JsonColumn] = []

        def conversion(column: Column, place: int) -> Conversion:
            self.columns.append(convert(column, place))
            return self.columns[-1].conversion

        self.readers = RowReaders(version.info, conversion, None)
        layout = self.readers.layout
        left_out = version.left_out
        self.places = [place for place, column in enumerate(layout.columns) if column.id not in left_out]
        self.key = row_key_places(layout, left_out)
        self.fold = KEY_FOLDS[equality_of_rows(layout, left_out)]
        self.heads = [f"{json_string(column.name)}:" for column in layout.columns]
        self.names = dict(NAMES)
        for one in self.columns:
            self.names.update(one.names)

    def name(self, place: int) -> str:
        return self.columns[place].column.name

    def type(self, place: int) -> FieldType:
        return self.columns[place].column.type

    def source(self, prefix: str, places: Iterable[int]) -> str:
        """The inside of an object as the inside of a formatted string; values are in `prefix` and place."""
        return ",".join(constant(self.heads[place]) + self.piece(place, prefix) for place in places)

    def piece(self, place: int, prefix: str) -> str:
        return (
            self.columns[place]
            .piece.replace("{v}", f"{{{prefix}{place}}}")
            .replace("<v>", f"{prefix}{place}")
        )

    def text(self, values: Values, places: Iterable[int]) -> str:
        """The inside of an object from the values of all columns."""
        return ",".join(f"{self.heads[place]}{self.value(values, place)}" for place in places)

    def value(self, values: Values, place: int) -> str:
        value = values[place]
        return NULL if value is None else self.columns[place].show(value)

    def images(self, kind: int, row: bytes) -> tuple[Values | None, Values | None]:
        """Values before and after, by the strict reader."""
        strict = self.readers.strict
        if kind == INSERT:
            return None, strict.insert(row)
        if kind == DELETE:
            return strict.delete(row), None
        before, after, _ = strict.update(row)
        return before, after

    def key_of(self, values: Values) -> list[Any]:
        return [values[place] for place in self.key]

    def key_changed(self) -> str:
        """Condition in source: the key after an update is another one."""
        return " or ".join(f"o{place} != v{place}" for place in self.key)


def unscaled(digits: int) -> bytes:
    """A number as Java's BigInteger has it: big-endian, two's complement, as short as can be."""
    return digits.to_bytes((digits + (digits < 0)).bit_length() // 8 + 1, "big", signed=True)


def scaled_digits(text: str, scale: int) -> int:
    """The digits of a DECIMAL with so many of them after the point; `RowError` if it has more."""
    whole, _, fraction = text.partition(".")
    if len(fraction) > scale:
        raise RowError(f"DECIMAL with {len(fraction)} digits after the point, its column has {scale}")
    return int(whole + fraction.ljust(scale, "0"))
