"""Downstream snapshot: the downstream's tables at one timestamp T of the stream, while rows go on.

Order   1. sessions are connected
        2. the Drainer holds its stream at T
        3. START TRANSACTION WITH CONSISTENT SNAPSHOT in each session; of a TiDB in one, whose timestamp the
           others read at
        4. the Drainer goes on, and says that it had stood still all the time
        5. each session looks, in its snapshot, how far the lanes are
Holds   5 does not rest on anybody's clock: each transaction of a lane moves the lane's position and checks
        the Drainer's epoch. A snapshot with that epoch and no lane above T has nothing above T, whichever
        process wrote meanwhile; that all up to T was there is what 2 says
Stops   what passes by itself (a restart, a take-over, a pump that is gone) is tried again for
        `Patience.all_s`, then said
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from drainer.checkpoint.store import SIDE_LANES
from drainer.config.downstream import target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused, TransientError, safe_text
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.dialect import Dialect
from drainer.points.snapshot.drainer_hold import DrainerHold, HeldAt, LetGo
from drainer.points.snapshot.sessions import SnapshotSessions, prepare_reader
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import DownstreamError, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("snapshot")
T = TypeVar("T")

_MARK: Final = b"binlog_look"


@dataclass(frozen=True, slots=True)
class Patience:
    """`limit_s`: the Drainer goes on after so long by itself. `wait_s`: how long it may take to the place.
    `all_s`: until it is given up."""

    limit_s: float = 2.0
    wait_s: float = 5.0
    all_s: float = 120.0


PATIENT: Final = Patience()


class DownstreamSnapshot:
    """`downstream_ts`: where a TiDB stood by its own clock, 0 for others. `waiting`: tables of the upstream
    that cannot be compared, since rows of theirs wait for a decision. `held_ms`: for how long rows were held
    still."""

    def __init__(self, at: HeldAt, downstream_ts: Ts, held_ms: float, sessions: SnapshotSessions) -> None:
        self.ts = at.ts
        self.downstream_ts = downstream_ts
        self.waiting = at.waiting
        self.held_ms = held_ms
        self._sessions = sessions

    def session(self) -> AbstractContextManager[Connection]:
        """From any thread. Raises `SnapshotLost` when no session shows T any more."""
        return self._sessions.session()

    async def close(self) -> None:
        await asyncio.to_thread(self._sessions.close)


async def open_where_it_is(
    settings: DrainerConfig, drainer: DrainerHold, sessions: int, patience: Patience
) -> DownstreamSnapshot:
    """At the place where the stream is now, tried once. Raises `Unavailable`, `Rejected` and
    `DownstreamError`."""
    async with opening(settings, sessions) as readers:
        held = await drainer.hold(limit_s=patience.limit_s, wait_s=patience.wait_s)
        return await readers.begin(drainer, held)


@dataclass(slots=True)
class Readers:
    """Sessions before their snapshot is opened, and then."""

    target: Target
    schema: str
    connections: list[Connection] = field(default_factory=list)

    async def begin(self, drainer: DrainerHold, held: HeldAt) -> DownstreamSnapshot:
        """While the stream is held; it goes on when this returns or raises."""
        try:
            downstream_ts = await asyncio.to_thread(self._start)
        finally:
            let_go = await drainer.release(held.token)
        return await asyncio.to_thread(self._checked, held, let_go, downstream_ts)

    def _start(self) -> int:
        """The timestamp of a TiDB, at which more sessions can be opened; 0 for others."""
        if not self.is_tidb:
            for connection in self.connections:
                connection.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return 0
        first, *others = self.connections
        self.connections = []
        first.begin()
        ((at,),) = first.rows(b"SELECT @@tidb_current_ts")
        first.rollback()
        for connection in (first, *others):
            connection.autocommit(True)
            connection.run(b"SET SESSION tidb_snapshot='%d'" % int(at))
            self.connections.append(connection)
        return int(at)

    def _checked(self, held: HeldAt, let_go: LetGo, downstream_ts: Ts) -> DownstreamSnapshot:
        if not let_go.valid:
            raise Unavailable(f"the drainer went on before the snapshot was open: {let_go.why}")
        for connection in self.connections:
            look(connection, self.schema, held, is_past=downstream_ts > 0)
        sessions = SnapshotSessions(
            self.connections,
            what=f"the downstream at {held.ts}",
            reopen=(lambda: _at(self.target, downstream_ts)) if downstream_ts else None,
        )
        self.connections = []
        return DownstreamSnapshot(held, downstream_ts, let_go.held_ms, sessions)

    @property
    def is_tidb(self) -> bool:
        return self.connections[0].dialect is Dialect.TIDB

    def connect(self, sessions: int) -> None:
        for _ in range(sessions):
            connection = connect(self.target)
            self.connections.append(connection)
            prepare_reader(connection)
            connection.autocommit(True)
            connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def close(self) -> None:
        """What no snapshot has taken."""
        for connection in self.connections:
            connection.close()


@contextlib.asynccontextmanager
async def opening(settings: DrainerConfig, sessions: int) -> AsyncIterator[Readers]:
    """Sessions downstream, connected; those that no snapshot has taken are closed at the end."""
    readers = Readers(target_of(settings), settings.checkpoint_schema)
    try:
        await asyncio.to_thread(readers.connect, sessions)
        yield readers
    finally:
        await asyncio.to_thread(readers.close)


def look(connection: Connection, schema: str, held: HeldAt, *, is_past: bool) -> None:
    """See that the snapshot has nothing above where the stream was held. Raises `Unavailable`. `is_past`: it
    takes no locks on tables' definitions."""
    mine = b" WHERE cluster_id=%d" % held.cluster_id
    if not is_past:
        connection.run(b"SAVEPOINT " + _MARK)
    try:
        epochs = connection.rows(b"SELECT epoch FROM " + qualified(schema, "drainer_state") + mine)
        lanes = connection.rows(
            b"SELECT applied_ts FROM " + qualified(schema, "lanes") + mine + b" AND lane<%d" % SIDE_LANES
        )
    except StatementRefused as error:
        raise Rejected(
            f"the drainer's tables in {schema} downstream cannot be read: {safe_text(error)}",
            hint=f"GRANT SELECT ON {schema}.* to the user of [syncer.to]",
        ) from None
    if not is_past:
        connection.run(b"ROLLBACK TO SAVEPOINT " + _MARK)
    if [int(epoch) for (epoch,) in epochs] != [held.epoch]:
        raise Unavailable("another drainer took over while the snapshot was opened")
    if any(int(ts) > held.ts for (ts,) in lanes):
        raise Unavailable(f"rows above {held.ts} were written while the snapshot was opened")


def _at(target: Target, ts: Ts) -> Connection:
    """A session that reads at a timestamp of the downstream, a TiDB."""
    connection = connect(target)
    try:
        connection.autocommit(True)
        prepare_reader(connection)
        connection.run(b"SET SESSION tidb_snapshot='%d'" % ts)
    except BaseException:
        connection.close()
        raise
    return connection


async def persistently(once: Callable[[], Awaitable[T]], all_s: float, failed: str) -> T:
    """Try again what passes by itself, for so long. Raises the last `Unavailable`, and at once what does not
    pass."""
    clock, backoff = SystemClock(), Backoff(0.05, 2.0)
    end_s = clock.monotonic_s() + all_s
    while True:
        try:
            return await once()
        except (Unavailable, TransientError) as error:
            said = error.message if isinstance(error, Unavailable) else safe_text(error)
            hint = error.hint if isinstance(error, Unavailable) else "is the downstream running?"
        except StatementRefused as error:
            raise DownstreamError(
                f"{failed}: the downstream says {safe_text(error)}",
                hint="correct it, then run the same command again",
            ) from None
        pause_s = backoff.next_s()
        if clock.monotonic_s() + pause_s > end_s:
            raise Unavailable(f"{failed} within {all_s:g} s: {said}", hint=hint)
        logger.info("both sides at one moment: tried again", reason=said)
        await asyncio.sleep(pause_s)
