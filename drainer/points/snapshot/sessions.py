"""Sessions of a snapshot: several connections that all see a database as it was at one moment.

Out     `session()`: a connection for as long as the block runs; who finds none free waits. From any thread
Holds   where the server can show a past moment again (TiDB), a session that dies is opened anew. Where it
        cannot, the others still show it: T is gone with the last one (`SnapshotLost`)
        Between two blocks no session holds a lock on a table's definition, so an ALTER of the application
        waits for one block, not for the whole snapshot. A table that was altered after T cannot be read at T
        any more where tables have no past
Errors  `SessionError` for what the block's statements met: one that passes by itself is worth another try in
        another block. `SnapshotLost`, `SnapshotTooOld`: not at this T
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from drainer.mysql.connection import Connection, set_if_known
from drainer.mysql.errors import ConnectionLost, SessionError, StatementRefused, safe_text
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.tso import Ts

ALTERED: Final = 1412
TOO_OLD: Final = frozenset({8055, 9006})
AGAIN: Final = "run the same command again: it goes on at a new timestamp"
_WAIT_S: Final = 7 * 24 * 3600
# A reader that is busy with what it got, and a session that waits for work, are not given up by the server.
_READER: Final = (
    ("wait_timeout", str(_WAIT_S)),
    ("net_write_timeout", "3600"),
    ("idle_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout", "0"),
    ("max_statement_time", "0"),
    ("max_execution_time", "0"),
)
_MARK: Final = b"binlog_block"


class SnapshotLost(Unavailable):
    """What was seen at this T cannot be seen any more, at another one it can."""


class SnapshotTooOld(Rejected):
    """The upstream has collected what stood at this T."""


class UpstreamSnapshot(Protocol):
    """The upstream at one moment: exactly the transactions with a commit_ts of at most `ts`."""

    @property
    def ts(self) -> Ts: ...

    @property
    def reopens(self) -> bool:
        """Whether the same T can be opened again, by another process too."""
        ...

    def session(self) -> AbstractContextManager[Connection]: ...

    def cut(self) -> None:
        """From any thread: nobody waits for an answer any more, nor is given a session."""
        ...

    async def close(self, *, keep: bool = False) -> None:
        """`keep`: somebody will come back to this T, so what holds it readable runs out by itself."""
        ...


class SnapshotSessions:
    """`reopen`: opens one at that moment, `count` of them when they are needed; None where that is not
    possible, and `connections` are all. For errors: `what` is read, and what to do `again` once it is gone.
    """

    def __init__(
        self,
        connections: Sequence[Connection] = (),
        *,
        what: str,
        reopen: Callable[[], Connection] | None = None,
        count: int = 0,
        again: str = AGAIN,
    ) -> None:
        self._idle = list(connections)
        self._used: set[Connection] = set()
        self._open = len(self._idle)
        self._missing = count if reopen is not None else 0
        self._reopen = reopen
        self._what = what
        self._again = again
        self._reason = "it is closed"
        self._is_closed = self._is_cut = False
        self._changed = threading.Condition()

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """See the module. `Unavailable` where one that died cannot be opened again now."""
        connection = self._take()
        trouble = "a session was left in the middle of an answer"
        try:
            if self._reopen is None:
                connection.run(b"SAVEPOINT " + _MARK)
            yield connection
            trouble = ""
        except ConnectionLost as error:
            trouble = safe_text(error)
            raise
        except StatementRefused as error:
            trouble = ""
            raise self._refused(error) or error from error.__cause__
        except Exception:
            trouble = ""  # what went wrong is the block's affair
            raise
        finally:
            self._give_back(connection, trouble)

    def cut(self) -> None:
        """Who waits for an answer is told that the session is lost."""
        self.close()
        with self._changed:
            self._is_cut = True
            for connection in self._used:
                connection.cut()

    def close(self) -> None:
        """Idle ones are closed now, others at the end of their block."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        with self._changed:
            while True:
                if self._is_closed or not (self._open or self._missing):
                    raise self._lost()
                if self._idle:
                    self._used.add(connection := self._idle.pop())
                    return connection
                if self._missing:
                    self._missing -= 1
                    break
                self._changed.wait()
        assert self._reopen is not None
        try:
            connection = self._reopen()
        except BaseException:
            with self._changed:
                self._missing += 1
                self._changed.notify()
            raise
        with self._changed:
            self._open += 1
            self._used.add(connection)
            if self._is_cut:
                connection.cut()
        return connection

    def _give_back(self, connection: Connection, trouble: str) -> None:
        """Let go of the definitions of the tables that were read; a session in trouble is given up."""
        if not trouble and self._reopen is None:
            try:
                connection.run(b"ROLLBACK TO SAVEPOINT " + _MARK)
            except SessionError as error:
                trouble = safe_text(error)
        with self._changed:
            self._used.discard(connection)
            if not trouble and not self._is_closed and connection.open:
                self._idle.append(connection)
            else:
                self._open -= 1
                self._missing += self._reopen is not None
                self._reason = trouble or self._reason
            is_idle = connection in self._idle
            self._changed.notify_all()
        if not is_idle:
            connection.close()

    def _lost(self) -> SnapshotLost:
        return SnapshotLost(f"{self._what} cannot be read any more: {self._reason}", hint=self._again)

    def _refused(self, error: StatementRefused) -> SnapshotLost | SnapshotTooOld | None:
        if error.number == ALTERED and self._reopen is None:
            return SnapshotLost(
                f"{self._what}: a table was altered after that moment: {safe_text(error)}", hint=self._again
            )
        if error.number in TOO_OLD:
            return SnapshotTooOld(f"{self._what} is collected: {safe_text(error)}", hint=self._again)
        return None


def prepare_reader(connection: Connection) -> None:
    """Settings of a session that only reads, for as long as it takes."""
    connection.keep_alive()
    for name, value in _READER:
        set_if_known(connection, name, value)


async def read_beside(
    reading: Coroutine[Any, Any, object], snapshot: UpstreamSnapshot, stop: Callable[[], object]
) -> None:
    """Wait for what reads the snapshot on threads. Cancelled: that is stopped, and ends first."""
    task = asyncio.create_task(reading)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        snapshot.cut()  # a server that hangs would keep all of this waiting
        with contextlib.suppress(BaseException):
            await task
        raise
