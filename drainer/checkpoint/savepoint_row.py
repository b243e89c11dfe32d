"""Savepoint row: the savepoint of a sink that has no tables, as a row in a database of its own.

Drives  `go_table` on a connection of its own; the file in the data directory, too
In, out the row that a Go drainer with `[syncer.to.checkpoint] type = "mysql"` reads and writes
Holds   the row counts where there is one. The file is written after it: a drainer whose configuration names
        no server any more continues from there. Another program's row is never overwritten unread
Tests   tests/drainer/app/test_savepoint_row.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from drainer.checkpoint.go_table import RowTable
from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.session import DownstreamSession
from tidb_binlog.errors import DownstreamError, Unavailable

T = TypeVar("T")


class SavepointRow(Savepoint):
    """One cluster's. `load` and `save` block, and raise `Unavailable` while the server is away,
    `DownstreamError` where it refuses, `Conflict` where another program writes the row."""

    def __init__(self, data_dir: str, target: Target, schema: str, table: str, cluster_id: int) -> None:
        super().__init__(data_dir)
        self._session = DownstreamSession(target)
        self._row = RowTable(schema, table, cluster_id)
        self._shown = f"{schema}.{table} of {target!r}"

    def load(self) -> Checkpoint | None:
        """The row; without one what the file holds."""

        def read(connection: Connection) -> Checkpoint | None:
            self._row.ensure(connection)
            return self._row.load(connection)[0]

        stored = self._run("reading", read)
        return super().load() if stored is None else stored

    @property
    def path(self) -> str:
        """Of the row, in words."""
        return self._shown

    def save(self, checkpoint: Checkpoint) -> None:
        self._run("storing", lambda connection: self._row.store(connection, checkpoint))
        self._row.stored()
        super().save(checkpoint)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _run(self, doing: str, work: Callable[[Connection], T]) -> T:
        try:
            with self._session.connection() as connection:
                result = work(connection)
                connection.commit()
                return result
        except SessionError as error:
            kind = DownstreamError if isinstance(error, StatementRefused) else Unavailable
            raise kind(
                f"{doing} the checkpoint row: {self._session.target!r} says {safe_text(error)}",
                hint="check the server of [syncer.to.checkpoint]",
            ) from None
