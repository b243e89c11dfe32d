"""Open transaction: whether a statement on a connection of the host waits for its COMMIT, as its driver says.

In     a DB-API connection of any driver, or what wraps one
Out    whether it commits each statement by itself; False where it does not report it
Knows  sqlite3, PyMySQL, mysqlclient, MySQL Connector, psycopg, what a pool of SQLAlchemy gives, Django's
Tests  tests/pumpclient/publish/test_outcome_table.py
"""

from __future__ import annotations

from typing import Any, Final

_MYSQL_IN_TRANSACTION: Final = 1
_POSTGRES_IDLE: Final = 0


def commits_by_itself(connection: Any) -> bool:
    """Whether what is executed on it now is committed at once: autocommit, and no BEGIN before."""
    return _autocommit(connection) and not _is_open(connection)


def _is_open(connection: Any) -> bool:
    answer = getattr(connection, "in_transaction", None)  # sqlite3, MySQL Connector
    if answer is not None and not callable(answer):
        return bool(answer)
    status = getattr(connection, "server_status", None)  # PyMySQL
    if isinstance(status, int):
        return bool(status & _MYSQL_IN_TRANSACTION)
    state = getattr(getattr(connection, "info", None), "transaction_status", None)  # psycopg
    return state is not None and int(state) != _POSTGRES_IDLE


def _autocommit(connection: Any) -> bool:
    ask = getattr(connection, "get_autocommit", None)  # PyMySQL, mysqlclient, Django
    if callable(ask):
        return bool(ask())
    answer = getattr(connection, "autocommit", None)
    if isinstance(answer, bool):
        return answer
    # sqlite3 as it was before 3.12, and as it is by default still: None stands for autocommit.
    return (
        hasattr(connection, "isolation_level")
        and hasattr(connection, "in_transaction")
        and (connection.isolation_level is None)
    )
