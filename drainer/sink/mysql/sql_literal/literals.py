"""One column's value as SQL: from the datum to a *raw* value, from the raw value to a literal.

    type                         raw                     literal to store          literal to compare
    integers, YEAR, BIT          int                     123                       123 (YEAR: '2023')
    SET                          int, the mask           5                         'a,c'
    ENUM                         int, 0 if no element    'name', 0/*enum*/ for 0   its index
    FLOAT                        float                   1.5e0                     1.5e0
    DOUBLE                       float                   1.5e0                     1.5e0; 1.50 for (M,2)
    DECIMAL                      bytes, canonical text   -10.55                    -10.55
    dates and times              bytes, quoted text      '2023-02-28 01:02:03'     the same
    text                         bytes                   'it''s'                   the same
    text that is not UTF-8       bytes                   x'ff', _binary'...'       the same
    binary strings               bytes                   x'00ff', _binary'...'     the same
    JSON                         bytes, canonical text   '{"a": 1}'                the same

What to compare depends on the column downstream, too: see `key_literal`.
FLOAT is written as the double that it widens to: storing it rounds to the same binary32, and comparing is
exact. A binary literal is hexadecimal while short; a long one is not, because hexadecimal doubles it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from common.rowcodec.binary_json import read_json
from common.rowcodec.codegen import SIGNED_VALUE, Conversion, Shape
from common.rowcodec.datum import (
    read_bytes,
    read_double,
    read_duration,
    read_float,
    read_int,
    read_unsigned,
)
from common.rowcodec.decimals import read_decimal
from common.rowcodec.strict import Reader
from common.rowcodec.temporal import date_text, datetime_text, duration_text
from common.rowcodec.values import cached_reader, set_reader, set_text
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
)
from drainer.sink.mysql.sql_literal.charset import Charset
from drainer.sink.mysql.sql_literal.quoting import binary_literal, text_literal

NULL: Final = b"NULL"
ENUM_ZERO: Final = b"0/*enum*/"  # strict mode refuses it: what has this token is looked at


def double_literal(value: float) -> bytes:
    """Always with an exponent: without one the server would read a DECIMAL."""
    text = repr(value)
    return text.encode() if "e" in text else f"{text}e0".encode()


def integer_literal(value: int) -> bytes:
    return b"%d" % value


def _as_is(raw: bytes) -> bytes:
    return raw


@dataclass(frozen=True, slots=True)
class ColumnSql:
    """How one column is read and written.

    `template` and `argument` (an expression of `{v}`) make the literal inside a row template when no escaping
    is needed; `store` and `compare` make it from any raw value but None. `quoted`: the template puts the raw
    value between quotes, so it must be looked at for quotes and for invalid UTF-8. `charset`: that of the
    column where it goes to, if it is narrower than utf8mb4.
    """

    column: Column
    conversion: Conversion
    template: str
    argument: str
    store: Callable[[Any], bytes]
    compare: Callable[[Any], bytes]
    quoted: bool = False
    charset: Charset | None = None
    names: Mapping[str, Any] = field(default_factory=dict)


def _integer(column: Column, place: int) -> ColumnSql:
    unsigned = column.type.unsigned and column.type.tp != YEAR
    conversion = (
        Conversion(Shape.UNSIGNED, "u", read_int)
        if unsigned
        else Conversion(Shape.SIGNED, SIGNED_VALUE, read_int)
    )
    # A number below 100 compared with a YEAR could be read as a year of two digits.
    compare = (lambda year: b"'%04d'" % year) if column.type.tp == YEAR else integer_literal
    return ColumnSql(column, conversion, "%d", "{v}", integer_literal, compare)


def _set_text_literal(kind: FieldType) -> Callable[[int], bytes]:
    return lambda mask: text_literal(set_text(kind, mask).encode())


def _unsigned(column: Column, place: int) -> ColumnSql:
    kind = column.type
    read = set_reader(kind) if kind.tp == SET else read_unsigned
    shape = Shape.CALL if kind.tp == SET else Shape.UNSIGNED
    # As a number a SET is signed to the server: a mask with bit 63 would find nothing.
    compare = _set_text_literal(kind) if kind.tp == SET else integer_literal
    return ColumnSql(column, Conversion(shape, "u", read), "%d", "{v}", integer_literal, compare)


def _enum(column: Column, place: int) -> ColumnSql:
    literals = (ENUM_ZERO, *(text_literal(name.encode()) for name in column.type.elems))
    last = len(column.type.elems)

    def read(b: bytes, i: int) -> tuple[int, int]:
        index, end = read_unsigned(b, i)
        return index if index <= last else 0, end

    name = f"enum{place}"
    return ColumnSql(
        column,
        Conversion(Shape.UNSIGNED, f"u if u <= {last} else 0", read),
        "%b",
        f"{name}[{{v}}]",
        literals.__getitem__,
        integer_literal,
        names={name: literals},
    )


def _floating(column: Column, place: int) -> ColumnSql:
    conversion = (
        Conversion(Shape.DOUBLE, "u", read_double)
        if column.type.tp == DOUBLE
        else Conversion(Shape.CALL, "", read_float)
    )
    names = {"double_literal": double_literal}
    digits = column.type.decimal if column.type.tp == DOUBLE else -1
    # DOUBLE(M,D) rounds what it stores to a neighbour of D digits, and finds only what has D digits. A
    # FLOAT(M,D) is the binary32 nearest to D digits, which is what upstream has: no decimal is equal to it.
    compare = (lambda value: b"%.*f" % (digits, value)) if digits >= 0 else double_literal
    return ColumnSql(column, conversion, "%b", "double_literal({v})", double_literal, compare, names=names)


def _decimal_bytes(b: bytes, i: int) -> tuple[bytes, int]:
    text, end = read_decimal(b, i)
    return text.encode(), end


def _plain(column: Column, conversion: Conversion) -> ColumnSql:
    """A column whose raw value is the literal."""
    return ColumnSql(column, conversion, "%b", "{v}", _as_is, _as_is)


@functools.cache
def _time_reader(is_date: bool, fsp: int) -> tuple[Reader, dict[bytes, Any]]:
    """One cache of quoted literals for all columns that show times alike."""
    if is_date:
        return cached_reader(lambda packed: b"'%b'" % date_text(packed).encode())
    return cached_reader(lambda packed: b"'%b'" % datetime_text(packed, fsp).encode())


def _duration_reader(kind: FieldType) -> Reader:
    fsp = kind.fsp

    def read(b: bytes, i: int) -> tuple[bytes, int]:
        ns, end = read_duration(b, i)
        return b"'%b'" % duration_text(ns, fsp).encode(), end

    return read


def _string(column: Column, place: int) -> ColumnSql:
    conversion = Conversion(Shape.BYTES, "s", read_bytes)
    if column.type.is_binary_string:
        names = {"binary_literal": binary_literal}
        return ColumnSql(
            column, conversion, "%b", "binary_literal({v})", binary_literal, binary_literal, names=names
        )
    return ColumnSql(column, conversion, "'%b'", "{v}", text_literal, text_literal, quoted=True)


def column_sql(column: Column, place: int) -> ColumnSql:
    """How `column` is written; `place` makes names unique within a generated reader."""
    tp = column.type.tp
    if tp in INTEGER_TYPES:
        return _integer(column, place)
    if tp in STRING_TYPES:
        return _string(column, place)
    if tp in TIME_TYPES:
        read, cache = _time_reader(tp in (DATE, NEWDATE), column.type.fsp)
        return _plain(column, Conversion(Shape.TIME, "", read, cache=cache))
    if tp == TIME:
        return _plain(column, Conversion(Shape.CALL, "", _duration_reader(column.type)))
    if tp == DECIMAL:
        return _plain(column, Conversion(Shape.CALL, "", _decimal_bytes))
    if tp in (FLOAT, DOUBLE):
        return _floating(column, place)
    if tp == ENUM:
        return _enum(column, place)
    if tp in (BIT, SET):
        return _unsigned(column, place)
    assert tp == JSON, tp
    conversion = Conversion(Shape.CALL, "", read_json)
    return ColumnSql(column, conversion, "'%b'", "{v}", text_literal, text_literal, quoted=True)
