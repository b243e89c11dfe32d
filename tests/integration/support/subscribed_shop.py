"""A shop whose changes an application subscribes to."""

from __future__ import annotations

import asyncio
from typing import Any

import drainer
import pumpclient
from drainer.stream.schema.tracker import SchemaTracker
from pumpclient import Publisher, column
from tests.pump.conftest import pump as pump
from tests.waiting import PATIENCE_S
from tidb_binlog import ddl_job
from tidb_binlog.upstream.standalone import StandaloneUpstream


async def shop(endpoint: str) -> Publisher:
    publisher = await pumpclient.open_publisher(endpoint)
    await publisher.create_database("shop", if_not_exists=True)
    for table in ("orders", "items"):
        await publisher.create_table(
            f"shop.{table}",
            [column("id", "int", nullable=False), column("item", "varchar(40)")],
            primary_key=["id"],
            if_not_exists=True,
        )
    return publisher


async def write(publisher: Publisher, *ids: int, table: str = "orders") -> int:
    async with publisher.transaction() as txn:
        for number in ids:
            txn.insert(f"shop.{table}", {"id": number, "item": f"pen {number}"})
    return int(txn.commit_ts)


async def publish_job(
    publisher: Publisher, endpoint: str, action: int, query: str, *tables: str, **changed: Any
) -> int:
    """A DDL of TiDB's on tables of the shop that a publisher has no function for; its commit_ts. `changed`:
    of the definition of a table, by its name."""
    upstream = await StandaloneUpstream.connect(endpoint)
    tracker = SchemaTracker()
    async for page in upstream.history.pages(0):
        for job in map(ddl_job.parse, page):
            tracker.apply(job)
    await upstream.close()
    documents = []
    for table in tables:
        tracked = tracker.tracked(("shop", table))
        assert tracked is not None
        documents.append(tracked.document | changed.get(table, {}))
    made = ddl_job.DdlJob(
        max(tracker.last_job_id, 10_000) + 1,
        action,
        table_id=documents[0]["id"],
        schema_name="shop",
        table_name=tables[0],
        query=query,
        schema_version=tracker.version + 1,
        table_info=documents[0],
    ).to_document()
    made["binlog"]["MultipleTableInfos"] = documents if len(documents) > 1 else None
    return await publisher.ddl(ddl_job.encode(made), query)


async def rows(stream: drainer.Subscription, count: int) -> list[tuple[str, int]]:
    """Of the next transactions, until there are so many."""
    found: list[tuple[str, int]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            change = await anext(stream)
            if isinstance(change, drainer.Transaction):
                found += [(str(row.table), row.key_values[0]) for row in change.rows]
    return found
