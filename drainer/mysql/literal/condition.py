"""Conditions on a row's other columns, and assignments: one column of a table without key at a time.

Tests  tests/drainer/mysql/literal/test_plan_mariadb.py
"""

from __future__ import annotations

from typing import Any

from drainer.mysql.literal.literals import NULL, ColumnSql
from drainer.mysql.literal.quoting import quote_name, text_literal
from tidb_binlog.table_info import STRING_TYPES


def json_to_compare(raw: bytes) -> bytes:
    return b"CAST(%b AS JSON)" % text_literal(raw)


def equals(entry: ColumnSql, value: Any) -> bytes:
    """True for exactly this value, byte by byte."""
    name = quote_name(entry.column.name)
    if value is None:
        return b"%b IS NULL" % name
    if entry.charset is not None:
        return entry.charset.predicate(name, value)
    kind = entry.column.type
    if kind.tp in STRING_TYPES and not kind.is_binary_string:
        # Collations take different texts for equal: compare the bytes, in the connection's character set.
        return b"BINARY CONVERT(%b USING utf8mb4)<=>%b" % (name, entry.store(value))
    return b"%b<=>%b" % (name, entry.compare(value))


def assigned(entry: ColumnSql, value: Any) -> bytes:
    return b"%b=%b" % (quote_name(entry.column.name), NULL if value is None else entry.store(value))
