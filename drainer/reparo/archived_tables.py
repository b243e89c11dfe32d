"""Archived tables: definitions of the rows of an archive, from beside it or else from the downstream.

In     definitions of the archive; a database and where tables are routed to
Out    the definition for an event's names, as `pb_walk` asks for it
Why    an archive of a Go Drainer says of a column how it is called and of which type it is, not whether it
       is a key, unsigned or which elements an ENUM has. The table downstream says it: every schema change
       before the event has run there
Holds  what the downstream said stays until `forget`, which every DDL calls
Never  guesses: rows without a definition raise `DownstreamError`
Tests  tests/drainer/reparo/test_applying.py

Blocks; not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drainer.ddl.derive.values import Route
from drainer.mysql.connection import Target
from drainer.mysql.session import DownstreamSession
from drainer.reading.archive.decode import downstream_definitions
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.pb_walk import Shape
from drainer.txn import TableVersion
from tidb_binlog.errors import DownstreamError


class ArchivedTables:
    def __init__(self, archived: Definitions, target: Target, route: Route) -> None:
        self._archived = archived
        self._session = DownstreamSession(target)
        self._route = route
        self._there: dict[tuple[str, str], TableVersion] | None = None
        self._found = Definitions()

    def close(self) -> None:
        self._session.close()

    def forget(self) -> None:
        """Tables downstream may have changed."""
        self._there = None
        self._found = Definitions()

    def names(self) -> set[tuple[str, str]]:
        """Of all tables that the archive defines."""
        return {(one.schema, one.table) for one in self._archived}

    # -- what a walk asks ----------------------------------------------------------------------------

    def find(
        self,
        schema: str,
        table: str,
        commit_ts: int,
        column_names: Sequence[str],
        fits: Callable[[TableVersion], bool],
    ) -> TableVersion | None:
        found = self._archived.find(schema, table, commit_ts, column_names, fits)
        if found is not None:
            return found
        there = self._downstream(*self._route(schema, table))
        if there is not None:
            self._found.add(0, schema, table, TableVersion(there.info, schema, table, 0))
        return self._found.find(schema, table, commit_ts, column_names, fits)

    def guess(self, schema: str, table: str, shape: Shape) -> TableVersion:
        columns = ", ".join(one.name for one in shape)
        schema_there, table_there = self._route(schema, table)
        there = self._downstream(schema_there, table_there)
        lacks = "there is no such table"
        if there is not None:
            lacks = "it has " + ", ".join(column.name for column in there.info.columns)
        raise DownstreamError(
            f"the archive has rows of {schema}.{table} ({columns}) and no definition, and downstream"
            f" ({schema_there}.{table_there}) {lacks}",
            hint="create it there as it was upstream, or leave it out with replicate-ignore-table",
        )

    def valid(self, commit_ts: int) -> tuple[int, int]:
        return self._archived.valid(commit_ts)

    def _downstream(self, schema: str, table: str) -> TableVersion | None:
        if self._there is None:
            with self._session.connection() as connection:
                connection.rollback()
                found = downstream_definitions.read(connection, lambda schema, table: True)
            self._there = {(one.schema.lower(), one.name.lower()): one for one in found}
        return self._there.get((schema.lower(), table.lower()))
