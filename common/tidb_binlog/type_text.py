"""Type text: the type of a column as SQL writes it.

Out    "bigint unsigned", "varchar(20)", "enum('a','b')": lower case, without character set, with the widths
       that mean something, as MySQL 8 and MariaDB print it
Tests  tests/drainer/ddl/derive/test_derive.py, tests/drainer/changes/test_row_reader.py
"""

from __future__ import annotations

from typing import Final

from tidb_binlog import table_info as ti
from tidb_binlog.table_info import FieldType

INTEGERS: Final = frozenset({ti.TINY, ti.SHORT, ti.INT24, ti.LONG, ti.LONGLONG})
LONG_TEXTS: Final = {
    ti.TINY_BLOB: ("tinytext", "tinyblob"),
    ti.BLOB: ("text", "blob"),
    ti.MEDIUM_BLOB: ("mediumtext", "mediumblob"),
    ti.LONG_BLOB: ("longtext", "longblob"),
}
_PLAIN: Final = {
    ti.TINY: "tinyint",
    ti.SHORT: "smallint",
    ti.INT24: "mediumint",
    ti.LONG: "int",
    ti.LONGLONG: "bigint",
    ti.FLOAT: "float",
    ti.DOUBLE: "double",
    ti.DECIMAL: "decimal",
    ti.DATE: "date",
    ti.NEWDATE: "date",
    ti.YEAR: "year",
    ti.JSON: "json",
}
_CLOCKS: Final = {ti.DATETIME: "datetime", ti.TIMESTAMP: "timestamp", ti.TIME: "time"}


def literal(text: str) -> str:
    """A text as a literal of a session with backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def type_text(kind: FieldType) -> str:
    """The type without its character set; ValueError for a code that SQL has no name for."""
    binary = kind.charset == "binary"
    if kind.tp in LONG_TEXTS:
        return LONG_TEXTS[kind.tp][binary]
    if kind.tp in (ti.VARCHAR, ti.VAR_STRING):
        return f"{'varbinary' if binary else 'varchar'}({max(kind.flen, 0)})"
    if kind.tp == ti.STRING:
        return f"{'binary' if binary else 'char'}({max(kind.flen, 0)})"
    if kind.tp == ti.BIT:
        return f"bit({max(kind.flen, 1)})"
    if kind.tp in _CLOCKS:
        name = _CLOCKS[kind.tp]
        return f"{name}({kind.fsp})" if kind.fsp else name
    if kind.tp in (ti.ENUM, ti.SET):
        members = ",".join(literal(member) for member in kind.elems)
        return f"{'enum' if kind.tp == ti.ENUM else 'set'}({members})"
    if kind.tp not in _PLAIN:
        raise ValueError(f"type {kind.tp} has no name")
    return _number(kind)


def _number(kind: FieldType) -> str:
    text = _PLAIN[kind.tp]
    zerofill = bool(kind.flag & ti.FLAG_ZEROFILL)
    if kind.tp in INTEGERS:
        if kind.flen >= 0 and (zerofill or (kind.tp == ti.TINY and kind.flen == 1)):
            text += f"({kind.flen})"
    elif kind.tp == ti.DECIMAL:
        text += f"({kind.flen if kind.flen >= 0 else 10},{max(kind.decimal, 0)})"
    elif kind.tp in (ti.FLOAT, ti.DOUBLE) and kind.decimal >= 0 and kind.flen >= 0:
        text += f"({kind.flen},{kind.decimal})"
    if kind.unsigned and kind.tp in INTEGERS | {ti.FLOAT, ti.DOUBLE, ti.DECIMAL}:
        text += " unsigned"
    if zerofill and kind.tp != ti.YEAR:
        text += " zerofill"
    return text
