"""Sides: upstream and downstream as they were at one moment, to read from any thread.

Out     `Sides`: sessions of either side, connections to ask what its tables are
Holds   a session is borrowed for a few statements, between which it holds no table's definition
        (`drainer.points.snapshot.sessions`), so a DDL waits for a chunk and never for a comparison
Never   asks a session of the moment what a table is: that would end what it sees
Tests   tests/drainer/compare/verify/test_verifying.py
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from drainer.mysql.connection import Connection, Target, connect
from drainer.points.snapshot.sessions import SnapshotSessions, prepare_reader


@dataclass(frozen=True)
class Side:
    """`target`: where its tables are described."""

    target: Target
    session: Callable[[], AbstractContextManager[Connection]]

    def describe(self) -> Connection:
        """A connection of one's own, to close."""
        return connect(self.target)


@dataclass(frozen=True)
class Sides:
    """Both at `ts` of the upstream. `downstream_ts`: of a downstream that is a TiDB, else 0. `held_ms`: for
    how long the Drainer stood still. `waiting`: tables of upstream, in lower case, of which rows wait."""

    ts: int
    upstream: Side
    downstream: Side
    close: Callable[[], None]
    downstream_ts: int = 0
    held_ms: float = 0.0
    waiting: frozenset[str] = frozenset()

    def of(self, side: int) -> Side:
        return (self.upstream, self.downstream)[side]


def seen_at(target: Target, ts: int) -> Target:
    """Sessions that see a TiDB as it was at a timestamp."""
    return replace(target, variables=(*target.variables, ("tidb_snapshot", f"'{ts}'")))


def sides_at_rest(ts: int, upstream: Target, downstream: Target, sessions: int) -> Sides:
    """Both as they are now: one moment only if nothing writes to either, or what does is not compared."""
    above = _snapshot(upstream, sessions)
    try:
        below = _snapshot(downstream, sessions)
    except BaseException:
        above.close()
        raise

    def close() -> None:
        above.close()
        below.close()

    return Sides(ts, Side(upstream, above.session), Side(downstream, below.session), close)


def _snapshot(target: Target, sessions: int) -> SnapshotSessions:
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
