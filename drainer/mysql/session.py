"""Session: one connection downstream, made when it is needed and dropped after any error.

Holds   what `prepare` does was done on every connection that is handed out. After an error nothing is known
        of what the server made of the session, so the next use begins on a new one
Never   connects on its own: a session that was lost costs nothing until it is used again

Blocking; not thread-safe.

Tests   tests/drainer/mysql/test_session.py, tests/drainer/mysql/test_session_on_tidb.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.mysql.rows.dialect import Dialect
from drainer.mysql.rows.statement import Statement
from drainer.mysql.session_mode import SessionMode


class DownstreamSession:
    """`target` may be replaced: that counts from the next connection on."""

    def __init__(self, target: Target, prepare: Callable[[Connection], None] | None = None) -> None:
        self.target = target
        self._prepare = prepare
        self.current: Connection | None = None
        """The connection, if there is one."""

    def open(self) -> Connection:
        """The connection, a new one if there is none."""
        if self.current is None:
            connection = connect(self.target)
            try:
                if self._prepare is not None:
                    self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self.current = connection
        return self.current

    def close(self) -> None:
        """Drop the connection; the server rolls back what it had under way."""
        connection, self.current = self.current, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """The connection for a piece of work; whatever ends that with an error drops it."""
        try:
            yield self.open()
        except BaseException:
            self.close()
            raise

    def roll_back(self) -> bool:
        """Keep the connection after an error that leaves it usable; false if there is none to keep."""
        if self.current is None:
            return False
        try:
            self.current.rollback()
        except SessionError:
            self.close()
            return False
        return True


def run(connection: Connection, statement: Statement, mode: SessionMode) -> int:
    """Rows that the server says it affected. A strict TiDB looks into no partition if it cannot compute which
    one a value is in, as by TO_DAYS of a date without a month: rows with it are there all the same."""
    if statement.lax:
        return connection.run_lax(statement.sql, mode, statement.table.sql.enums)
    affected = connection.run(statement.sql)
    if statement.may_have_missed(affected) and connection.dialect is Dialect.TIDB:
        affected += connection.run_lax(statement.sql, mode)
    return affected
