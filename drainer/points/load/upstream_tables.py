"""Upstream tables: what the upstream's server says of a table that is loaded, and how large it is.

Drives  a session of the snapshot where servers have a past (TiDB), else one of its own: asking for a
        definition ends a transaction, and a snapshot with it
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from drainer.mysql.chunks.table_size import TableSize, table_size
from drainer.mysql.connection import Connection, Target
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.session import DownstreamSession
from drainer.mysql.table_reader import is_absent, read_table
from drainer.points.load.table_copy import NotAsPublished
from drainer.points.snapshot.engines import engine_without_snapshots
from drainer.points.snapshot.sessions import UpstreamSnapshot
from tidb_binlog.errors import Rejected

Name = tuple[str, str]


class UpstreamTables:
    """Blocking; not thread-safe. `snapshot` None: as they are now. Raises `SessionError`."""

    def __init__(self, target: Target, snapshot: UpstreamSnapshot | None) -> None:
        self._snapshot = snapshot
        self._own = DownstreamSession(target)

    def close(self) -> None:
        self._own.close()

    def table(self, name: Name) -> DownstreamTable:
        """Raises `NotAsPublished` where there is none, `Rejected` for one that has no snapshots."""
        with self._session() as connection:
            found = read_table(connection, *name)
            engine = engine_without_snapshots(connection, *name)
            denied = found is None and not is_absent(connection, *name)
        if engine:
            raise Rejected(
                f"the upstream's table {'.'.join(name)} is in engine {engine}, which has no snapshots:"
                " its rows would be of no moment",
                hint=f"ALTER TABLE {'.'.join(name)} ENGINE=InnoDB, or leave it out (ignore-table)",
            )
        if denied:
            raise Rejected(
                f"the upstream does not show {'.'.join(name)} to the user of [syncer.from]",
                hint=f"GRANT SELECT ON {name[0]}.* to it, or leave the table out (ignore-table)",
            )
        if found is None:
            raise NotAsPublished(
                f"the upstream's database has no table {'.'.join(name)}, and has by its published definition",
                hint="make it there, or publish that it is dropped, or leave it out (ignore-table)",
            )
        return found

    def size(self, name: Name) -> TableSize:
        with self._session() as connection:
            return table_size(connection, *name)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Connection]:
        if self._snapshot is not None and self._snapshot.reopens:
            with self._snapshot.session() as connection:
                yield connection
        else:
            with self._own.connection() as connection:
                yield connection
