"""Row source: where the rows of a side of a comparison come from, at one moment, to read from any thread.

Out     `Sides`: of either side what its tables are, and sessions or rows
Holds   a session is borrowed for a few statements, between which it holds no table's definition
        (`drainer.points.snapshot.sessions`), so a DDL waits for a chunk and never for a comparison
        Rows that no server sums up come in the form in which one prints them: of tables that row rules change
        (`Edited`), of images and of mirrors. An edited row goes the way of a load and of the stream: read as
        values, encoded as a binlog has it, ruled, decoded. What a rule withholds is not there; what a mask
        shows is compared
Never   asks a session of the moment what a table is: that would end what it sees
Tests   tests/drainer/compare/verify/test_verifying.py, tests/drainer/compare/verify/test_live.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from drainer.changes import canonical
from drainer.compare.verify.column_pairs import ColumnPair
from drainer.compare.verify.result import Name
from drainer.compare.verify.row_differences import Printed
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import WHOLE
from drainer.mysql.chunks.table_size import table_size
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.mysql.table_reader import is_absent, read_table
from drainer.points.snapshot.sessions import SnapshotSessions, prepare_reader
from drainer.txn import INSERT, TableVersion
from tidb_binlog.late_dataclass import dataclass, field, replace
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from drainer.stream.rules.row_rule import RowRule
    from drainer.stream.translate.row_edit import RowEdit

Session = Callable[[], AbstractContextManager[Connection]]
Rows = Callable[[Chunk], Iterator[Printed]]


class Tables(Protocol):
    """What a side says of its tables; one thread's. Raises `SessionError`."""

    def read(self, schema: str, name: str) -> DownstreamTable | None:
        """None for one that it does not show."""
        ...

    def lacks(self, schema: str, name: str, column: str = "") -> bool:
        """Whether a table, or a column, that is not shown is not there."""
        ...

    def rows(self, schema: str, name: str) -> int:
        """How many rows a table has, about."""
        ...

    def close(self) -> None: ...


class RowSource(Protocol):
    """One side. `session` sees the moment."""

    @property
    def session(self) -> Session: ...

    def describe(self) -> Tables:
        """To close."""
        ...


class SourceTable(Protocol):
    """A table whose rows no server sums up."""

    @property
    def changed(self) -> frozenset[str] | None:
        """Columns, in lower case, whose values may be others than its server shows; None: any."""
        ...

    def reader(self, table: DownstreamTable, pairs: Sequence[ColumnPair], session: Session, ts: Ts) -> Rows:
        """Reads a chunk, as the downstream would print it. That raises `SessionError`, `RowError`,
        `DownstreamError`, `Corruption`."""
        ...


class StoredTable(SourceTable, Protocol):
    """One that no server has."""

    def described(self) -> DownstreamTable:
        """As a server would describe it. Raises `Corruption`."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSide:
    """A side that is no server. See `RowSource` and `Tables`."""

    tables: Mapping[Name, StoredTable]

    def session(self) -> NoReturn:
        raise NotImplementedError  # rows are read by the tables

    def describe(self) -> StoredSide:
        return self

    def read(self, schema: str, name: str) -> DownstreamTable:
        return self.tables[schema, name].described()

    def lacks(self, schema: str, name: str, column: str = "") -> bool:
        return True

    def rows(self, schema: str, name: str) -> NoReturn:
        raise NotImplementedError  # who lists the tables knows

    def close(self) -> None:
        pass


class ServerTables:
    """Tables of a server; by a connection of its own."""

    def __init__(self, target: Target) -> None:
        self._connection = connect(target)
        self.close = self._connection.close

    def read(self, schema: str, name: str) -> DownstreamTable | None:
        return read_table(self._connection, schema, name)

    def lacks(self, schema: str, name: str, column: str = "") -> bool:
        return is_absent(self._connection, schema, name, column)

    def rows(self, schema: str, name: str) -> int:
        return table_size(self._connection, schema, name).rows


@dataclass(frozen=True)
class Side:
    """A server. `target`: where its tables are described."""

    target: Target
    session: Session

    def describe(self) -> Tables:
        """See `RowSource`."""
        return ServerTables(self.target)


@dataclass(frozen=True)
class Sides:
    """Both at `ts` of the upstream. `downstream_ts`: of a downstream that is a TiDB, else 0. `held_ms`: for
    how long the Drainer stood still. `waiting`: see `is_waiting`."""

    ts: Ts
    upstream: RowSource
    downstream: RowSource
    close: Callable[[], None]
    downstream_ts: Ts = 0
    held_ms: float = 0.0
    waiting: frozenset[str] = frozenset()

    def of(self, side: int) -> RowSource:
        """`UPSTREAM` or `DOWNSTREAM`."""
        return (self.upstream, self.downstream)[side]


def seen_at(target: Target, ts: Ts) -> Target:
    """Sessions that see a TiDB as it was at a timestamp."""
    return replace(target, variables=(*target.variables, ("tidb_snapshot", f"'{ts}'")))


def sides_at_rest(ts: Ts, upstream: Target, downstream: Target, sessions: int) -> Sides:
    """Both as they are now: one moment only if nothing writes to either, or what does is not compared."""
    above = snapshot(upstream, sessions)
    try:
        below = snapshot(downstream, sessions)
    except BaseException:
        above.close()
        raise

    def close() -> None:
        above.close()
        below.close()

    return Sides(ts, Side(upstream, above.session), Side(downstream, below.session), close)


def snapshot(target: Target, sessions: int) -> SnapshotSessions:
    """Sessions that see a server as it is now."""
    connections: list[Connection] = []
    try:
        for _ in range(sessions):
            connection = connect(target)
            connections.append(connection)
            prepare_reader(connection)
            connection.autocommit(True)
            connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    return SnapshotSessions(connections, what=f"{target.side} {target!r}")


@dataclass(frozen=True, slots=True)
class Edited:
    """An upstream table whose rows are not written as they are. `edit` None: of one beside such a table."""

    version: TableVersion
    edit: RowEdit | None = field(compare=False, repr=False)
    rules: tuple[RowRule, ...] = field(compare=False, repr=False)

    @property
    def changed(self) -> frozenset[str] | None:
        """See `SourceTable`."""
        if any(rule.python is not None for rule in self.rules):
            return None
        return frozenset(mask.column.lower() for rule in self.rules for mask in rule.masks)

    def reader(self, table: DownstreamTable, pairs: Sequence[ColumnPair], session: Session, ts: Ts) -> Rows:
        """See `SourceTable`."""
        select = ValueSelect.of(self.version.info, table, WHOLE)
        plan = compile_table(self.version.info)
        shown = printer(plan, [(pair.name, pair.form) for pair in pairs])

        def read(chunk: Chunk) -> Iterator[Printed]:
            with session() as connection:
                for row in itertools.chain.from_iterable(select.read(connection, chunk)):
                    event = (INSERT, row) if self.edit is None else self.edit.event(INSERT, row, ts)
                    if event is not None:
                        yield shown(plan.decode_insert(event[1]))

        return read


def printer(plan: TablePlan, columns: Iterable[tuple[str, str]]) -> Callable[[Sequence[Any]], Printed]:
    """Shows decoded rows of a plan as a server prints the columns, each of a name and a form."""
    numbers = {column.name.lower(): number for number, column in enumerate(plan.columns)}
    shown = [(numbers[name.lower()], canonical.OF_IMAGE[form]) for name, form in columns]

    def show(values: Sequence[Any]) -> Printed:
        return tuple([None if values[number] is None else form(values[number]) for number, form in shown])

    return show
