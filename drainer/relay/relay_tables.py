"""Relay tables: the downstream is asked for what a relay log does not say of a table.

Drives  one connection; information_schema of the downstream
Why     every DDL before a record has run there, so its own table says what the record leaves out
Holds   a definition stays until `forget`, which every DDL calls
Tests   tests/drainer/formats/obinlog/test_writer.py
"""

from __future__ import annotations

from typing import Final

from drainer.formats.obinlog.reader import ForeignTable
from drainer.mysql.connection import Target
from drainer.mysql.session import DownstreamSession
from drainer.relay.table_definitions import DownstreamColumn, info_of
from drainer.txn import TableVersion
from tidb_binlog.errors import DownstreamError

_COLUMNS: Final = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME"
    " FROM information_schema.COLUMNS WHERE LOWER(TABLE_SCHEMA)=LOWER(%s) AND LOWER(TABLE_NAME)=LOWER(%s)"
)


class RelayTables:
    """Blocking; not thread-safe. Raises `SessionError`."""

    def __init__(self, target: Target) -> None:
        self._known: dict[ForeignTable, TableVersion] = {}
        self._session = DownstreamSession(target)

    def resolve(self, table: ForeignTable) -> TableVersion:
        """A definition for the rows of a record. Raises `DownstreamError` if the table is not there."""
        version = self._known.get(table)
        if version is None:
            theirs = self._read(table.schema, table.name)
            if not theirs:
                raise DownstreamError(
                    f"table {table.schema}.{table.name} of the relay log does not exist downstream",
                    hint="create it there as it was upstream, and start again",
                )
            info = info_of(table, theirs, len(self._known) + 1)
            version = self._known[table] = TableVersion(info, table.schema, table.name, 0)
        return version

    def forget(self) -> None:
        """Tables may have changed."""
        self._known.clear()

    def close(self) -> None:
        self._session.close()

    def _read(self, schema: str, name: str) -> dict[str, DownstreamColumn]:
        with self._session.connection() as connection:
            connection.rollback()
            with connection.cursor() as cursor:
                cursor.execute(_COLUMNS, (schema, name))
                return {str(row[0]).lower(): DownstreamColumn(row) for row in cursor.fetchall()}
