"""Snapshot of a publisher's database: a MySQL or MariaDB, and the timestamp T of the stream where it stands.

A program commits in its own database and publishes what it did: it changes rows, marks the transaction in the
outcome table, prepares (rows go to a pump, the commit_ts is drawn), and commits in the database.

Order   1. sessions are opened, one of them for the lock
        2. LOCK TABLES <outcome table> WRITE: granted once no transaction that has marked is open, and new
           marks wait until it is given back
        3. START TRANSACTION WITH CONSISTENT SNAPSHOT in each of the others
        4. T is drawn
        5. UNLOCK TABLES: it was held all the time if this succeeds, else all of it is done again

Why every transaction is in exactly one of both, this snapshot and the stream above T
        One that the snapshot has committed before 3. It had marked, so it was not open at 2: its COMMIT was
        before the lock, and its commit_ts was drawn before its COMMIT. T was drawn later: commit_ts < T.
        One that the snapshot has not committed before 3, so it had not marked by 2 (or it would have been
        waited for), nor up to 5. Its commit_ts is drawn after its mark, so after T: commit_ts > T.
        All sessions of 3 see the same, as nothing that is published can commit between them.
        The mark waits for the lock before the commit_ts is drawn, so no timestamp is held up by it.

Holds   a write lock, not a read lock: new marks would be granted before a read lock, for ever where programs
        write all the time. Marks wait for `Patience.wait_s` at most for a transaction that
        stays open; then they go on, and the lock is tried again
Never   takes a replica: what it has not got yet would be in neither. Nor a member of a Galera cluster, where
        others would mark on another node
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import (
    NoSuchTable,
    SessionError,
    StatementRefused,
    TransientError,
    Trouble,
    safe_text,
)
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotSessions, prepare_reader
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import TimestampOracle

logger = log.get("snapshot")

DRAW_S: Final = 2.0
_OPENING: Final = "binlog-snapshot"
_OTHERS_S: Final = 5
"""How long another opening is waited for; who needs longer tries again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """`wait_s`: for how long new marks wait together with the lock; `pause_s`: for how long they do not."""

    wait_s: int = 3
    tries: int = 20
    pause_s: float = 0.5


class PublisherSnapshot:
    """Made by `open_publisher_snapshot`."""

    reopens: Final = False

    def __init__(self, ts: Ts, sessions: SnapshotSessions) -> None:
        self.ts = ts
        self._sessions = sessions

    def session(self) -> AbstractContextManager[Connection]:
        return self._sessions.session()

    def cut(self) -> None:
        self._sessions.cut()

    async def close(self, *, keep: bool = False) -> None:
        await asyncio.to_thread(self._sessions.close)


async def open_publisher_snapshot(
    target: Target,
    outcome_table: str,
    oracle: TimestampOracle,
    sessions: int,
    patience: Patience = Patience(),  # noqa: B008  frozen
    *,
    before_draw: Callable[[], Awaitable[None]] | None = None,
) -> PublisherSnapshot:
    """Now: such a database shows no past. `before_draw` is awaited while marks wait, before T is drawn.

    Raises `Unavailable`, `SnapshotLost`, `Rejected`.
    """
    opening = _Opening(target, outcome_table, patience.wait_s)
    try:
        await asyncio.to_thread(opening.connect, sessions)
        for number in range(1, patience.tries + 1):
            if await asyncio.to_thread(opening.lock):
                return await _under_lock(opening, oracle, before_draw)
            logger.warning(
                "a transaction that has marked is still open: the outcome table cannot be locked",
                table=outcome_table,
                waited_s=patience.wait_s,
                left=patience.tries - number,
            )
            await asyncio.sleep(patience.pause_s)
        raise Unavailable(
            f"{outcome_table} cannot be locked: some transaction that has marked stays open",
            hint="SHOW PROCESSLIST shows who; end it, then run the same command again",
        )
    except BaseException:
        await asyncio.to_thread(opening.abandon)
        raise


async def _under_lock(
    opening: _Opening, oracle: TimestampOracle, before_draw: Callable[[], Awaitable[None]] | None
) -> PublisherSnapshot:
    try:
        await asyncio.to_thread(opening.begin)
        if before_draw is not None:
            await before_draw()
        async with asyncio.timeout(DRAW_S):
            ts = await oracle.timestamp()
    except TimeoutError:
        raise Unavailable(
            f"the upstream gave no timestamp within {DRAW_S:g} s, for which {opening.table} was locked",
            hint="is etcd well? then run the same command again",
        ) from None
    await asyncio.to_thread(opening.unlock)
    sessions = SnapshotSessions(opening.readers, what=f"the upstream's database at {ts}")
    return PublisherSnapshot(ts, sessions)


@dataclass(slots=True)
class _Opening:
    """The steps on the database; each runs on a thread."""

    target: Target
    table: str
    wait_s: int
    readers: list[Connection] = field(default_factory=list)
    locker: Connection | None = None

    def connect(self, sessions: int) -> None:
        self.locker = connect(self.target)
        self.locker.autocommit(True)
        _check_primary(self.locker, self.target)
        # Two that wait for the table in turns would leave marks no moment in which nobody waits.
        if _answer(self.locker, f"SELECT GET_LOCK('{_OPENING}', {_OTHERS_S})") != 1:
            raise Unavailable(
                f"another snapshot of upstream {self.target!r} is being opened",
                hint="one load or comparison at a time; run the same command again",
            )
        self.locker.run(b"SET SESSION lock_wait_timeout = %d" % self.wait_s)
        for _ in range(sessions):
            reader = connect(self.target)
            self.readers.append(reader)
            prepare_reader(reader)
            reader.autocommit(True)
            reader.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def lock(self) -> bool:
        """False: a transaction that has marked is open."""
        assert self.locker is not None
        try:
            self.locker.run(b"LOCK TABLES %b WRITE" % self._quoted())
        except NoSuchTable:
            raise Rejected(
                f"upstream {self.target!r} has no table {self.table}",
                hint="outcome-table in [syncer.from] names the table of OutcomeTable.create()",
            ) from None
        except TransientError as error:
            if error.trouble is Trouble.LOCK:
                return False
            raise Unavailable(
                f"upstream {self.target!r}: {safe_text(error)}", hint="run the same command again"
            ) from None
        except StatementRefused as error:
            raise Rejected(
                f"upstream {self.target!r} does not lock {self.table}: {safe_text(error)}",
                hint=f"GRANT LOCK TABLES, SELECT, INSERT on it to {self.target.user}",
            ) from None
        return True

    def begin(self) -> None:
        for reader in self.readers:
            try:
                reader.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
            except SessionError as error:
                raise _interrupted(self.target, error) from None

    def unlock(self) -> None:
        """Raises `SnapshotLost` if the lock was not held up to now."""
        assert self.locker is not None
        try:
            self.locker.run(b"UNLOCK TABLES")
        except SessionError as error:
            raise _interrupted(self.target, error) from None
        self.locker.close()

    def abandon(self) -> None:
        for connection in (self.locker, *self.readers):
            if connection is not None:
                connection.close()

    def _quoted(self) -> bytes:
        return b".".join(b"`%b`" % part.encode() for part in self.table.split("."))


def _interrupted(target: Target, error: SessionError) -> SnapshotLost:
    return SnapshotLost(
        f"upstream {target!r} ended a session while the snapshot was taken: {safe_text(error)}",
        hint="run the same command again",
    )


def _check_primary(connection: Connection, target: Target) -> None:
    """Raises `Rejected` where a lock here does not hold up every transaction."""
    if _answer(connection, "SELECT @@GLOBAL.read_only") == 1:
        raise Rejected(
            f"upstream {target!r} is read-only: what it lacks of its primary would be lost",
            hint="name the server that programs write to in [syncer.from]",
        )
    has_galera = _answer(connection, "SELECT @@wsrep_on") == 1
    if has_galera or _answer(connection, "SELECT @@group_replication_single_primary_mode") == 0:
        raise Rejected(
            f"upstream {target!r} is one of several that programs write to, and is locked alone",
            hint="stop the programs, or let them write to one server, and name it without the cluster",
        )


def _answer(connection: Connection, question: str) -> object:
    """The one value; None where the server does not know it."""
    try:
        rows = connection.rows(question.encode())
    except StatementRefused:
        return None
    return rows[0][0] if rows else None
