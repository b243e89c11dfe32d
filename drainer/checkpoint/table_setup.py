"""Table setup: what has to be there before a checkpoint can be, and what it has to be like.

Drives  one connection, at a start; CREATE ends its transaction
Holds   every table is of an engine with transactions: positions commit together with rows, or not at all.
        A table that was made by hand, or by the server's default engine, is checked
Tests   tests/drainer/checkpoint/test_store_clash.py
"""

from __future__ import annotations

from typing import Final

from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from tidb_binlog.errors import DownstreamError

NAMES: Final = ("drainer_state", "lanes", "lane_basis", "schema_snapshot", "quarantine", "ddl_decisions")
_CREATE_STATE: Final = (
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED PRIMARY KEY, epoch BIGINT NOT NULL,"
    b" lane_count INT NOT NULL, owner VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, checkpoint MEDIUMTEXT,"
    b" intent MEDIUMTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB"
)
_CREATE_LANES: Final = (
    b"CREATE TABLE IF NOT EXISTS %s (cluster_id BIGINT UNSIGNED NOT NULL, lane INT NOT NULL,"
    b" epoch BIGINT NOT NULL, applied_ts BIGINT NOT NULL, applied_rows BIGINT NOT NULL,"
    b" PRIMARY KEY (cluster_id, lane)) ENGINE=InnoDB"
)
_WITHOUT_TRANSACTIONS: Final = (
    b"SELECT t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES t JOIN information_schema.ENGINES e"
    b" ON e.ENGINE=t.ENGINE WHERE t.TABLE_SCHEMA=%s AND t.TABLE_NAME IN (%s) AND e.TRANSACTIONS='NO'"
)


def create(connection: Connection, schema: str, *others: bytes) -> None:
    """The tables of a start, `others` too; the state's last: where it is, all are."""
    connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(schema))
    connection.run(_CREATE_LANES % qualified(schema, "lanes"))
    for statement in others:
        connection.run(statement)
    connection.run(_CREATE_STATE % qualified(schema, "drainer_state"))


def check_engines(connection: Connection, schema: str, names: tuple[str, ...]) -> None:
    """Raises `DownstreamError` for a table that cannot roll back; the session's transaction ends."""
    listed = b",".join(map(string_literal, names))
    tables = connection.rows(_WITHOUT_TRANSACTIONS % (string_literal(schema), listed))
    connection.rollback()
    if tables:
        name, engine = tables[0]
        raise DownstreamError(
            f"{schema}.{name} is a table of {engine}, which has no transactions: a checkpoint in it would be"
            " ahead of the rows after a crash",
            hint=f"ALTER TABLE `{schema}`.`{name}` ENGINE=InnoDB, and start again",
        )
