"""Reads tables from MariaDB in the form in which they are compared. Reads only.

Values come as the server prints them, through expressions that lose nothing: the double of a FLOAT, bytes in
hexadecimal, text in UTF-8, times in UTC.

Tests  tests/deploy/binlog_playground/cluster/test_mariadb.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from binlog_playground.check.verify import (
    ActualTable,
    ColumnForm,
    Difference,
    ExpectedChecksum,
    ExpectedTable,
    TableName,
    canonical,
)
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from tidb_binlog.errors import DownstreamError

SYSTEM_SCHEMAS: Final = (
    "mysql",
    "information_schema",
    "performance_schema",
    "sys",
    "tidb_binlog",
    "tidb_binlog_reparo",
)


def quote(name: str) -> str:
    """An identifier in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def expression(column: ColumnForm) -> str:
    """SQL that shows a column's value exactly, in the form `verify.canonical` reads."""
    name = quote(column.name)
    if column.repr == "uint":
        return f"CAST({name} AS UNSIGNED)"
    if column.repr == "double":
        return f"{name} * 1e0"  # the double, without the rounding for display of FLOAT and DOUBLE(M,D)
    if column.repr == "hex":
        return f"HEX({name})"
    if column.repr == "text":
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"
    return name


class Downstream:
    """One reading connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._connection.decoders = {}  # values stay as the server prints them
        self._run("SET time_zone = '+00:00'")

    def tables(self) -> dict[TableName, tuple[str, ...]]:
        """Column names of every base table outside the system's own schemas."""
        listed = ", ".join(f"'{name}'" for name in SYSTEM_SCHEMAS)
        where = f"WHERE table_schema NOT IN ({listed})"
        tables = self._run(
            "SELECT table_schema, table_name FROM information_schema.tables"
            f" {where} AND table_type = 'BASE TABLE' ORDER BY 1, 2"
        )
        columns = self._run(
            # A TiDB may list one twice.
            "SELECT DISTINCT table_schema, table_name, column_name, ordinal_position"
            f" FROM information_schema.columns {where} ORDER BY table_schema, table_name, ordinal_position"
        )
        columns_of: dict[TableName, list[str]] = {(schema, table): [] for schema, table in tables}
        for schema, table, column, _ in columns:
            if (schema, table) in columns_of:  # not a view or a sequence
                columns_of[schema, table].append(column)
        return {name: tuple(names) for name, names in columns_of.items()}

    def contents(self, expected: Sequence[ExpectedTable]) -> dict[TableName, ActualTable]:
        """All base tables; rows are read where a table with the same columns is expected."""
        by_name = {(table.schema, table.name): table for table in expected}
        actual = {}
        for name, columns in self.tables().items():
            table = by_name.get(name)
            same = table is not None and columns == tuple(column.name for column in table.columns)
            rows = self.rows(table) if same and table is not None else []
            actual[name] = ActualTable(columns, rows)
        return actual

    def rows(self, table: ExpectedTable) -> list[tuple[Any, ...]]:
        """Every row of a table in compared form."""
        shown = ", ".join(expression(column) for column in table.columns)
        forms = [column.repr for column in table.columns]
        rows = self._run(f"SELECT {shown} FROM {quote(table.schema)}.{quote(table.name)}")
        return [tuple(canonical(v, f) for v, f in zip(row, forms, strict=True)) for row in rows]

    def checksum_difference(self, table: ExpectedChecksum) -> Difference | None:
        """Compare a table that is known by its checksum only."""
        columns = ", ".join(quote(name) for name in table.columns)
        digest = hashlib.sha256()
        count = 0
        for row in self._run(f"SELECT {columns} FROM {quote(table.schema)}.{quote(table.name)} ORDER BY id"):
            count += 1
            digest.update("\t".join("NULL" if v is None else str(v) for v in row).encode() + b"\n")
        if (count, digest.hexdigest()) == (table.rows, table.sha256):
            return None
        what = f"{count} rows with checksum {digest.hexdigest()}, must be {table.rows} with {table.sha256}"
        return Difference(f"{table.schema}.{table.name}", what)

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.rows(sql.encode())
        except SessionError as error:
            raise DownstreamError(f"MariaDB does not answer {sql[:120]!r}: {error}") from None
