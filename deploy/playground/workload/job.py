"""DDL jobs as TiDB keeps them in its history: JSON text made from definitions. Pure functions.

A Drainer reads a job by the id that a DDL binlog names and learns from it what the schema is from that
version on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from deploy.playground.workload.tables import Table

CREATE_SCHEMA: Final = 1
CREATE_TABLE: Final = 3
DROP_TABLE: Final = 4
ADD_COLUMN: Final = 5
DROP_COLUMN: Final = 6
ADD_INDEX: Final = 7
DROP_INDEX: Final = 8
TRUNCATE_TABLE: Final = 11
MODIFY_COLUMN: Final = 12
RENAME_TABLE: Final = 14

DONE: Final = 6  # job state "synced"
STATE_NONE: Final = 0
STATE_DELETE_ONLY: Final = 1
STATE_PUBLIC: Final = 5

# Kinds after which the thing named does not exist any more.
REMOVALS: Final = frozenset({DROP_TABLE, DROP_COLUMN, DROP_INDEX})


@dataclass(frozen=True, slots=True)
class Job:
    """What the history says of one finished DDL."""

    id: int
    kind: int
    schema_id: int
    schema: str
    table_id: int  # the old id of a TRUNCATE
    table_name: str
    query: str
    schema_version: int

    @property
    def schema_states(self) -> tuple[int, ...]:
        """One binlog is written for each: DROP COLUMN announces itself before it is done."""
        if self.kind == DROP_COLUMN:
            return (STATE_DELETE_ONLY, STATE_NONE)
        return (STATE_NONE,) if self.kind in REMOVALS else (STATE_PUBLIC,)


def database_info(schema_id: int, schema: str) -> dict[str, Any]:
    return {
        "id": schema_id,
        "db_name": {"O": schema, "L": schema.lower()},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "state": STATE_PUBLIC,
        "policy_ref_info": None,
    }


def job_json(job: Job, table: Table | None, start_ts: int) -> bytes:
    """JSON of a finished job; `table` is the definition after it (the dropped one of a DROP TABLE)."""
    database = table_document = None
    if table is None:
        database = database_info(job.schema_id, job.schema)
    else:
        table_document = {**table.info(), "update_timestamp": start_ts}
        if job.kind == DROP_TABLE:
            table_document["state"] = STATE_NONE
    document = {
        "id": job.id,
        "type": job.kind,
        "schema_id": job.schema_id,
        "table_id": job.table_id,
        "schema_name": job.schema,
        "table_name": job.table_name,
        "state": DONE,
        "warning": None,
        "err": None,
        "err_count": 0,
        "row_count": 0,
        "raw_args": None,
        "schema_state": job.schema_states[-1],
        "snapshot_ver": 0,
        "real_start_ts": start_ts,
        "start_ts": start_ts,
        "dependency_id": 0,
        "query": job.query,
        "binlog": {
            "SchemaVersion": job.schema_version,
            "DBInfo": database,
            "TableInfo": table_document,
            "FinishedTS": 0,  # not below the commit_ts, which is not drawn yet
            "MultipleTableInfos": None,
        },
        "version": 1,
        "reorg_meta": None,
        "multi_schema_info": None,
        "priority": 0,
        "seq_num": job.id,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
