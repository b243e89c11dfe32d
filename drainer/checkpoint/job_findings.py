"""Job findings: what a downstream has otherwise than a job expects, stored beside the job's positions.

    findings   cluster_id, lane, kind, name, row_count, said

Holds   what rows brought to light is stored in their transaction, what a DDL left out before its position
        moves: a summary tells of the whole job, however often it was killed
Tests   tests/drainer/reparo/test_job_findings.py, tests/spark/replay/test_entry.py
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import closing
from typing import Final

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.status.drainer import LackStatus

ROWS: Final = "rows"
"""Rows by table that were not there as they should have been."""
TEXTS: Final = "texts"
"""Values by column that its character set does not have."""
_MISSING: Final = "missing"


@dataclass(frozen=True, slots=True)
class JobFindings:
    """Statements on one job's rows; `number` as in the tables of its positions. Holds nothing but names: any
    thread, any connection. The caller commits."""

    schema: str
    number: int

    @property
    def _table(self) -> bytes:
        return qualified(self.schema, "findings")

    def create(self, connection: Connection) -> None:
        """Make the table where it is not there; that ends the transaction."""
        connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(self.schema))
        connection.run(
            b"CREATE TABLE IF NOT EXISTS " + self._table + b" (cluster_id BIGINT UNSIGNED NOT NULL,"
            b" lane INT NOT NULL, kind VARCHAR(16) CHARACTER SET ascii NOT NULL,"
            b" name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,"
            b" row_count BIGINT NOT NULL, said MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL,"
            b" PRIMARY KEY (cluster_id, lane, kind, name)) ENGINE=InnoDB"
        )

    def count(self, connection: Connection, lane: int, kind: str, counts: Iterable[tuple[str, int]]) -> None:
        """Add to the counts of a kind, by name. Each lane has rows of its own: none waits for another."""
        for name, rows in counts:
            connection.run(
                b"INSERT INTO %b VALUES (%d,%d,%b,%b,%d,'') ON DUPLICATE KEY UPDATE row_count=row_count+%d"
                % (self._table, self.number, lane, string_literal(kind), string_literal(name), rows, rows)
            )

    def say(self, connection: Connection, name: str, lines: Iterable[str]) -> None:
        """Put what is missing of a table or since a DDL, in place of what was; no lines: nothing is."""
        place = b"%d,0,%b,%b" % (self.number, string_literal(_MISSING), string_literal(name))
        said = string_literal("\n".join(lines).encode("utf-8", "replace").decode())
        connection.run(b"REPLACE INTO " + self._table + b" VALUES (" + place + b",0," + said + b")")

    def keep_lack(self, target: Target, lack: LackStatus) -> None:
        """What the downstream lacks of a DDL, in a transaction of its own. Raises `SessionError`,
        `Unavailable`."""
        with closing(connect(target)) as connection:
            self.say(connection, f"{lack.commit_ts:020d}", [str(lack).replace("\n", " ")])
            connection.commit()

    def forget(self, connection: Connection) -> None:
        """Remove all that is stored of the job."""
        connection.run(b"DELETE FROM %b WHERE cluster_id=%d" % (self._table, self.number))

    def counts(self, connection: Connection, kind: str) -> dict[str, int]:
        """Read the counts of all lanes and runs, by name."""
        query = (
            b"SELECT name, SUM(row_count) FROM %b WHERE cluster_id=%d AND kind=%b GROUP BY name ORDER BY name"
        )
        (rows,) = connection.rows_if_there(query % (self._table, self.number, string_literal(kind)))
        return {str(name): int(count) for name, count in rows}

    def missing(self, connection: Connection) -> dict[str, list[str]]:
        """Read what is missing, a line each, by name and in their order."""
        query = b"SELECT name, said FROM %b WHERE cluster_id=%d AND kind=%b ORDER BY name"
        (rows,) = connection.rows_if_there(query % (self._table, self.number, string_literal(_MISSING)))
        return {str(name): str(said).splitlines() for name, said in rows}

    def all_missing(self, connection: Connection) -> tuple[str, ...]:
        """Read the lines of all names."""
        return tuple(itertools.chain.from_iterable(self.missing(connection).values()))
