"""DDL jobs for programs that have no TiDB: what a publisher writes into the schema history.

Values only, in the layout of TiDB's DDL jobs (`parser/model`), which a Drainer reads. With the functions that
end in `_job` the ids are the program's to choose: job ids unique and ascending, schema and table ids unique,
schema versions ascending by one. A publisher that keeps a catalogue chooses them itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from common.table_info import STATE_NONE, STATE_PUBLIC, TableInfo

CREATE_DATABASE: Final = 1
DROP_DATABASE: Final = 2
CREATE_TABLE: Final = 3
DROP_TABLE: Final = 4
ADD_COLUMN: Final = 5
DROP_COLUMN: Final = 6
ADD_INDEX: Final = 7
DROP_INDEX: Final = 8
TRUNCATE_TABLE: Final = 11
RENAME_TABLE: Final = 14
SYNCED: Final = 6

REMOVALS: Final = frozenset({DROP_DATABASE, DROP_TABLE, DROP_COLUMN, DROP_INDEX})
"""Kinds after which the thing named does not exist any more."""


@dataclass(frozen=True, slots=True)
class DdlJob:
    """A finished schema change. `table` is the definition after it (the dropped one of a DROP TABLE)."""

    kind: int
    schema_id: int
    schema: str
    table_id: int = 0
    table_name: str = ""
    database: dict[str, Any] | None = None
    table: dict[str, Any] | None = None
    id: int = 0
    schema_version: int = 0
    query: str = ""

    @property
    def schema_state(self) -> int:
        return STATE_NONE if self.kind in REMOVALS else STATE_PUBLIC

    def to_json(self, finished_ts: int = 0) -> bytes:
        """The job's text. `finished_ts` is its commit_ts, or 0 where that is not known yet."""
        table = self.table
        if table is not None and self.kind == DROP_TABLE:
            table = {**table, "state": STATE_NONE}
        history = {
            "SchemaVersion": self.schema_version,
            "DBInfo": self.database,
            "TableInfo": table,
            "FinishedTS": finished_ts,
        }
        document = {
            "id": self.id,
            "type": self.kind,
            "schema_id": self.schema_id,
            "table_id": self.table_id,
            "schema_name": self.schema,
            "table_name": self.table_name,
            "state": SYNCED,
            "schema_state": self.schema_state,
            "query": self.query,
            "binlog": history,
            "version": 1,
        }
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def database_info(schema_id: int, schema: str) -> dict[str, Any]:
    """A database; character set utf8mb4, collation utf8mb4_bin."""
    return {
        "id": schema_id,
        "db_name": {"O": schema, "L": schema.lower()},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "state": STATE_PUBLIC,
    }


def create_database_job(job_id: int, schema_id: int, schema: str, *, schema_version: int) -> bytes:
    """Job of `CREATE DATABASE`; character set utf8mb4, collation utf8mb4_bin."""
    database = database_info(schema_id, schema)
    job = DdlJob(
        CREATE_DATABASE, schema_id, schema, database=database, id=job_id, schema_version=schema_version
    )
    return job.to_json()


def create_table_job(
    job_id: int, schema_id: int, schema: str, table: TableInfo, *, schema_version: int
) -> bytes:
    """Job of `CREATE TABLE`."""
    job = DdlJob(
        CREATE_TABLE,
        schema_id,
        schema,
        table.id,
        table.name,
        table=table.to_json(),
        id=job_id,
        schema_version=schema_version,
    )
    return job.to_json()
