"""Outcome table: how the application's own database answers for its transactions, with one small table.

    outcomes = OutcomeTable(lambda: pymysql.connect(**ACCOUNT))
    outcomes.create()

A transaction writes a row with its start_ts beside its own rows: it is there exactly if the transaction
committed. The answer must be final, so the question writes too: it inserts a row with the same start_ts.
While the transaction is open in the database, however long its COMMIT hangs, that insert waits for it; if
the insert succeeds, the transaction's own row can never come any more, and neither can the transaction.

Drives  connections of any DB-API driver (PyMySQL, psycopg, sqlite3): each question opens one and closes it
Needs   a database in which two transactions cannot both insert one primary key: all that are transactional
Never   removes a row that says "rolled back": it is what keeps a late transaction out
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, Final, Protocol

from common.errors import Unavailable
from pumpclient.errors import InvalidDefinition

COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"
PURGE_ROWS: Final = 500
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class Outcomes(Protocol):
    """What a publisher must be able to ask the application's database. `OutcomeTable` is one."""

    def name(self) -> str:
        """Which database this is: one that another database never gives, whoever asks."""
        ...

    def committed(self, start_ts: int) -> bool | Awaitable[bool]:
        """Whether the transaction is committed there. False must be final: from then on it cannot commit.

        Any exception means that the database does not answer now; the question comes again.
        """
        ...

    def purge(self, below_ts: int) -> None:
        """Nobody will ask again about transactions below this start_ts."""
        ...


class OutcomeTable:
    """`connect` gives a new DB-API connection to the database that the application writes to, the primary
    one where there are several. Used from threads; each call has a connection of its own.
    """

    def __init__(self, connect: Callable[[], Any], table: str = "binlog_outcome") -> None:
        if not _NAME.fullmatch(table):
            raise InvalidDefinition(f"{table!r} cannot name the outcome table")
        self._connect = connect
        self._table = table
        self._identity = ""

    def create(self) -> None:
        """Make the table where it is not there; a database's name is drawn once and kept in it."""
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table}"
                " (start_ts BIGINT NOT NULL PRIMARY KEY, outcome VARCHAR(40) NOT NULL)"
            )
            connection.commit()
            if self._read(cursor, 0) is None:
                self._insert(connection, 0, secrets.token_hex(16))

    def name(self) -> str:
        """The name that `create` drew. Raises `InvalidDefinition` before that."""
        if not self._identity:
            with closing(self._connect()) as connection:
                found = self._read(connection.cursor(), 0)
            if found is None:
                raise InvalidDefinition(f"{self._table} has no name in it", hint="call create() once")
            self._identity = found
        return self._identity

    def statement(self, start_ts: int) -> str:
        """The INSERT that a transaction runs among its own statements, before it is prepared."""
        return f"INSERT INTO {self._table} (start_ts, outcome) VALUES ({int(start_ts)}, '{COMMITTED}')"

    def mark(self, connection: Any, start_ts: int) -> None:
        """Run that statement on the application's connection, in the transaction that is open there: in
        autocommit mode without BEGIN it would say at once what is not true yet."""
        cursor = connection.cursor()
        cursor.execute(self.statement(start_ts))
        cursor.close()

    def committed(self, start_ts: int) -> bool:
        """See `Outcomes`. Waits as long as the database lets it wait for a lock."""
        with closing(self._connect()) as connection:
            if self._insert(connection, start_ts, ROLLED_BACK):
                return False
            found = self._read(connection.cursor(), start_ts)
        if found is None:
            raise Unavailable(f"the row of transaction {start_ts} in {self._table} came and went")
        return found == COMMITTED

    def purge(self, below_ts: int) -> None:
        """Remove the rows of committed transactions below a start_ts, some at a time."""
        while True:
            with closing(self._connect()) as connection:
                cursor = connection.cursor()
                cursor.execute(
                    f"SELECT start_ts FROM {self._table} WHERE start_ts > 0 AND start_ts < {int(below_ts)}"
                    f" AND outcome = '{COMMITTED}' LIMIT {PURGE_ROWS}"
                )
                found = [str(int(row[0])) for row in cursor.fetchall()]
                if found:  # by key: a range would lock the gaps that others insert into
                    cursor.execute(f"DELETE FROM {self._table} WHERE start_ts IN ({', '.join(found)})")
                connection.commit()
            if len(found) < PURGE_ROWS:
                return

    def _insert(self, connection: Any, start_ts: int, outcome: str) -> bool:
        """False when there is a row for it already."""
        try:
            connection.cursor().execute(
                f"INSERT INTO {self._table} (start_ts, outcome) VALUES ({int(start_ts)}, '{outcome}')"
            )
        except connection.IntegrityError:
            connection.rollback()
            return False
        connection.commit()
        return True

    def _read(self, cursor: Any, start_ts: int) -> str | None:
        cursor.execute(f"SELECT outcome FROM {self._table} WHERE start_ts = {int(start_ts)}")
        row = cursor.fetchone()
        return None if row is None else str(row[0])
