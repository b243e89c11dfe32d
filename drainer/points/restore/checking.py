"""Checking: whether a database holds what an image and the changes after it come to.

Out     of each table nothing, or how it differs, or why it cannot be compared; rows that were compared
Holds   memory does not grow with tables. Nothing may write to the destination meanwhile
Tests   tests/drainer/points/restore/test_restoring.py

Blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from drainer.changes import canonical
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError, safe_text
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.table_reader import read_table
from drainer.points.restore.row_sums import Name, RowSums, TableSum, packed
from drainer.txn import Ddl, Item, TableVersion
from tidb_binlog.errors import Corruption, DownstreamError
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.row_error import RowError


@dataclass(slots=True)
class Checked:
    """`rows`: that were compared and are equal, or not. Lines name the table."""

    rows: int = 0
    different: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)


def check(target: Target, tables: Iterable[TableVersion], items: Iterable[Item]) -> Checked:
    """`tables`: those that are to be there, perhaps without rows. Raises `DownstreamError`, `Corruption`."""
    connection = connect(replace(target, read_timeout_s=None))
    try:
        tables_there = _There(connection)
        sums = RowSums(tables_there.columns)
        for version in tables:
            sums.know(version)
        for item in items:
            if isinstance(item, Ddl):
                sums.pass_ddl(item)
            else:
                sums.take(item)
        checked = Checked()
        for name, expected in sorted(sums.tables.items()):
            _compare(tables_there, name, expected, checked)
        return checked
    except RowError as error:
        raise Corruption(f"a row of the image or archive cannot be read: {error.message}") from None
    except SessionError as error:
        raise DownstreamError(
            f"the destination cannot be compared: {safe_text(error)}",
            hint="the account needs SELECT on every table that is restored",
        ) from None
    finally:
        connection.close()


def _compare(tables: _There, name: Name, expected: TableSum, checked: Checked) -> None:
    label = ".".join(name)
    if expected.unknown:
        checked.not_compared.append(f"{label}: {expected.unknown}")
        return
    if tables.table(name) is None:
        checked.different.append(f"{label}: there is no such table")
        return
    if not expected.columns:
        checked.not_compared.append(f"{label}: it has no column that can be compared")
        return
    if expected.lacking:
        columns = ", ".join(sorted(expected.lacking))
        checked.not_compared.append(f"{label}: {columns}: the destination computes or lacks that")
    actual = tables.sum(name, expected)
    checked.rows += actual.rows
    if why := expected.differs_from(actual):
        checked.different.append(f"{label}: {why}")


class _There:
    """Tables of the destination."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables: dict[Name, DownstreamTable | None] = {}

    def table(self, name: Name) -> DownstreamTable | None:
        if name not in self._tables:
            self._tables[name] = read_table(self._connection, *name)
        return self._tables[name]

    def columns(self, name: Name) -> frozenset[str] | None:
        table = self.table(name)
        if table is None:
            return None
        return frozenset(column.name.lower() for column in table.columns if not column.generated)

    def sum(self, name: Name, expected: TableSum) -> TableSum:
        table = self.table(name)
        assert table is not None
        actual = TableSum(expected.columns)
        columns = sorted(expected.columns.items())
        shown = b",".join(canonical.expression(quote_name(column), form) for column, form in columns)
        query = b"SELECT %b FROM %b" % (shown, qualified(table.schema, table.name))
        for row in self._printed(query):
            values = (
                (column, canonical.of_server(value, form))
                for (column, form), value in zip(columns, row, strict=True)
            )
            actual.add(packed(values))
        return actual

    def _printed(self, query: bytes) -> Iterator[tuple[Any, ...]]:
        """Rows as the server prints them, never all at once."""
        connection = self._connection
        decoders, connection.decoders = connection.decoders, {}
        try:
            yield from connection.stream(query)
        finally:
            connection.decoders = decoders
            connection.rollback()
