"""JSON rows: images of rows as the inside of JSON objects, by functions made for one table version.

Out    source text and functions that turn encoded rows into `"id":1,"name":"a"`
Why    one pass from bytes to text: the pieces of an object are constants of one formatted string
Tests  tests/drainer/formats/messages/test_canal_json.py
"""

from __future__ import annotations

import json.encoder
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from drainer.changes.values import shown_conversion
from drainer.mysql.literal.keys import row_key_places
from drainer.mysql.rows.causality import Equality, equality_of_rows
from drainer.txn import DELETE, INSERT, TableVersion
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from tidb_binlog.rowcodec.datum import read_int
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.row_error import RowError
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


ToColumn = Callable[[Column], JsonColumn]


def constant(text: str) -> str:
    """A text inside a formatted string of source."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def quoted(value: object) -> str:
    """Write a value in quotes."""
    return f'"{value}"'


NAMES: Final[dict[str, Any]] = {"NULL": NULL, "json_string": json_string, "quoted": quoted}


def shown_column(
    show: Callable[[Any], str], shape: Shape = Shape.CALL, expression: str = "", **names: Any
) -> ToColumn:
    """A kind whose values are written alike, see `values.shown_conversion`."""
    return lambda column: JsonColumn(
        column,
        shown_conversion(column.type, show, NAMES | names, "NULL", shape=shape, expression=expression),
    )


def column_by_type(show_of: Callable[[FieldType], Callable[[Any], str]]) -> ToColumn:
    """A kind whose values are written as the column's type says."""
    return lambda column: shown_column(show_of(column.type))(column)


def integer_column(show: Callable[[Any], str], quotes: str) -> ToColumn:
    """Signed integers, as they are or in quotes."""
    nullable = shown_column(show, Shape.SIGNED, f"f'{quotes}{{{SIGNED_VALUE}}}{quotes}'")

    def convert(column: Column) -> JsonColumn:
        if column.type.not_null:
            conversion = Conversion(Shape.SIGNED, SIGNED_VALUE, read_int)
            return JsonColumn(column, conversion, f"{quotes}{{v}}{quotes}", show)
        return nullable(column)

    return convert


def unsigned_column(column: Column, show: Callable[[int], str], name: str) -> JsonColumn:
    """A number until it is written: it may come out of the handle, or be asked for before. `name`: of `show`
    in the source of this column."""
    piece = f"{{{name}(<v>)}}" if column.type.not_null else f"{{NULL if <v> is None else {name}(<v>)}}"
    return JsonColumn(column, Conversion(Shape.UNSIGNED, "u", read_int), piece, show, {name: show})


def _text(raw: bytes) -> str:
    """Bytes that are not UTF-8 become U+FFFD, since JSON has no others."""
    return json_string(raw.decode("utf-8", "replace"))


def document(text: bytes) -> str:
    """A text that has a JSON document."""
    return json_string(text.decode())


QUOTED: Final = shown_column(quoted)
COLUMNS: Final[dict[ColumnKind, ToColumn]] = {
    ColumnKind.DECIMAL: QUOTED,
    ColumnKind.TEXT: shown_column(_text, Shape.BYTES, "json_string(s.decode())"),
    ColumnKind.DATE: QUOTED,
    ColumnKind.DATETIME: QUOTED,
    ColumnKind.TIMESTAMP: QUOTED,
    ColumnKind.TIME: QUOTED,
    ColumnKind.JSON: shown_column(document),
}
"""Kinds that most forms write alike: digits and times in quotes, dates and times as MySQL's text."""


def binary32_text(value: float) -> str:
    """The shortest text that is this FLOAT."""
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if _binary32.unpack(_binary32.pack(float(text)))[0] == value:
            return text
    return f"{value:.9g}"


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

        self.readers = RowReaders(version.info, conversion)
        layout = self.readers.layout
        left_out = version.left_out
        self.places = [place for place, column in enumerate(layout.columns) if column.id not in left_out]
        self.key = row_key_places(layout, left_out)
        self.fold = KEY_FOLDS[equality_of_rows(layout, left_out)]
        self.heads = [f"{json_string(column.name)}:" for column in layout.columns]
        self.names = dict(NAMES)
        for column in self.columns:
            self.names.update(column.names)

    def name(self, place: int) -> str:
        """Get the name of a column."""
        return self.columns[place].column.name

    def type(self, place: int) -> FieldType:
        """Get the type of a column."""
        return self.columns[place].column.type

    def source(self, prefix: str, places: Iterable[int]) -> str:
        """The inside of an object as the inside of a formatted string; values are in `prefix` and place."""
        return ",".join(constant(self.heads[place]) + self.piece(place, prefix) for place in places)

    def piece(self, place: int, prefix: str) -> str:
        """Write a column in source."""
        return (
            self.columns[place]
            .piece.replace("{v}", f"{{{prefix}{place}}}")
            .replace("<v>", f"{prefix}{place}")
        )

    def text(self, values: Values, places: Iterable[int]) -> str:
        """The inside of an object from the values of all columns."""
        return ",".join(f"{self.heads[place]}{self.value(values, place)}" for place in places)

    def value(self, values: Values, place: int) -> str:
        """Write the value of a column."""
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
        """Take the values of the key."""
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
