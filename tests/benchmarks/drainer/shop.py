"""One table published through `pumpclient`, for benchmarks that write as an application does."""

from __future__ import annotations

from typing import Final

from pumpclient.publish.publisher import Publisher
from tests.rig.workload.job import job_json
from tests.rig.workload.tables import BIGINT, HANDLE, Table, new_table, varchar
from tidb_binlog.ddl_job import ActionType, DdlJob
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import TableInfo
from tidb_binlog.upstream.standalone import StandaloneUpstream

SCHEMA: Final = "bench"
SCHEMA_ID: Final = 1


def table(number: int, name: str) -> Table:
    columns = (("id", BIGINT), ("amount", BIGINT), ("note", varchar(64)))
    return new_table(10 + number, SCHEMA, name, columns, primary=("id",), storage=HANDLE)


PROBES: Final = table(1, "probes")
ORDERS: Final = table(2, "orders")
DIRECT: Final = f"{SCHEMA}.direct"


def encoder(described: Table) -> RowEncoder:
    return RowEncoder(TableInfo.from_json(described.info()))


async def create(publisher: Publisher, upstream: StandaloneUpstream) -> int:
    """The database and both tables, as DDL binlogs; the schema version to write rows under."""
    statements = [
        (ActionType.CREATE_SCHEMA, f"CREATE DATABASE `{SCHEMA}`", None),
        *((ActionType.CREATE_TABLE, described.create_sql(), described) for described in (PROBES, ORDERS)),
    ]
    for number, (kind, query, described) in enumerate(statements, 1):
        job = DdlJob(
            id=100 + number,
            action=kind,
            schema_id=SCHEMA_ID,
            schema_name=SCHEMA,
            table_id=described.id if described else 0,
            table_name=described.name if described else "",
            query=query,
            schema_version=number,
        )
        document = job_json(job, described, await upstream.oracle.timestamp())
        await publisher.ddl(document, query, ttl_s=10.0)
    return len(statements)
