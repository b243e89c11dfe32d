"""Same: type changes whose values any server converts as TiDB does.

Out    whether a plain ALTER there leaves the values that the upstream has
Holds  a change that keeps every value is the same everywhere: more digits, more length, more members.
       MariaDB cuts integers as TiDB does, which was measured. All else is not the same
Tests  tests/drainer/ddl/convert/test_same.py measures each on a real server
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.rows.column_match import Dialect
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import INTEGER_KINDS, ColumnKind, FieldType

_BYTES: Final = {ti.TINY: 1, ti.SHORT: 2, ti.INT24: 3, ti.LONG: 4, ti.LONGLONG: 8}
_LONG_BYTES: Final = {
    ti.TINY_BLOB: 255,
    ti.BLOB: 65535,
    ti.MEDIUM_BLOB: (1 << 24) - 1,
    ti.LONG_BLOB: (1 << 32) - 1,
}


def is_same(source: FieldType, target: FieldType, dialect: Dialect) -> bool:
    if dialect is Dialect.TIDB:
        return True
    was, kind = source.kind, target.kind
    if was in INTEGER_KINDS and kind in INTEGER_KINDS and ColumnKind.YEAR not in (was, kind):
        return dialect is Dialect.MARIADB or _keeps_integers(source, target)
    if was is not kind:
        return False
    if kind in (ColumnKind.DATETIME, ColumnKind.TIMESTAMP, ColumnKind.TIME):
        return target.fsp >= source.fsp
    if kind is ColumnKind.DECIMAL:
        return _keeps_decimals(source, target)
    if kind in (ColumnKind.ENUM, ColumnKind.SET):
        return target.elems[: len(source.elems)] == source.elems
    if kind is ColumnKind.BIT:
        return target.flen >= source.flen
    if kind in (ColumnKind.TEXT, ColumnKind.BINARY):
        return _keeps_strings(source, target)
    if kind in (ColumnKind.FLOAT, ColumnKind.DOUBLE):
        plain = target.flen < 0 or target.decimal < 0 or _digits(source) == _digits(target)
        return plain and (source.unsigned or not target.unsigned)
    return kind is not ColumnKind.UNKNOWN


def _digits(kind: FieldType) -> tuple[int, int]:
    return kind.flen, kind.decimal


def _keeps_integers(source: FieldType, target: FieldType) -> bool:
    have, had = _BYTES[target.tp], _BYTES[source.tp]
    if source.unsigned == target.unsigned:
        return have >= had
    return source.unsigned and have > had


def _keeps_decimals(source: FieldType, target: FieldType) -> bool:
    whole, places = source.flen - source.decimal, source.decimal
    signed = source.unsigned or not target.unsigned
    return signed and target.decimal >= places and target.flen - target.decimal >= whole


def _keeps_strings(source: FieldType, target: FieldType) -> bool:
    """A longer one, of the same character set or of one that has all its characters."""
    charsets = source.charset.replace("utf8mb3", "utf8"), target.charset.replace("utf8mb3", "utf8")
    if charsets[0] != charsets[1] and charsets != ("utf8", "utf8mb4") and charsets[0] != "ascii":
        return False
    fixed = source.tp == ti.STRING, target.tp == ti.STRING
    if fixed[1] and not fixed[0]:  # what ends in spaces does not any more
        return False
    return _room(target) >= _room(source, largest=target.tp in _LONG_BYTES)


def _room(kind: FieldType, *, largest: bool = False) -> int:
    """Characters of a text, or bytes; `largest`: as many bytes as they can take."""
    if kind.tp in _LONG_BYTES:
        return _LONG_BYTES[kind.tp]
    return max(kind.flen, 0) * (4 if largest and kind.charset != "binary" else 1)
