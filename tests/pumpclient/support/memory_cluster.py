"""A cluster in memory: a shop's database and its publisher, and work done while its time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pumpclient import Publisher, column
from pumpclient.testing import MemoryCluster, settle

T = TypeVar("T")
ORDERS = [column("id", "bigint", nullable=False), column("item", "varchar(40)", default="pen")]


async def shop() -> tuple[MemoryCluster, Publisher]:
    cluster = MemoryCluster(["a"])
    publisher = await cluster.publisher()
    await publisher.create_database("shop")
    await publisher.create_table("shop.orders", ORDERS, primary_key=["id"])
    return cluster, publisher


async def while_time_passes(cluster: MemoryCluster, work: Awaitable[T], limit_s: float = 2000.0) -> T:
    """Run `work`, moving the clock in steps of 50 ms until it is done."""
    task = asyncio.ensure_future(work)
    await settle()
    end_s = cluster.time.now_s + limit_s
    while not task.done() and cluster.time.now_s < end_s:
        await cluster.time.run(0.05)
    assert task.done(), "did not end in time"
    return task.result()
