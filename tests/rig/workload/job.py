"""Job: DDL jobs as TiDB keeps them in its history: JSON text made from definitions. Pure functions.

A Drainer reads a job by the id that a DDL binlog names and learns from it what the schema is from that
version on.

Tests  tests/rig/workload/test_tables.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.rig.workload.tables import Table
from tidb_binlog.ddl_job import ActionType, DdlJob, database_info, encode, state_after
from tidb_binlog.table_info import SchemaState

_KEYS: Final = (
    *("id", "type", "schema_id", "table_id", "schema_name", "table_name", "state", "warning", "err"),
    *("err_count", "row_count", "raw_args", "schema_state", "snapshot_ver", "real_start_ts", "start_ts"),
    *("dependency_id", "query", "binlog", "version", "reorg_meta", "multi_schema_info", "priority"),
    "seq_num",
)
"""Of a job, in the order in which TiDB writes them."""


def binlog_states(job: DdlJob) -> tuple[SchemaState, ...]:
    """One binlog is written for each: DROP COLUMN announces itself before it is done."""
    last = state_after(job.action)
    return (SchemaState.DELETE_ONLY, last) if job.action == ActionType.DROP_COLUMN else (last,)


def job_json(job: DdlJob, table: Table | None, start_ts: int, tables: Sequence[Table] = ()) -> bytes:
    """JSON of a finished job; `table` is the definition after it (the dropped one of a DROP TABLE), `tables`
    those of a job about several, one for each part of its statement.

    FinishedTS is 0: it is not below the commit_ts, which is not drawn yet.
    """
    document = job.to_document()
    history = document["binlog"] | {"MultipleTableInfos": None}
    if tables:
        history["MultipleTableInfos"] = [each.info() | {"update_timestamp": start_ts} for each in tables]
    elif table is None:
        history["DBInfo"] = database_info(job.schema_id, job.schema_name) | {"policy_ref_info": None}
    else:
        history["TableInfo"] = table.info() | {"update_timestamp": start_ts}
        if job.action == ActionType.DROP_TABLE:
            history["TableInfo"]["state"] = SchemaState.NONE
    zeros = dict.fromkeys(("err_count", "row_count", "snapshot_ver", "dependency_id", "priority"), 0)
    times = {"real_start_ts": start_ts, "start_ts": start_ts, "seq_num": job.id}
    return encode(dict.fromkeys(_KEYS) | document | zeros | times | {"binlog": history})
