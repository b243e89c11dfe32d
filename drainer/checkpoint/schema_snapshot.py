"""Schema snapshot: the tracked schema as it was at the checkpoint, so that a start needs no long history.

    schema_snapshot   cluster_id, object, definition

One row an object of the tracker (a table, a database, ...): its JSON, packed. The row '' says what the whole
is: {"format", "commit_ts", "version", "job_id", "objects"}.

Holds   the snapshot is never ahead of the checkpoint it is stored with: rows after it are read with a schema
        that was theirs. A DDL writes what it changed, not everything
Why     jobs are kept for ever upstream. A start would read and apply all of them
Never   stops a start: a snapshot that is damaged, of another format, or ahead of the checkpoint is worth
        nothing, says a warning, and the history is read instead
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified, string_literal
from tidb_binlog.foreign_document import UNREADABLE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.schema_store")

FORMAT: Final = 1
LOOK_BACK: Final = 1000
"""Job ids are given when a job begins: so many older ones may have ended after the newest that is known."""
DOCUMENT: Final = "document"
"""The large part of a table's row. It comes back as JSON text: a start needs few of many tables."""
_HEADER: Final = ""
_STATEMENT_BYTES: Final = 1 << 20
_PACK_LEVEL: Final = 1

Row = dict[str, Any]
"""`{"key": name, "value": JSON}` of the tracker; a value of None: there is no such object any more."""


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """Rows to put over those of before, or `whole`: all that there are.

    `commit_ts`: from which DDL of the stream on the schema is like this. `version` is the schema version,
    `job_id` the highest id of an applied job.
    """

    commit_ts: Ts
    version: int
    job_id: int
    rows: Sequence[Row]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A whole snapshot: rows for the tracker, and where it is."""

    commit_ts: Ts
    version: int
    job_id: int
    rows: list[Row]

    @property
    def history_after(self) -> int:
        """The job id after which the history may know more than this."""
        return max(0, self.job_id - LOOK_BACK)


class SchemaStore:
    """Statements on one cluster's snapshot. Not thread-safe."""

    def __init__(self, schema: str, cluster_id: int) -> None:
        self._name = qualified(schema, "schema_snapshot")
        self._cluster_id = cluster_id
        self._objects: frozenset[str] | None = None  # None: nothing there to which changes could be added

    @property
    def create_statement(self) -> bytes:
        """Writes the statement that makes the table."""
        return (
            b"CREATE TABLE IF NOT EXISTS " + self._name + b" (cluster_id BIGINT UNSIGNED NOT NULL,"
            b" object VARCHAR(190) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,"
            b" definition LONGBLOB NOT NULL, PRIMARY KEY (cluster_id, object)) ENGINE=InnoDB"
        )

    def clear(self, connection: Connection) -> None:
        """The snapshot says nothing about the checkpoint any more."""
        connection.run(b"DELETE FROM %s WHERE cluster_id=%d" % (self._name, self._cluster_id))
        self._objects = None

    def load(self, connection: Connection, floor_ts: Ts) -> StoredSchema | None:
        """The snapshot for rows after `floor_ts`, None if there is none or it does not fit."""
        self._objects = None
        (stored,) = connection.rows_if_there(
            b"SELECT object, definition FROM %s WHERE cluster_id=%d" % (self._name, self._cluster_id),
        )
        if not stored:
            return None
        try:
            schema = _unpack(stored)
        except (*UNREADABLE, zlib.error) as error:
            logger.warning("schema snapshot cannot be used, reading the history", reason=str(error))
            return None
        if schema.commit_ts > floor_ts:
            reason = f"it is at {schema.commit_ts}, after the checkpoint at {floor_ts}"
            logger.warning("schema snapshot cannot be used, reading the history", reason=reason)
            return None
        self._objects = frozenset(row["key"] for row in schema.rows)
        return schema

    def write(self, connection: Connection, changes: Iterable[SchemaChanges]) -> frozenset[str] | None:
        """Store changes in their order; what `stored` is to be given once the transaction is committed."""
        objects = None if self._objects is None else set(self._objects)
        put: dict[str, Any] = {}
        last: SchemaChanges | None = None
        rewrite = False
        for change in changes:
            if change.whole:
                put, objects, rewrite = {}, set(), True
            if objects is None:
                continue
            for row in change.rows:
                name, put[name] = row["key"], row["value"]
            last = change
        if last is None or objects is None:
            return self._objects
        gone = {name for name, value in put.items() if value is None}
        objects = (objects | set(put)) - gone
        if rewrite:
            connection.run(b"DELETE FROM %s WHERE cluster_id=%d" % (self._name, self._cluster_id))
        else:
            self._remove(connection, sorted(gone))
        header = {
            "format": FORMAT,
            "commit_ts": last.commit_ts,
            "version": last.version,
            "job_id": last.job_id,
            "objects": len(objects),
        }
        documents = ((name, value) for name, value in put.items() if value is not None)
        self._replace(connection, itertools.chain([(_HEADER, header)], documents))
        return frozenset(objects)

    def stored(self, objects: frozenset[str] | None) -> None:
        """The transaction of `write` is committed."""
        self._objects = objects

    def _remove(self, connection: Connection, names: list[str]) -> None:
        if names:
            listed = b",".join(string_literal(name) for name in names)
            statement = b"DELETE FROM %s WHERE cluster_id=%d AND object IN (" % (self._name, self._cluster_id)
            connection.run(statement + listed + b")")

    def _replace(self, connection: Connection, rows: Iterable[tuple[str, Any]]) -> None:
        for values in _statements(
            b"(%d,%s,x'%s')" % (self._cluster_id, string_literal(name), _pack(document).hex().encode())
            for name, document in rows
        ):
            connection.run(b"REPLACE INTO " + self._name + b" VALUES " + values)


def _statements(values: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for value in values:
        if waiting and size + len(value) > _STATEMENT_BYTES:
            yield b",".join(waiting)
            waiting, size = [], 0
        waiting.append(value)
        size += len(value)
    yield b",".join(waiting)


def _pack(value: Any) -> bytes:
    if isinstance(value, dict) and isinstance(document := value.get(DOCUMENT), dict):
        value = {**value, DOCUMENT: json.dumps(document, separators=(",", ":"))}
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), _PACK_LEVEL)


def _unpack(stored: Iterable[tuple[Any, ...]]) -> StoredSchema:
    """Raises what reading a document raises, or `zlib.error`, for what was not stored by us."""
    values = {str(name): json.loads(zlib.decompress(packed)) for name, packed in stored}
    header = values.pop(_HEADER)
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']}, not {FORMAT}")
    if header["objects"] != len(values):
        raise ValueError(f"it has {len(values)} objects, not {header['objects']}")
    rows = [{"key": name, "value": values[name]} for name in sorted(values)]
    return StoredSchema(header["commit_ts"], header["version"], header["job_id"], rows)
