"""Application: a database of its own in which a program makes its changes, and whose commits decide.

Drives  a MariaDB that is no downstream; `OutcomeTable` in it
Owns    the sessions: one for each transaction under way, kept for the next one
Holds   while a DDL runs there and until it is published, a transaction with a mark is open: who locks the
        outcome table to draw a timestamp waits for it, so at no such timestamp the stream's definition of a
        table is another one than the database's
Never   keeps a session that met an error
Tests   tests/rig/workload/test_application.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection
from drainer.mysql.errors import StatementRefused
from pumpclient.publish.outcome_table import OutcomeTable
from tests.rig.workload.model import Change, Row
from tests.rig.workload.statements import Statement, insertion, statement
from tests.rig.workload.tables import Table
from tidb_binlog.errors import Corruption

OUTCOMES: Final = "binlog_outcome"
LOCK_WAIT_S: Final = 5
ROWS_A_STATEMENT: Final = 200
_CLIENT_FOUND_ROWS: Final = 2


class ApplicationSession(Connection):
    """A session whose errors are ours, with the name that a DB-API module has for a key that is taken."""

    IntegrityError = StatementRefused  # type: ignore[assignment]


class Application:
    """A program's database on a server, with its outcome table."""

    def __init__(self, server: MariaDbServer, schema: str) -> None:
        self.schema = schema
        self.outcomes = OutcomeTable(self.connect, self.outcome_table)
        self._server = server
        self._idle: deque[ApplicationSession] = deque()

    @property
    def outcome_table(self) -> str:
        """Its name with its database's."""
        return f"{self.schema}.{OUTCOMES}"

    def connect(self) -> ApplicationSession:
        """A new session with a transaction for every first statement."""
        session = ApplicationSession(
            host=self._server.host,
            port=self._server.port,
            user=self._server.user,
            password=self._server.password,
            charset="utf8mb4",
            autocommit=False,
            client_flag=_CLIENT_FOUND_ROWS,
            connect_timeout=10,
            ssl_disabled=True,  # loopback
        )
        session.run(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        session.run(b"SET time_zone = '+00:00', innodb_lock_wait_timeout = %d" % LOCK_WAIT_S)
        return session

    def create(self) -> None:
        """The database and its outcome table, where they are not there."""
        with self.session() as session:
            session.run(f"CREATE DATABASE IF NOT EXISTS `{self.schema}`".encode())
        self.outcomes.create()

    def take(self) -> ApplicationSession:
        """A session for one transaction; `give` it back afterwards, or close it."""
        return self._idle.popleft() if self._idle else self.connect()

    def give(self, session: ApplicationSession) -> None:
        """For whoever comes next. One that is closed is dropped."""
        if session.open:
            self._idle.append(session)

    @contextmanager
    def session(self) -> Iterator[ApplicationSession]:
        """One for the block; after an error it is closed, and with it what it has not committed."""
        session = self.take()
        try:
            yield session
        except BaseException:
            session.close()
            raise
        self.give(session)

    def close(self) -> None:
        """End the sessions that nobody uses."""
        while self._idle:
            self._idle.popleft().close()

    def alter(self, query: str) -> None:
        """Run a DDL as the program sends it: with the database that it uses, no name of it in the text."""
        with self.session() as session:
            session.run(f"USE `{self.schema}`".encode())
            session.run(query.encode())

    def keep_definition(self) -> ApplicationSession:
        """From here until this session's transaction ends nobody can lock the outcome table."""
        session = self.take()
        self.outcomes.hold_snapshots(session)
        return session

    def change(self, session: ApplicationSession, changes: Sequence[Change], start_ts: int) -> None:
        """Make the changes, and mark them as those of this transaction; nothing is committed."""
        for one in changes:
            _execute(session, statement(one), 1)
        self.outcomes.mark(session, start_ts)

    def fill(self, table: Table, rows: Sequence[Row]) -> None:
        """Rows that were there before the program began to publish."""
        with self.session() as session:
            for at in range(0, len(rows), ROWS_A_STATEMENT):
                some = list(rows[at : at + ROWS_A_STATEMENT])
                _execute(session, insertion(table, some), len(some))
            session.commit()


def _execute(session: ApplicationSession, made: Statement, rows: int) -> None:
    """Raises `Corruption` when it does not touch as many rows."""
    text, values = made
    with session.cursor() as cursor:
        touched = cursor.execute(text, values)
    if touched != rows:
        raise Corruption(f"the application's database has {touched} rows, not {rows}, for {text}")
