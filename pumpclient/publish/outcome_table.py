"""Outcome table: how the application's own database answers for its transactions, with one small table.

    outcomes = OutcomeTable(lambda: pymysql.connect(**ACCOUNT))
    outcomes.create()

A transaction writes a row with its start_ts beside its own rows: it is there exactly if the transaction
committed. The answer must be final, so the question writes too: it inserts a row with the same start_ts.
While the transaction is open in the database, however long its COMMIT hangs, that insert waits for it; if
the insert succeeds, the transaction's own row can never come any more, and neither can the transaction.

Drives  connections of any DB-API driver (PyMySQL, psycopg, sqlite3): each question opens one and closes it
Needs   a database in which two transactions cannot both insert one primary key: all that are transactional,
        and that keeps what it has committed. An engine without transactions is refused, a setting with which
        a crash of the server loses commits is said
Never   removes a row that says "rolled back": it is what keeps a late transaction out; marks where each
        statement is committed by itself
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, Final, Protocol

from pumpclient.errors import InvalidDefinition, NoTransaction
from tidb_binlog.errors import Unavailable
from tidb_binlog.tso import Ts

_MYSQL_IN_TRANSACTION: Final = 1
_POSTGRES_IDLE: Final = 0


def commits_by_itself(connection: Any) -> bool:
    """Whether what is executed on it now is committed at once: autocommit, and no BEGIN before."""
    return _autocommit(connection) and not _is_open(connection)


def _is_open(connection: Any) -> bool:
    inside = getattr(connection, "in_transaction", None)  # sqlite3, MySQL Connector
    if inside is not None and not callable(inside):
        return bool(inside)
    status = getattr(connection, "server_status", None)  # PyMySQL
    if isinstance(status, int):
        return bool(status & _MYSQL_IN_TRANSACTION)
    state = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    return state is not None and int(state) != _POSTGRES_IDLE


def _autocommit(connection: Any) -> bool:
    ask = getattr(connection, "get_autocommit", None)  # PyMySQL, mysqlclient, Django
    if callable(ask):
        return bool(ask())
    autocommit = getattr(connection, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    # sqlite3 as it was before 3.12, and as it is by default still: None stands for autocommit.
    return (
        hasattr(connection, "isolation_level")
        and hasattr(connection, "in_transaction")
        and (connection.isolation_level is None)
    )


logger: Final = logging.getLogger("pumpclient")

COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"
PURGE_ROWS: Final = 500
_IS_MYSQL: Final = "SELECT @@version_comment"
_ENGINE: Final = (
    "SELECT t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES t"
    " LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
    " WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = '{table}'"
)
_DURABILITY: Final = (
    ("SELECT @@innodb_flush_log_at_trx_commit", ("0", "2"), "innodb_flush_log_at_trx_commit"),
    ("SELECT current_setting('synchronous_commit')", ("off",), "synchronous_commit"),
    ("SELECT current_setting('fsync')", ("off",), "fsync"),
    ("PRAGMA synchronous", ("0",), "synchronous"),
)
"""Questions of which a database knows its own, the answers with which a crash loses commits, the setting."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class Outcomes(Protocol):
    """What a publisher must be able to ask the application's database. `OutcomeTable` is one."""

    def name(self) -> str:
        """Which database this is: one that no other database ever gives."""
        ...

    def committed(self, start_ts: Ts) -> bool | Awaitable[bool]:
        """Whether the transaction is committed there. False must be final: from then on it cannot commit.

        Any exception means that the database does not answer now; the question comes again.
        """
        ...

    def purge(self, below_ts: Ts) -> None:
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
        """Make the table where it is not there; a database's name is drawn once and kept in it. Raises
        `InvalidDefinition` for a table that is there in an engine without transactions.

        A database that was cloned or restored beside its original has the original's name: remove the row
        with start_ts 0 in it, and call this again, before a program publishes from it.
        """
        with closing(self._connect()) as connection:
            engine = " ENGINE=InnoDB" if _answer(connection, _IS_MYSQL) else ""
            connection.cursor().execute(
                f"CREATE TABLE IF NOT EXISTS {self._table}"
                f" (start_ts BIGINT NOT NULL PRIMARY KEY, outcome VARCHAR(40) NOT NULL){engine}"
            )
            connection.commit()
            self._check(connection)
            if self._read(connection.cursor(), 0) is None:
                self._insert(connection, 0, secrets.token_hex(16))

    def _check(self, connection: Any) -> None:
        """Refuse what cannot keep the promise, say what may not keep it."""
        database, _, table = self._table.rpartition(".")
        schema = f"'{database}'" if database else "DATABASE()"
        engine = _answer(connection, _ENGINE.format(schema=schema, table=table))
        if engine is not None and engine[1] != "YES":
            raise InvalidDefinition(
                f"the outcome table {self._table} is in engine {engine[0]}, which has no transactions",
                hint=f"ALTER TABLE {self._table} ENGINE=InnoDB, and see to the tables that are published",
            )
        for question, weak, setting in _DURABILITY:
            answered = _answer(connection, question)
            if answered is not None and str(answered[0]) in weak:
                logger.warning(
                    "the database may lose commits that it has acknowledged when its server crashes (%s=%s)"
                    ": what was published of them is not taken back",
                    setting,
                    answered[0],
                )

    def name(self) -> str:
        """The name that `create` drew. Raises `InvalidDefinition` before that, and as `create`."""
        if not self._identity:
            with closing(self._connect()) as connection:
                identity = self._read(connection.cursor(), 0)
                self._check(connection)
            if identity is None:
                raise InvalidDefinition(f"{self._table} has no name in it", hint="call create() once")
            self._identity = identity
        return self._identity

    def statement(self, start_ts: Ts) -> str:
        """The INSERT that a transaction runs among its own statements, before it is prepared."""
        return f"INSERT INTO {self._table} (start_ts, outcome) VALUES ({int(start_ts)}, '{COMMITTED}')"

    def mark(self, connection: Any, start_ts: Ts) -> None:
        """Run that statement on the application's connection, in the transaction that is open there. Raises
        `NoTransaction` in autocommit mode without BEGIN, as far as the driver says: it would claim at once
        what is not true yet."""
        self.require_transaction(connection)
        cursor = connection.cursor()
        cursor.execute(self.statement(start_ts))
        cursor.close()

    def hold_snapshots(self, connection: Any) -> None:
        """From here to the end of the transaction that is open there nobody takes a snapshot of the database
        to begin a replica with. For a program that alters its tables: what it says to the database and what
        it publishes are then on the same side of every snapshot. Raises `NoTransaction`, as `mark`."""
        self.require_transaction(connection)
        cursor = connection.cursor()
        # No row has this key. To change none holds the table as a mark does, and keeps no other mark waiting.
        cursor.execute(f"UPDATE {self._table} SET outcome = outcome WHERE start_ts = -1")
        cursor.close()

    def require_transaction(self, connection: Any) -> None:
        """Raises `NoTransaction` where a statement on it would be committed by itself."""
        if commits_by_itself(connection):
            raise NoTransaction(
                "the connection commits each statement by itself (autocommit): its changes would stay when "
                "the transaction is not published",
                hint="turn autocommit off, or begin a transaction before the first change",
            )

    def committed(self, start_ts: Ts) -> bool:
        """See `Outcomes`. Waits as long as the database lets it wait for a lock."""
        with closing(self._connect()) as connection:
            if self._insert(connection, start_ts, ROLLED_BACK):
                return False
            outcome = self._read(connection.cursor(), start_ts)
        if outcome is None:
            raise Unavailable(f"the row of transaction {start_ts} in {self._table} came and went")
        return outcome == COMMITTED

    def purge(self, below_ts: Ts) -> None:
        """Remove the rows of committed transactions below a start_ts, some at a time."""
        while True:
            with closing(self._connect()) as connection:
                cursor = connection.cursor()
                cursor.execute(
                    f"SELECT start_ts FROM {self._table} WHERE start_ts > 0 AND start_ts < {int(below_ts)}"
                    f" AND outcome = '{COMMITTED}' LIMIT {PURGE_ROWS}"
                )
                keys = [str(int(row[0])) for row in cursor.fetchall()]
                if keys:  # by key: a range would lock the gaps that others insert into
                    cursor.execute(f"DELETE FROM {self._table} WHERE start_ts IN ({', '.join(keys)})")
                connection.commit()
            if len(keys) < PURGE_ROWS:
                return

    def _insert(self, connection: Any, start_ts: Ts, outcome: str) -> bool:
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

    def _read(self, cursor: Any, start_ts: Ts) -> str | None:
        cursor.execute(f"SELECT outcome FROM {self._table} WHERE start_ts = {int(start_ts)}")
        row = cursor.fetchone()
        return None if row is None else str(row[0])


def _answer(connection: Any, question: str) -> Any:
    """One row, None where there is none or the database does not understand the question."""
    cursor = connection.cursor()
    try:
        cursor.execute(question)
        return cursor.fetchone()
    except Exception:  # a driver's: another kind of database
        connection.rollback()
        return None
    finally:
        cursor.close()
