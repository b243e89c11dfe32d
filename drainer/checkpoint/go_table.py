"""Go table: the `checkpoint` table that Go drainers and other programs read, one row a cluster.

Holds   a row is replaced only where it is what we stored last: another program's value is never overwritten
        unread. A row that was deleted is written again
Why     a Go drainer has no fencing. It writes over the row whenever it likes, so we compare before we write:
        one UPDATE that names the old text does both
Tests   tests/drainer/checkpoint/test_store_clash.py
"""

from __future__ import annotations

from typing import Final

from drainer.checkpoint.value import Checkpoint
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NoSuchTable
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from tidb_binlog.errors import Conflict, DownstreamError
from tidb_binlog.observe import log

logger = log.get("drainer.row_table")


class RowTable:
    """Statements on one cluster's row."""

    def __init__(self, schema: str, table: str, cluster_id: int) -> None:
        self._schema = schema
        self._table = table
        self._name = qualified(schema, table)
        self._cluster_id = cluster_id
        # What may be written over: what was read, or stored; after a COMMIT without an answer the text before
        # it, or the one in it.
        self._ours: list[str] = []

    def ensure(self, connection: Connection) -> None:
        """Make the table if there is none; that ends the transaction. `DownstreamError` if it has none."""
        try:
            connection.rows(b"SELECT clusterID FROM %s LIMIT 0" % self._name)
        except NoSuchTable:
            connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(self._schema))
            columns = b" (clusterID BIGINT UNSIGNED PRIMARY KEY, checkPoint MEDIUMTEXT) ENGINE=InnoDB"
            connection.run(b"CREATE TABLE IF NOT EXISTS " + self._name + columns)
        check_engines(connection, self._schema, (self._table,))

    def load(self, connection: Connection) -> tuple[Checkpoint | None, tuple[int, ...]]:
        """The row, and the ids of other clusters that have one. Raises `Corruption`."""
        rows = connection.rows(b"SELECT clusterID, checkPoint FROM " + self._name)
        others = tuple(sorted(int(row[0]) for row in rows if int(row[0]) != self._cluster_id))
        self._ours = [row[1] for row in rows if int(row[0]) == self._cluster_id]
        return Checkpoint.from_json(self._ours[0]) if self._ours else None, others

    def take(self, connection: Connection, checkpoint: Checkpoint) -> None:
        """Write the row, whatever is there: from now on it is ours."""
        text = checkpoint.to_json()
        self._ours = [text]
        self._replace(connection, text)

    def store(self, connection: Connection, checkpoint: Checkpoint, *, alone: bool = False) -> None:
        """Write the row if it is still ours; `Conflict` if another program wrote it meanwhile.

        `alone`: on a server of its own, which may go back in time by itself. What is there then is an older
        row of ours, and nothing depends on it: it is written over.
        """
        text = checkpoint.to_json()
        self._ours = [*(stored_text for stored_text in self._ours if stored_text != text), text]
        row = b"clusterID=%d" % self._cluster_id
        matched = connection.run(
            b"UPDATE %s SET checkPoint=" % self._name
            + string_literal(text)
            + b" WHERE %s AND checkPoint IN (" % row
            + b",".join(map(string_literal, self._ours))
            + b")",
        )
        if matched == 1:
            return
        rows = connection.rows(b"SELECT checkPoint FROM %s WHERE %s" % (self._name, row))
        if rows and alone and _is_older(Checkpoint.from_json(rows[0][0]), checkpoint):
            logger.warning("the server of the checkpoint row went back in time, the row is written again")
        elif rows:
            raise Conflict(
                f"another program wrote the checkpoint of cluster {self._cluster_id} while this drainer works"
                " on it",
                hint="stop the other drainer; the next start resumes from what it stored",
            )
        self._replace(connection, text)

    def stored(self) -> None:
        """The last `store` is committed."""
        del self._ours[:-1]

    def _replace(self, connection: Connection, text: str) -> None:
        connection.run(
            b"REPLACE INTO %s (clusterID, checkPoint) VALUES (%d, " % (self._name, self._cluster_id)
            + string_literal(text)
            + b")",
        )


def _is_older(stored: Checkpoint, ours: Checkpoint) -> bool:
    """A row that a drainer of ours stored before: another program's has no epoch."""
    if stored.epoch is None or ours.epoch is None:
        return False
    return stored.epoch <= ours.epoch and stored.commit_ts <= ours.commit_ts


# Table setup: what has to be there before a checkpoint can be, and what it has to be like.
# Holds   every table is of an engine with transactions: positions commit together with rows, or not at all.
#         A table that was made by hand, or by the server's default engine, is checked

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
