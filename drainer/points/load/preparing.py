"""Preparing: the downstream made ready for rows: what is stored of the load, databases, tables.

Drives  one session downstream, the DDL runner (`definitions`)
Order   what is to be made is stored first, then made, then stored as READY: whatever a crash leaves is known
        to be the load's, and is made again
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from drainer.changes import ddl_effect
from drainer.checkpoint.load_progress import LoadedTable, LoadProgress, LoadState, TableState
from drainer.mysql.connection import Connection
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.session import DownstreamSession
from drainer.points.load.contents import Contents, Source
from drainer.points.load.definitions import Definitions, present
from drainer.points.load.reconcile import Mode, Reconciled, reconcile
from drainer.stream.schema.tracker import SchemaTracker

Name = tuple[str, str]
Stored = tuple[Source, LoadedTable]


def look(
    connection: Connection, progress: LoadProgress, contents: Contents, mode: Mode, *, same_ts: bool
) -> Reconciled:
    """What is to be done, by what is there now. Raises `Rejected`."""
    stored, has_rows = [], frozenset[int]()
    if progress.state(connection) is not None:
        stored, has_rows = progress.tables(connection), progress.begun(connection)
    sources = (*contents.tables, *contents.sequences, *contents.views)
    there = present(connection, {source.target for source in sources})
    connection.rollback()
    keyless = {source.name for source in contents.tables if not target_of(source.version, 1).keyed}
    return reconcile(contents, stored, there, mode, same_ts=same_ts, has_rows=has_rows, keyless=keyless)


class Preparing:
    """Of one pass. Blocks; raises `SessionError`, `DownstreamError`, `Conflict`."""

    def __init__(
        self,
        session: DownstreamSession,
        progress: LoadProgress,
        definitions: Definitions,
        state: LoadState,
        found: Reconciled,
    ) -> None:
        self._session = session
        self._progress = progress
        self._definitions = definitions
        self._state = state
        self._found = found
        self._empties = Mode(state.mode) is not Mode.APPEND

    def store(self, also: Callable[[Connection], None]) -> None:
        """Take the load over, in one transaction with `also`."""
        begun = {one.target for _, one in self._found.begun}
        with self._session.connection() as connection:
            also(connection)
            self._progress.take_over(connection, self._state)
            for one in self._found.given_up:
                if one.target in begun:  # it is made anew
                    self._progress.forget_table(connection, one.number)
            self._progress.put_tables(connection, (one for _, one in self._found.begun))
            connection.commit()

    def make_databases(self, contents: Contents, tracker: SchemaTracker) -> None:
        for name, _ in contents.databases:
            charset, collate = tracker.database_collation(name) or ("", "")
            self._definitions.make_database(name, charset, collate)

    def make_tables(self) -> None:
        """And sequences before them: a column's default may be the next value of one."""
        self._give_up()
        for kind in (ddl_effect.SEQUENCE, ddl_effect.TABLE):
            self._make(one for one in self._found.all if one[0].kind == kind)

    def make_views(self) -> None:
        views = [
            one
            for one in self._found.all
            if one[0].kind == ddl_effect.VIEW and one[1].state is TableState.PLANNED
        ]
        self._definitions.make_views([source for source, one in views if one.made and source.creates])
        self._ready(one for _, one in views)

    def begin_anew(self, number: int) -> None:
        """A table whose stored chunks do not count: empty, without chunks."""
        source, one = next(pair for pair in self._found.all if pair[1].number == number)
        with self._changing() as connection:
            self._progress.forget_chunks(connection, number)
            self._progress.set_table(connection, number, TableState.PLANNED)
        self._definitions.empty(source.target)
        self._ready([one])

    def _give_up(self) -> None:
        others = {one.target for _, one in self._found.all}
        for one in self._found.given_up:
            if one.target in others:
                continue
            if one.made:
                self._definitions.drop(one.target)
            elif self._empties:
                self._definitions.empty(one.target)
            with self._changing() as connection:
                self._progress.forget_table(connection, one.number)

    def _make(self, pairs: Iterable[Stored]) -> None:
        groups: dict[Name, list[Stored]] = {}
        for source, one in pairs:
            if one.state is TableState.PLANNED:
                groups.setdefault(one.target, []).append((source, one))
        for group in groups.values():
            source, one = group[0]
            if one.made:
                self._definitions.make(source)
            elif self._empties and source.kind == ddl_effect.TABLE:
                self._definitions.empty(one.target)
            self._ready(stored for _, stored in group)

    def _ready(self, tables: Iterable[LoadedTable]) -> None:
        with self._changing() as connection:
            for one in tables:
                self._progress.set_table(connection, one.number, TableState.READY)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Connection]:
        """A transaction about what is stored, while this load is the newest one."""
        with self._session.connection() as connection:
            self._progress.hold(connection, self._state.run)
            yield connection
            connection.commit()


def copied(pairs: Sequence[Stored]) -> list[Stored]:
    """Those whose rows are wanted."""
    return [pair for pair in pairs if pair[0].copies]
