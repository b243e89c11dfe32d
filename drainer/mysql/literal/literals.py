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
exact.

Tests  tests/drainer/mysql/literal/test_plan.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from drainer.mysql.literal.charset import Charset
from drainer.mysql.literal.quoting import binary_literal, text_literal
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.codegen import Conversion, Shape
from tidb_binlog.rowcodec.datum import read_duration, read_packed_time, read_unsigned
from tidb_binlog.rowcodec.decimals import decimal_bytes, header_of, read_decimal
from tidb_binlog.rowcodec.temporal import date_text, datetime_text, duration_text, fraction_text
from tidb_binlog.rowcodec.time_caches import Fractions, Seconds, cached_reader
from tidb_binlog.rowcodec.values import RAW, set_reader, set_text
from tidb_binlog.table_info import Column, ColumnKind

NULL: Final = b"NULL"
ENUM_ZERO: Final = b"0/*enum*/"  # strict mode refuses it: what has this token is checked


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
    value between quotes, so it must be searched for quotes and for invalid UTF-8. `charset`: that of the
    column where it goes to, if it is narrower than utf8mb4. `fills_null`: what the column is called where the
    server stores another value for a NULL.
    """

    column: Column
    conversion: Conversion
    template: str
    argument: str
    store: Callable[[Any], bytes]
    compare: Callable[[Any], bytes]
    quoted: bool = False
    charset: Charset | None = None
    fills_null: str = ""
    names: Mapping[str, Any] = field(default_factory=dict)


def _integer(column: Column, place: int) -> ColumnSql:
    return ColumnSql(column, RAW[column.type.kind], "%d", "{v}", integer_literal, integer_literal)


def _year(column: Column, place: int) -> ColumnSql:
    # A number below 100 compared with a YEAR could be read as a year of two digits.
    return replace(_integer(column, place), compare=lambda year: b"'%04d'" % year)


def _set(column: Column, place: int) -> ColumnSql:
    field_type = column.type
    conversion = Conversion(Shape.CALL, "u", set_reader(field_type))

    # As a number a SET is signed to the server: a mask with bit 63 would find nothing.
    def compare(mask: int) -> bytes:
        return text_literal(set_text(field_type, mask).encode())

    return replace(_integer(column, place), conversion=conversion, compare=compare)


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


def _float(column: Column, place: int) -> ColumnSql:
    # A FLOAT(M,D) is the binary32 nearest to D digits, which is what upstream has: no decimal is equal to it.
    literal, names = double_literal, {"double_literal": double_literal}
    return ColumnSql(
        column, RAW[column.type.kind], "%b", "double_literal({v})", literal, literal, names=names
    )


def _double(column: Column, place: int) -> ColumnSql:
    # DOUBLE(M,D) rounds what it stores to a neighbour of D digits, and finds only what has D digits.
    digits = column.type.decimal
    compare = (lambda value: b"%.*f" % (digits, value)) if digits >= 0 else double_literal
    return replace(_float(column, place), compare=compare)


def _plain(column: Column, conversion: Conversion) -> ColumnSql:
    """A column whose raw value is the literal."""
    return ColumnSql(column, conversion, "%b", "{v}", _as_is, _as_is)


_dates: Final = cached_reader(lambda packed: b"'%b'" % date_text(packed).encode())
_seconds: Final = Seconds(lambda packed: b"'%b" % datetime_text(packed, 0).encode())


@functools.cache
def _fractions(fsp: int) -> Fractions[bytes]:
    return Fractions(lambda micro: b"%b'" % fraction_text(micro, fsp).encode())


def _date(column: Column, place: int) -> ColumnSql:
    read, cache = _dates
    return _plain(column, Conversion(Shape.TIME, "", read, cache=cache))


def _time(column: Column, place: int) -> ColumnSql:
    fsp = column.type.fsp

    def read(b: bytes, i: int) -> tuple[bytes, int]:
        packed, end = read_packed_time(b, i)
        return b"'%b'" % datetime_text(packed, fsp).encode(), end

    names = {"second": _seconds, f"fraction{fsp}": _fractions(fsp)}
    return _plain(column, Conversion(Shape.TIME, f"second[t] + fraction{fsp}[q]", read, names))


def _duration(column: Column, place: int) -> ColumnSql:
    fsp = column.type.fsp

    def read(b: bytes, i: int) -> tuple[bytes, int]:
        ns, end = read_duration(b, i)
        return b"'%b'" % duration_text(ns, fsp).encode(), end

    return _plain(column, Conversion(Shape.CALL, "", read))


def _decimal_bytes(b: bytes, i: int) -> tuple[bytes, int]:
    text, end = read_decimal(b, i)
    return text.encode(), end


def _decimal(column: Column, place: int) -> ColumnSql:
    precision, scale = column.type.flen, column.type.decimal
    header = header_of(precision, scale)
    if not header:
        return _plain(column, Conversion(Shape.CALL, "", _decimal_bytes))
    name = f"decimal_{precision}_{scale}"
    names = {name: decimal_bytes(precision, scale)}
    return _plain(column, Conversion(Shape.DECIMAL, f"{name}(d)", _decimal_bytes, names, header=header))


def _text(column: Column, place: int) -> ColumnSql:
    return ColumnSql(column, RAW[column.type.kind], "'%b'", "{v}", text_literal, text_literal, quoted=True)


def _binary(column: Column, place: int) -> ColumnSql:
    literal, names = binary_literal, {"binary_literal": binary_literal}
    return ColumnSql(
        column, RAW[column.type.kind], "%b", "binary_literal({v})", literal, literal, names=names
    )


_COLUMN_SQL: Final[dict[ColumnKind, Callable[[Column, int], ColumnSql]]] = {
    ColumnKind.SIGNED: _integer,
    ColumnKind.UNSIGNED: _integer,
    ColumnKind.YEAR: _year,
    ColumnKind.BIT: _integer,
    ColumnKind.FLOAT: _float,
    ColumnKind.DOUBLE: _double,
    ColumnKind.DECIMAL: _decimal,
    ColumnKind.TEXT: _text,
    ColumnKind.BINARY: _binary,
    ColumnKind.ENUM: _enum,
    ColumnKind.SET: _set,
    ColumnKind.DATE: _date,
    ColumnKind.DATETIME: _time,
    ColumnKind.TIMESTAMP: _time,
    ColumnKind.TIME: _duration,
    ColumnKind.JSON: _text,
}


def column_sql(column: Column, place: int) -> ColumnSql:
    """How `column` is written; `place` makes names unique within a generated reader."""
    return _COLUMN_SQL[column.type.kind](column, place)
