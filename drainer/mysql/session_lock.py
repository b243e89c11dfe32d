"""Session lock: a user lock names what a downstream session is for, so that a drainer's successor can end it.

Why    a drainer that is frozen, or cut off, leaves sessions behind. One in the middle of a transaction keeps
       the row of its lane locked for as long as the server waits for a silent client (8 hours by default):
       its successor could not raise the epoch. One that is about to run a DDL would run it when the drainer
       wakes up, and no epoch guards a statement that commits by itself
How    every session takes a user lock (GET_LOCK) named after its role, which ends with the session and tells
       others which session that is (IS_USED_LOCK). A user may KILL his own sessions
Order  a successor ends lanes and store, raises the epoch, then ends an idle DDL session. A drainer that lost
       a session connects again, claims, then reads the epoch: at no time could both continue
Never  ends a statement that runs: a DDL that is under way is finished by the server, whichever drainer sent
       it, and waited for. Never fails a start where the downstream has no such locks: its sessions end later
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused, safe_text
from drainer.mysql.literal.quoting import string_literal
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log

STORE: Final = "store"
DDL: Final = "ddl"
RELEASE: Final = "release"
JOIN: Final = "join"
"""Roles of sessions that run DDL: in the stream's order, for tables that waited, and for those that join."""
_NO_SUCH_SESSION: Final = 1094
ENDING_S: Final = 5
"""Within it a server has ended the session of a process that is gone or was killed."""
_IDLE: Final = "Sleep"

_logger = log.get("session_claim")


@dataclass(frozen=True, slots=True)
class Claims:
    """The locks of one cluster's sessions. `schema` is where its checkpoint is."""

    schema: str
    cluster_id: int

    def name(self, role: str | int) -> str:
        """The user lock of a role, or of a lane by number; at most 64 characters, as servers ask for."""
        role = role if isinstance(role, str) else f"lane-{role}"
        return f"binlog-{crc32(self.schema.encode()):08x}-{self.cluster_id}-{role}"

    def reclaim(self, connection: Connection, role: str | int, check_ours: Callable[[], None]) -> None:
        """Mark the session that a drainer uses from now on for one of its roles.

        A session that it lost, and that the server has not given up yet, is ended: it may hold a lock
        for hours. Not before `check_ours`, which raises when a newer drainer has taken over.
        """
        name = self.name(role)
        is_marked = claim(connection, name)
        check_ours()
        if not is_marked and end(connection, [name]):
            claim(connection, name, wait_s=ENDING_S)

    def succeed_store(self, connection: Connection, lanes: Iterable[int]) -> None:
        """End what a predecessor left in the middle of a transaction, and mark this session in its place."""
        end(connection, [self.name(STORE), *(self.name(lane) for lane in lanes)])
        claim(connection, self.name(STORE), wait_s=ENDING_S)

    def holders(self, connection: Connection, lanes: Iterable[int]) -> list[int]:
        """Connection ids of the sessions, other than this one, that have any of the locks."""
        roles: tuple[str | int, ...] = (STORE, DDL, RELEASE, JOIN, *lanes)
        return [holder for role in roles if (holder := holder_of(connection, self.name(role)))]

    def end_idle_ddl(self, connection: Connection) -> None:
        """After the epoch was raised: before, its drainer would connect again and find nothing changed."""
        for role in (DDL, RELEASE, JOIN):
            end_if_idle(connection, self.name(role))

    def succeed_ddl(self, connection: Connection, role: str) -> None:
        """Mark this session. Raises `Unavailable` while a predecessor's DDL runs."""
        succeed(connection, self.name(role))


def claim(connection: Connection, name: str, *, wait_s: int = 0) -> bool:
    """Mark this session; False if another session has the name, or the downstream has no such locks.

    `wait_s`: for a session that was killed, and is about to end.
    """
    try:
        ((taken,),) = connection.rows(b"SELECT GET_LOCK(%s, %d)" % (string_literal(name), wait_s))
    except StatementRefused as error:
        _logger.debug("the downstream has no user locks", reason=safe_text(error))
        return False
    return bool(taken)


def end(connection: Connection, names: Iterable[str]) -> list[int]:
    """End the sessions that have these names, whatever they do; their connection ids. Own ones stay."""
    return [
        holder
        for name in names
        if (holder := holder_of(connection, name)) and _kill(connection, holder, name)
    ]


def end_if_idle(connection: Connection, name: str) -> bool:
    """End the session that has this name unless a statement runs in it; True if none has it any more."""
    holder = holder_of(connection, name)
    if not holder:
        return True
    statement = b"SELECT COMMAND FROM information_schema.PROCESSLIST WHERE ID=%d" % holder
    rows = connection.rows(statement)
    if rows and rows[0][0] != _IDLE:
        return False
    return not rows or _kill(connection, holder, name)


def succeed(connection: Connection, name: str) -> None:
    """Take a name over from a session in which nothing runs. Raises `Unavailable` while something does."""
    if claim(connection, name):
        return
    if not end_if_idle(connection, name):
        raise Unavailable(
            "a statement of this drainer's predecessor still runs downstream",
            hint="it is waited for; SHOW PROCESSLIST shows it",
        )
    claim(connection, name, wait_s=ENDING_S)


def holder_of(connection: Connection, name: str) -> int:
    """Connection id of another session that has the name; 0 if there is none, or it cannot be known."""
    statement = b"SELECT IS_USED_LOCK(%s), CONNECTION_ID()" % string_literal(name)
    try:
        ((holder, own),) = connection.rows(statement)
    except StatementRefused:
        return 0
    return 0 if holder is None or holder == own else int(holder)


def _kill(connection: Connection, holder: int, name: str) -> bool:
    try:
        connection.run(b"KILL CONNECTION %d" % holder)
    except StatementRefused as error:
        if error.number == _NO_SUCH_SESSION:
            return True
        _logger.warning(
            "a session of this drainer's predecessor cannot be ended",
            name=name,
            reason=safe_text(error),
        )
        return False
    _logger.warning("ended a session of this drainer's predecessor", name=name, connection_id=holder)
    return True
