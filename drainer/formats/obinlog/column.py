"""Column of obinlog: how a value of a row becomes a `Column` of a message, straight from its bytes.

Out    how a generated walk reads it (`Conversion`), and an expression of the pieces that are its message
Tests  tests/drainer/formats/obinlog/test_writer.py

    type                                     field              from
    integers                                 int64, uint64      the number
    ENUM, SET                                uint64             index, mask
    FLOAT, DOUBLE                            double
    text, DECIMAL, YEAR, dates, times        string             TIMESTAMP in UTC
    binary strings, JSON, BIT                bytes              JSON as text, BIT big-endian

Small numbers, times, and what stands before a string of a length are made once.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from drainer.changes.values import shown_conversion
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.codegen import Conversion
from tidb_binlog.rowcodec.values import RAW
from tidb_binlog.rowcodec.varint import put_uvarint
from tidb_binlog.table_info import Column, ColumnKind, FieldType

_CACHED_MAX: Final = 1 << 14
_UINT64: Final = (1 << 64) - 1
NULL: Final = b"\n\x02\x08\x01"
_double: Final = struct.Struct("<d")

# -- pieces of proto2 ---------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Shortest form; negative numbers as 64 bits, which is ten bytes."""
    return put_uvarint(value & _UINT64)


def delimited(tag: bytes, content: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return tag + varint(len(content)) + content


class ByNumber(dict[int, bytes]):
    """Bytes made from a number, small numbers once."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> bytes:
        encoded = self._make(number)
        if 0 <= number < _CACHED_MAX:
            self[number] = encoded
        return encoded


class KeptByNumber(ByNumber):
    """The same of any numbers; so many of them are kept."""

    def __init__(self, make: Callable[[int], bytes], most: int) -> None:
        super().__init__(make)
        self._most = most

    def __missing__(self, number: int) -> bytes:
        encoded = self._make(number)
        if len(self) < self._most:
            self[number] = encoded
        return encoded


def _column(content: bytes) -> bytes:
    return b"\n" + varint(len(content)) + content


CONTINUED: Final = tuple(bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14))
"""The first 14 bits of a varint that is longer than that."""


def _far(tag: int) -> Callable[[int], bytes]:
    """A column with an integer, for any; three additions for what has up to 28 bits."""
    short, long = bytes((10, 4, tag)), bytes((10, 5, tag))

    def far(value: int) -> bytes:
        if 16384 <= value < 2097152:
            return short + CONTINUED[value & 16383] + _SEVEN_BITS[value >> 14]
        if 2097152 <= value < 268435456:
            return long + CONTINUED[value & 16383] + VARINTS[value >> 14]
        return _column(bytes((tag,)) + varint(value))

    return far


VARINTS: Final = ByNumber(varint)
_SEVEN_BITS: Final = tuple(bytes((n,)) for n in range(128))
_int64_far: Final = _far(0x10)
_uint_far: Final = _far(0x18)


@functools.cache
def _small(tag: int) -> tuple[bytes, ...]:
    """Columns of small numbers. Made when a table first needs them: most drainers write no relay log."""
    return tuple(_column(bytes((tag,)) + varint(n)) for n in range(_CACHED_MAX))


def _head_of(tag: bytes) -> Callable[[int], bytes]:
    """What stands before a string of a length: the column's and the value's tags and lengths."""

    def head(size: int) -> bytes:
        value = tag + varint(size)
        return b"\n" + varint(len(value) + size) + value

    return head


_BYTES_HEADS: Final = ByNumber(_head_of(b"\x2a"))
_TEXT_HEADS: Final = ByNumber(_head_of(b"\x32"))


def _int64(value: int) -> bytes:
    return _small(0x10)[value] if 0 <= value < _CACHED_MAX else _int64_far(value)


def _uint64(value: int) -> bytes:
    return _small(0x18)[value] if value < _CACHED_MAX else _uint_far(value)


def _float(value: float) -> bytes:
    return b"\n\x09\x21" + _double.pack(value)


def _bytes(raw: bytes) -> bytes:
    return _BYTES_HEADS[len(raw)] + raw


def _text(raw: bytes) -> bytes:
    return _TEXT_HEADS[len(raw)] + raw


# -- columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How one column is read and written.

    `pieces`, expressions of `{v}`, are joined into the row; `write` makes the same of a raw value.
    """

    conversion: Conversion
    pieces: tuple[str, ...]
    write: Callable[[Any], bytes]
    nullable: bool
    names: Mapping[str, Any] = field(default_factory=dict)

    def expression(self, local: str) -> str:
        """Arguments that make the column of a local that holds a raw value, or None where that may be."""
        pieces = [piece.format(v=local) for piece in self.pieces]
        if self.nullable:
            return f"NULL if {local} is None else {' + '.join(pieces)}"
        return ", ".join(pieces)


def _column_of_text(text: str) -> bytes:
    return _text(text.encode())


_Former = Callable[[FieldType], ColumnForm]


def _year_text(value: int) -> bytes:
    return _text(b"%d" % value)


def _form(pieces: tuple[str, ...], write: Callable[[Any], bytes], **names: Any) -> _Former:
    """Of a kind whose columns are all written alike."""
    return lambda field_type: ColumnForm(RAW[field_type.kind], pieces, write, not field_type.not_null, names)


def _signed(field_type: FieldType) -> ColumnForm:
    pieces = (f"INT64[{{v}}] if 0 <= {{v}} < {_CACHED_MAX} else int64_far({{v}})",)
    names: dict[str, Any] = {"INT64": _small(0x10), "int64_far": _int64_far}
    return ColumnForm(RAW[field_type.kind], pieces, _int64, not field_type.not_null, names)


def _number(field_type: FieldType) -> ColumnForm:
    """Without a sign: an unsigned integer, the index of an ENUM or the mask of a SET."""
    pieces = (f"UINT[{{v}}] if {{v}} < {_CACHED_MAX} else uint_far({{v}})",)
    names = {"UINT": _small(0x18), "uint_far": _uint_far}
    return ColumnForm(RAW[field_type.kind], pieces, _uint64, not field_type.not_null, names)


def _bit(field_type: FieldType) -> ColumnForm:
    width = (max(field_type.flen, 1) + 7) // 8

    def bits(value: int) -> bytes:
        return _bytes(value.to_bytes(width, "big"))

    # Names of a reader are shared by its columns, so that of a width has the width in it.
    pieces, names = (f"bits{width}({{v}})",), {f"bits{width}": bits}
    return ColumnForm(RAW[field_type.kind], pieces, bits, not field_type.not_null, names)


def _as_it_is(value: bytes) -> bytes:
    return value


def _made(show: Callable[[Any], bytes]) -> _Former:
    """A kind whose reader gives the whole column."""
    return lambda field_type: ColumnForm(
        shown_conversion(field_type, show), ("{v}",), _as_it_is, not field_type.not_null
    )


_TEXT: Final = _made(_column_of_text)
_FORMS: Final[dict[ColumnKind, _Former]] = {
    ColumnKind.SIGNED: _signed,
    ColumnKind.UNSIGNED: _number,
    ColumnKind.YEAR: _form(("year({v})",), _year_text, year=_year_text),
    ColumnKind.BIT: _bit,
    ColumnKind.FLOAT: _made(_float),
    ColumnKind.DOUBLE: _form(
        ("DOUBLE", "pack_double({v})"), _float, pack_double=_double.pack, DOUBLE=b"\n\x09\x21"
    ),
    ColumnKind.DECIMAL: _TEXT,
    ColumnKind.TEXT: _form(("TEXT_HEADS[len({v})]", "{v}"), _text, TEXT_HEADS=_TEXT_HEADS),
    ColumnKind.BINARY: _form(("BYTES_HEADS[len({v})]", "{v}"), _bytes, BYTES_HEADS=_BYTES_HEADS),
    ColumnKind.ENUM: _number,
    ColumnKind.SET: _number,
    ColumnKind.DATE: _TEXT,
    ColumnKind.DATETIME: _TEXT,
    ColumnKind.TIMESTAMP: _TEXT,
    ColumnKind.TIME: _TEXT,
    ColumnKind.JSON: _made(_bytes),
}


def column_form(column: Column) -> ColumnForm:
    """Choose how a column is read and written."""
    return _FORMS[column.type.kind](column.type)
