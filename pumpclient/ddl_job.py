"""DDL jobs for programs that have no TiDB: what `Publisher.ddl` writes into the schema history.

Values only. Ids are the program's to choose: job ids unique and ascending, schema and table ids unique,
schema versions ascending by one. The layout is that of TiDB's DDL jobs (`parser/model`), which a Drainer
reads.
"""

from __future__ import annotations

import json
from typing import Any, Final

from common.table_info import STATE_PUBLIC, TableInfo

CREATE_DATABASE: Final = 1
CREATE_TABLE: Final = 3
SYNCED: Final = 6


def create_database_job(job_id: int, schema_id: int, schema: str, *, schema_version: int) -> bytes:
    """Job of `CREATE DATABASE`; character set utf8mb4, collation utf8mb4_bin."""
    database = {
        "id": schema_id,
        "db_name": {"O": schema, "L": schema.lower()},
        "charset": "utf8mb4",
        "collate": "utf8mb4_bin",
        "state": STATE_PUBLIC,
    }
    return _job(job_id, CREATE_DATABASE, schema_id, schema, 0, "", schema_version, {"DBInfo": database})


def create_table_job(
    job_id: int, schema_id: int, schema: str, table: TableInfo, *, schema_version: int
) -> bytes:
    """Job of `CREATE TABLE`."""
    definition = {"TableInfo": table.to_json()}
    return _job(job_id, CREATE_TABLE, schema_id, schema, table.id, table.name, schema_version, definition)


def _job(
    job_id: int,
    kind: int,
    schema_id: int,
    schema: str,
    table_id: int,
    table: str,
    schema_version: int,
    definition: dict[str, Any],
) -> bytes:
    document = {
        "id": job_id,
        "type": kind,
        "schema_id": schema_id,
        "table_id": table_id,
        "schema_name": schema,
        "table_name": table,
        "state": SYNCED,
        "schema_state": STATE_PUBLIC,
        "query": "",
        "binlog": {"SchemaVersion": schema_version, **definition, "FinishedTS": 0},
        "version": 1,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
