"""A shop whose changes an application subscribes to."""

from __future__ import annotations

import asyncio

import drainer
import pumpclient
from pumpclient import Publisher, column
from tests.pump.conftest import pump as pump
from tests.waiting import PATIENCE_S


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


async def rows(stream: drainer.Subscription, count: int) -> list[tuple[str, int]]:
    """Of the next transactions, until there are so many."""
    found: list[tuple[str, int]] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            change = await anext(stream)
            if isinstance(change, drainer.Transaction):
                found += [(str(row.table), row.key_values[0]) for row in change.rows]
    return found
