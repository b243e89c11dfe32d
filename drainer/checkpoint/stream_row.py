"""Stream row: what outlives the processes of a stream into a database, kept in that database.

    tidb_binlog.spark_streams   stream, findings: one row a stream, whose name is that of its checkpoint

Why     a Drainer and a stream of Spark, on whatever machines, take over from each other: what the one has
        found of the downstream is for the other to tell, too (`Findings`)
Tests   tests/drainer/app/test_build_mysql.py, tests/spark/live/test_take_over.py
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, Final

from drainer.checkpoint.store import DEFAULT_SCHEMA
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NoSuchTable, SessionError, passing_error
from drainer.mysql.literal.quoting import qualified, quote_name, string_literal
from tidb_binlog.foreign_document import json_object
from tidb_binlog.late_dataclass import replace

_STREAMS: Final = qualified(DEFAULT_SCHEMA, "spark_streams")


def stream_name(cluster_id: int, checkpoint_schema: str) -> str:
    """Of the stream that owns this checkpoint."""
    digest = hashlib.sha256(f"{cluster_id}/{checkpoint_schema}".encode()).hexdigest()
    return f"live-{digest[:16]}"


class StreamRow:
    """Raises `Unavailable`, `DownstreamError`."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = replace(target, mark=None)
        self._name = string_literal(name)

    def is_there(self) -> bool:
        """Whether the stream has been here before."""
        return bool(self._rows())

    def load(self) -> dict[str, Any] | None:
        """What was stored last; one that is damaged is as good as none."""
        rows = self._rows()
        return json_object(rows[0][0].encode()) if rows else None

    def begin(self) -> None:
        """The stream is here."""
        with self._connection() as connection:
            connection.run(b"CREATE DATABASE IF NOT EXISTS " + quote_name(DEFAULT_SCHEMA))
            connection.run(
                b"CREATE TABLE IF NOT EXISTS "
                + _STREAMS
                + b" (stream VARCHAR(64) CHARACTER SET ascii NOT NULL"
                b" PRIMARY KEY, findings MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL) ENGINE=InnoDB"
            )
            connection.run(b"INSERT IGNORE INTO " + _STREAMS + b" VALUES (" + self._name + b",'{}')")
            connection.commit()

    def store(self, document: bytes) -> None:
        """See `Findings`."""
        with self._connection() as connection:
            text = string_literal(document.decode())
            connection.run(b"UPDATE " + _STREAMS + b" SET findings=" + text + b" WHERE stream=" + self._name)
            connection.commit()

    def _rows(self) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            try:
                return list(
                    connection.rows(b"SELECT findings FROM " + _STREAMS + b" WHERE stream=" + self._name)
                )
            except NoSuchTable:
                return []

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with contextlib.closing(connect(self._target)) as connection:
                yield connection
        except SessionError as error:
            raise passing_error(error, "reading or writing spark_streams") from None
