"""Engines: which tables a consistent snapshot does not hold still.

In     a session of the server, a table's name
Out    the name of its engine, where that has no transactions: each statement sees the rows of its own moment
Why    a server says nothing of it: such a table is just read as it is
"""

from __future__ import annotations

from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import string_literal

_ENGINE = (
    b"SELECT t.ENGINE FROM information_schema.TABLES t"
    b" JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
    b" WHERE t.TABLE_SCHEMA = %b AND t.TABLE_NAME = %b AND COALESCE(e.TRANSACTIONS, '') <> 'YES'"
)


def engine_without_snapshots(connection: Connection, schema: str, name: str) -> str:
    """ "" for a table that a snapshot holds still, and for a view."""
    found = connection.rows(_ENGINE % (string_literal(schema), string_literal(name)))
    return str(found[0][0]) if found else ""
