"""Downstream: a real MariaDB whose sessions live in the world: late, cut off, broken and ended as it says.

Why    a server of our own would show what its author believes of MySQL; this one is asked. What is drawn is
       when a statement arrives, and whether its answer does
Holds  nothing waits in the server: who would wait for a lock is refused at once, and asks again in virtual
       time. A session that ends, by itself, with its process or by KILL, has ended there before anything else
       happens

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any, Final

import pymysql
from pymysql.constants import CLIENT

from binlog_playground.check.downstream import SYSTEM_SCHEMAS, quote
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import SessionError
from tests.binary_log import BinlogServer
from tests.sim.life import LIFE, Life
from tests.sim.network import Network
from tests.sim.scheduling import Killed, SimLoop

HOST: Final = "db"
_LOCKED: Final = 1205
_DEADLOCK: Final = 1213
_LOST: Final = 2013
_ASKS_AGAIN_S: Final = 0.05
_DEADLOCK_S: Final = 5.0
_CONNECT_S: Final = 5.0
_SLOW_S: Final = 0.3
_SETTINGS: Final = (
    *("innodb_lock_wait_timeout=0", "lock_wait_timeout=0", "read_only=0"),
    *("innodb_stats_persistent=0", "innodb_stats_auto_recalc=0"),  # whose plans are as of when they were made
)
_USER_LOCK: Final = re.compile(rb"(GET_LOCK\(.*), \d+\)")
_SAYS_NUMBERS: Final = re.compile(rb"KILL|PROCESSLIST")  # of sessions, which are others in each run
_OF_INNODB: Final = re.compile(rb"-- =\d+|about \d+ rows")  # numbers of tables, and estimates of their sizes
_SHOWN: Final = 400
_KILLS: Final = re.compile(rb"KILL CONNECTION (\d+)")
_RARE: Final = re.compile(
    rb"(?:ALTER|CREATE|DROP|TRUNCATE) (?!.*`?tidb_binlog)|RENAME |UPDATE `tidb_binlog`.*intent"
)


_TIMES: Final = 3.0


def _times(sql: bytes) -> float:
    """What moves tables is struck so much more often than other DDL: run twice, it does harm."""
    return _TIMES if sql.startswith(b"RENAME") else 1.0


class Downstream:
    """`pause`: what it takes to reach `HOST`."""

    def __init__(
        self, server: BinlogServer, network: Network, loop: SimLoop, pause: Callable[[], None]
    ) -> None:
        self.server = server
        self.network = network
        self.loop = loop
        self.pause = pause
        self.lost_commits = (
            0.0  # the share of COMMITs whose session ends before them, or before they are answered
        )
        self.struck = 0.0  # the share of DDL, and of what is stored about them, at which `strike` is called
        self.slow_sessions = 0.0  # the share of sessions whose statements and answers are late
        self.strike: Callable[[Life], None] = lambda life: None
        self.sessions: dict[Session, None] = {}
        self._left: dict[Session, None] = {}  # whose clients are gone, which the server has not heard
        self.admin = server.connect()
        self.admin.run(b"SET SESSION sql_log_bin=0")  # what the world does is nobody's transaction
        self._clean()

    def _clean(self) -> None:
        own = self.admin.session_id
        for (session_id,) in self.admin.rows(
            b"SELECT ID FROM information_schema.PROCESSLIST WHERE USER<>'system user'"
        ):
            if session_id != own:
                self.end(session_id)
        for setting in _SETTINGS:
            self.admin.run(f"SET GLOBAL {setting}".encode())
        self.admin.run(b"SET SESSION lock_wait_timeout=600")  # the server itself may still work on a table
        for (name,) in self.admin.rows(b"SHOW DATABASES"):
            if name not in SYSTEM_SCHEMAS or name.startswith("tidb_binlog"):
                self.admin.run(f"DROP DATABASE {quote(name)}".encode())
        self.admin.run(b"SET SESSION lock_wait_timeout=DEFAULT")

    def open(self, target: Target) -> Session:
        """A session of the process that asks."""
        host = LIFE.get().host
        self.pause()
        if not self.reached(host, _CONNECT_S):
            raise pymysql.err.OperationalError(2003, "Can't connect to MySQL server (timed out)")
        return Session(self, target)

    def reached(self, host: str, most_s: float) -> bool:
        """Wait until nothing is between it and the server."""
        end_s = self.loop.time() + most_s
        while self.network.is_cut(host, HOST):
            if self.loop.time() >= end_s or self.loop.baton.running is None:
                return False
            self.loop.baton.sleep(_ASKS_AGAIN_S)
        return True

    def end(self, session_id: int) -> None:
        """At the server."""
        with contextlib.suppress(SessionError):  # it is gone
            self.admin.run(b"KILL CONNECTION %d" % session_id)
        self.until_gone(session_id)

    def until_gone(self, session_id: int) -> None:
        for session in self.sessions:
            session.is_ended |= session.number == session_id
        query = b"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID=%d" % session_id
        while self.admin.rows(query):
            time.sleep(0.0002)

    def drop(self, life: Life, *, silently: bool) -> None:
        """A process is gone; `silently`: its host with it, so that the server does not know."""
        for session in [session for session in self.sessions if session.life is life]:
            self.sessions.pop(session)
            if silently:
                self._left[session] = None
            else:
                self.end(session.number)

    def leave(self, session: Session) -> None:
        """Its client gave up, and cannot say so."""
        self.sessions.pop(session, None)
        self._left[session] = None

    def notice(self) -> None:
        """The server ends the sessions that have no client any more."""
        left, self._left = self._left, {}
        for session in left:
            self.end(session.number)

    def reset(self, host: str = "") -> None:
        """Connections of a host break, or all, as when the server is started again."""
        for session in [session for session in self.sessions if host in ("", session.life.host)]:
            self.end(session.number)


class Session(Connection):
    """What a process has. Its errors are those of PyMySQL, with which the product's begin."""

    def __init__(self, downstream: Downstream, target: Target) -> None:
        self._downstream = downstream
        self.life = LIFE.get()
        self.number = 0
        self.is_ended = False  # at the server; its client hears of it when it waits for an answer
        self._sent: tuple[int, Any] = (0, b"")
        self._is_struck = False
        self._is_slow = downstream.loop.rng.random() < downstream.slow_sessions
        self._timeout_s = target.read_timeout_s or 3600.0
        super().__init__(
            unix_socket=downstream.server.socket,
            user=target.user,
            password=target.password.encode(),
            charset="utf8mb4",
            autocommit=False,
            client_flag=CLIENT.FOUND_ROWS,
            ssl_disabled=True,
        )
        self.number = self.session_id
        downstream.sessions[self] = None

    def _execute_command(self, command: int, sql: Any) -> None:
        if not self.life.alive:
            raise Killed
        if isinstance(sql, bytes | bytearray):
            sql = _USER_LOCK.sub(rb"\1, 0)", bytes(sql))
        if self.number:
            self._rare(sql)
            self._travel()
        self._sent = command, sql
        if self.number and isinstance(sql, bytes) and not _SAYS_NUMBERS.search(sql):
            self._downstream.network.trace(self.life, "sends", _OF_INNODB.sub(b"", sql)[:_SHOWN])
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        return self._answered(lambda: super(Session, self)._read_query_result(unbuffered))  # type: ignore[misc]

    def _read_ok_packet(self) -> Any:
        return self._answered(super()._read_ok_packet)  # type: ignore[misc]

    def _answered(self, read: Callable[[], Any]) -> Any:
        if not self.number:
            return read()
        loop = self._downstream.loop
        end_s = loop.time() + _DEADLOCK_S
        while True:
            try:
                answer = read()
                break
            except pymysql.err.OperationalError as error:
                if error.args[0] != _LOCKED:
                    self._travel()
                    raise
            if loop.time() > end_s:
                super()._execute_command(3, b"ROLLBACK")  # type: ignore[misc]
                super()._read_ok_packet()  # type: ignore[misc]
                self._travel()
                raise pymysql.err.OperationalError(_DEADLOCK, "Deadlock found when trying to get lock")
            loop.baton.sleep(_ASKS_AGAIN_S)
            super()._execute_command(*self._sent)  # type: ignore[misc]
        sql = self._sent[1]
        if sql == "COMMIT" and loop.rng.random() < self._downstream.lost_commits:
            self._downstream.end(self.number)
        if self._is_struck:
            self._is_struck = False
            self._downstream.strike(self.life)
        killed = _KILLS.match(sql) if isinstance(sql, bytes) else None
        if killed:
            self._downstream.until_gone(int(killed[1]))
        self._travel()
        return answer

    def _rare(self, sql: Any) -> None:
        """Before what is seldom sent the session ends, or its process, or that once it is done."""
        rng, downstream = self._downstream.loop.rng, self._downstream
        if sql == "COMMIT" and rng.random() < downstream.lost_commits:
            downstream.end(self.number)
        elif isinstance(sql, bytes) and _RARE.match(sql) and rng.random() < downstream.struck * _times(sql):
            self._is_struck = rng.random() < 0.5
            if not self._is_struck:
                downstream.strike(self.life)

    def _travel(self) -> None:
        """There, or back."""
        self._downstream.pause()
        if self._is_slow and self._downstream.slow_sessions:
            self._downstream.loop.baton.sleep(self._downstream.loop.rng.random() * _SLOW_S)
        if not self._downstream.reached(self.life.host, self._timeout_s):
            raise pymysql.err.OperationalError(
                _LOST, "Lost connection to MySQL server during query (timed out)"
            )
        if self.is_ended:
            raise pymysql.err.OperationalError(_LOST, "Lost connection to MySQL server during query")

    def close(self) -> None:
        if not self.life.alive or self not in self._downstream.sessions:
            return
        if self._downstream.network.is_cut(self.life.host, HOST):
            self._downstream.leave(self)
            return
        self._downstream.sessions.pop(self)
        super().close()
        self._downstream.until_gone(self.number)
