"""What a module's tests may leave in the MariaDB of a session, which the next module must not meet."""

from __future__ import annotations

from typing import NamedTuple

from binlog_playground.cluster.mariadb import MariaDbServer


class State(NamedTuple):
    """Databases, accounts, and global variables that can be set."""

    databases: set[str]
    accounts: set[tuple[str, str]]
    variables: dict[str, str]


def look(server: MariaDbServer) -> State:
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES")
        databases = {name for (name,) in cursor.fetchall()}
        cursor.execute("SELECT user, host FROM mysql.user")
        accounts = set(cursor.fetchall())
        cursor.execute(
            "SELECT variable_name, global_value FROM information_schema.system_variables"
            " WHERE read_only = 'NO' AND global_value IS NOT NULL AND variable_name NOT LIKE 'gtid%'"
        )
        variables = dict(cursor.fetchall())
    connection.close()
    return State(databases, accounts, variables)


def restore(server: MariaDbServer, before: State) -> None:
    after = look(server)
    statements = [f"DROP DATABASE `{name}`" for name in after.databases - before.databases]
    statements += [f"DROP USER '{user}'@'{host}'" for user, host in after.accounts - before.accounts]
    connection = server.connect()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        for name, value in before.variables.items():
            if after.variables.get(name) != value:
                cursor.execute(f"SET GLOBAL {name} = %s", (int(value) if value.isdigit() else value,))
    connection.close()
    assert look(server) == before
