"""A publisher's catalogue changes, or cannot be read, while transactions are open."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pumpclient import SchemaChanged, TransactionState, column
from pumpclient.testing import settle
from pumpclient.testing.memory_upstream import MemoryCatalog, MemoryTransactions
from tests.pumpclient.support.memory_cluster import ORDERS, shop
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import Unavailable


@pytest.mark.parametrize("altered_by_itself", [True, False])
async def test_a_table_altered_under_a_transaction_refuses_it_also_when_the_publisher_knows(
    altered_by_itself: bool,
) -> None:
    """The catalogue was followed between the row and the commit."""
    cluster, one = await shop()
    other = await cluster.publisher()
    async with one, other:
        async with one.transaction() as untouched:
            untouched.insert("shop.orders", {"id": 1})
            await one.create_table("shop.beside", ORDERS, primary_key=["id"])
        transaction = one.transaction()
        await transaction.begin()
        transaction.insert("shop.orders", {"id": 1})
        await (one if altered_by_itself else other).add_column("shop.orders", column("size", "int"))
        await one.refresh()
        with pytest.raises(SchemaChanged, match=r"shop\.orders was altered"):
            await transaction.commit()
        assert (untouched.state, transaction.state) == (
            TransactionState.COMMITTED,
            TransactionState.ROLLED_BACK,
        )


async def test_a_commit_whose_answer_is_lost_stands_although_the_table_is_altered_behind_it() -> None:
    """Asked again, the step is what it was: the rows were right at its commit_ts."""
    cluster, one = await shop()
    async with one:
        transaction = one.transaction()
        await transaction.begin()
        transaction.insert("shop.orders", {"id": 1})
        commit = MemoryTransactions.commit
        lost: list[int] = []

        async def losing(self: MemoryTransactions, start_ts: int, **named: Any) -> int:
            commit_ts = await commit(self, start_ts, **named)
            if start_ts == transaction.start_ts and not lost:
                lost.append(commit_ts)
                raise Unavailable("the connection to etcd broke")
            return commit_ts

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryTransactions, "commit", losing)
            committing = asyncio.ensure_future(transaction.commit())
            await settle()
            await one.add_column("shop.orders", column("size", "int"))
            await cluster.time.run(1.0)
            assert [await committing] == lost


async def test_a_schema_change_that_is_done_is_no_error_when_the_catalogue_cannot_be_read() -> None:
    cluster, publisher = await shop()
    async with publisher:
        with pytest.MonkeyPatch.context() as patch:

            async def away(self: MemoryCatalog) -> None:
                raise Unavailable("etcd is away")

            patch.setattr(MemoryCatalog, "load", away)
            assert await publisher.drop_table("shop.orders") > 0
        assert publisher.catalog.tables
        await cluster.time.run(2.0)
        assert not publisher.catalog.tables


async def test_a_refused_transaction_says_why_when_etcd_goes_away_then() -> None:
    cluster, publisher = await shop()
    async with publisher:
        transaction = publisher.transaction()
        await transaction.begin()
        transaction.insert("shop.orders", {"id": 1})
        await publisher.drop_table("shop.orders")
        cluster.upstream.failing["roll_back"] = Unavailable("etcd is away")
        with pytest.raises(SchemaChanged):
            await transaction.commit()
        assert transaction.state is TransactionState.ROLLED_BACK


async def test_a_database_that_does_not_answer_does_not_hide_the_catalogue() -> None:
    answer = threading.Event()

    class Hanging:
        def name(self) -> str:
            return "app"

        def committed(self, start_ts: int) -> bool:
            return answer.wait(PATIENCE_S)

        def purge(self, below_ts: int) -> None:
            answer.wait(PATIENCE_S)

    cluster, other = await shop()
    one = await cluster.publisher(Hanging())
    async with one, other:
        try:
            await cluster.time.run(2.0)
            await other.drop_table("shop.orders")
            await cluster.time.run(2.0)
            assert not one.catalog.tables
        finally:
            answer.set()
