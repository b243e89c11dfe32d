"""Fingerprint: the downstream's definitions where a statement is about to act, as text that can be stored.

Out    the definition of each as the server prints it, with the number by which the server knows the table
Why    after a crash, a shape that differs from the stored one says that the statement had run. Two tables
       with equal definitions that swap names print the same; their numbers do not. Where numbers cannot be
       read (no PROCESS privilege), contents are compared instead, for statements that move tables or rows
Holds  a shape does not change by itself: AUTO_INCREMENT counters are left out

Blocking; contents take a scan of the table. Raises PyMySQL's errors.
Tests  tests/drainer/ddl/run/test_runner.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from drainer.ddl.derive.render import Server
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError
from drainer.mysql.literal.quoting import qualified, quote_name
from drainer.mysql.rows.dialect import Dialect

Shape = dict[str, str | None]

_NOT_THERE: Final = frozenset({1049, 1051, 1146, 4091})
_BROKEN_VIEW: Final = frozenset({1356, 1449})
_NOT_ALLOWED: Final = frozenset({1044, 1045, 1142, 1227, 1109, 1146})
_AUTO_INCREMENT: Final = re.compile(r" AUTO_INCREMENT=\d+")
# InnoDB lists tables under the names of their files, partitions after `#P#`.
_NUMBERS_MARIADB: Final = "SELECT NAME, TABLE_ID FROM information_schema.INNODB_SYS_TABLES WHERE "
_NUMBERS_MYSQL: Final = "SELECT NAME, TABLE_ID FROM information_schema.INNODB_TABLES WHERE "
_NUMBERS_TIDB: Final = (
    "SELECT TABLE_NAME, TIDB_TABLE_ID FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s UNION ALL"
    " SELECT PARTITION_NAME, TIDB_PARTITION_ID FROM information_schema.PARTITIONS"
    " WHERE TABLE_SCHEMA=%s AND TABLE_NAME=%s AND PARTITION_NAME IS NOT NULL"
)


def read(
    connection: Connection,
    names: Sequence[tuple[str, str]],
    server: Server,
    *,
    moves: bool = False,
    contents: bool = False,
) -> Shape:
    """Shape of each name; None where it does not exist.

    `moves`: the statement moves tables, so they must be distinguished; `contents`: it moves rows, too.
    """
    shape: Shape = {}
    for schema, table in names:
        text = _definition(connection, schema, table)
        if text is not None and table and moves:
            numbers = _numbers(connection, schema, table, server)
            if numbers:
                text += f"\n-- {numbers}"
            if contents or not numbers:
                text += f"\n-- contents {_contents(connection, schema, table, server)}"
        shape[f"{schema}.{table}"] = text
    return shape


def has_database(connection: Connection, name: str, server: Server) -> bool:
    """Whether a database of that name is there."""
    return read(connection, [(name, "")], server)[f"{name}."] is not None


def _definition(connection: Connection, schema: str, table: str) -> str | None:
    if not connection.dialect.has_names(schema, table):
        return None
    statement = (
        b"SHOW CREATE TABLE " + qualified(schema, table)
        if table
        else b"SHOW CREATE DATABASE " + quote_name(schema)
    )
    try:
        rows = connection.rows(statement)
    except SessionError as error:
        if error.number in _NOT_THERE:
            return None
        if error.number in _BROKEN_VIEW:
            return "a view of what is not there"
        raise
    return _AUTO_INCREMENT.sub("", str(rows[0][1]))


def _numbers(connection: Connection, schema: str, table: str, server: Server) -> str:
    """Numbers of the table and its partitions; "" if they cannot be read."""
    try:
        with connection.cursor() as cursor:
            if server.dialect is Dialect.TIDB:
                cursor.execute(_NUMBERS_TIDB, (schema, table, schema, table))
                return str(sorted((str(name), int(number)) for name, number in cursor.fetchall()))
            query = _NUMBERS_MARIADB if server.dialect is Dialect.MARIADB else _NUMBERS_MYSQL
            name = f"{_file_name(cursor, schema, server)}/{_file_name(cursor, table, server)}"
            cursor.execute(query + "NAME=%s OR NAME LIKE %s", (name, _like(name) + "#P#%"))
            rows = sorted((str(variable), int(number)) for variable, number in cursor.fetchall())
    except SessionError as error:
        if error.number in _NOT_ALLOWED:
            return ""
        raise
    return " ".join(f"{variable.removeprefix(name)}={number}" for variable, number in rows)


def _file_name(cursor: Any, name: str, server: Server) -> str:
    """As the server writes it for its files. MySQL keeps to itself how: what is not ASCII finds no number."""
    if server.dialect is Dialect.MYSQL:
        return "".join(
            character if character.isalnum() or character == "_" else f"@{ord(character):04x}"
            for character in name
        )
    cursor.execute("SELECT CAST(CONVERT(%s USING filename) AS BINARY)", (name,))
    ((raw,),) = cursor.fetchall()
    return bytes(raw).decode()


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")


def _contents(connection: Connection, schema: str, table: str, server: Server) -> str:
    verb = b"ADMIN CHECKSUM TABLE " if server.dialect is Dialect.TIDB else b"CHECKSUM TABLE "
    rows = connection.rows(verb + qualified(schema, table))
    return " ".join(str(value) for value in rows[0][1:])
