"""DDL jobs for programs that have no TiDB: what a publisher writes into the schema history.

Values only, in the layout of TiDB's DDL jobs (`parser/model`), which a Drainer reads. With the functions that
end in `_job` the ids are the program's to choose: job ids unique and ascending, schema and table ids unique,
schema versions ascending by one. A publisher that keeps a catalogue chooses them itself.

Tests  tests/pumpclient/publish/test_publisher_schema_publishing.py
"""

from __future__ import annotations

from tidb_binlog.ddl_job import ActionType, DdlJob, database_info
from tidb_binlog.table_info import TableInfo


def create_database_job(job_id: int, schema_id: int, schema: str, *, schema_version: int) -> bytes:
    """Job of `CREATE DATABASE`; character set utf8mb4, collation utf8mb4_bin."""
    database = database_info(schema_id, schema)
    job = DdlJob(
        job_id,
        ActionType.CREATE_SCHEMA,
        schema_id=schema_id,
        schema_name=schema,
        schema_version=schema_version,
        db_info=database,
    )
    return job.to_json()


def create_table_job(
    job_id: int, schema_id: int, schema: str, table: TableInfo, *, schema_version: int
) -> bytes:
    """Job of `CREATE TABLE`."""
    job = DdlJob(
        job_id,
        ActionType.CREATE_TABLE,
        schema_id=schema_id,
        table_id=table.id,
        schema_name=schema,
        table_name=table.name,
        schema_version=schema_version,
        table_info=table.to_json(),
    )
    return job.to_json()
