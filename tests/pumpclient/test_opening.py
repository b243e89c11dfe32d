"""What is opened may be awaited, entered, or given to whatever takes a coroutine."""

from __future__ import annotations

import asyncio

import pytest

from pumpclient.errors import ClientClosed
from pumpclient.opening import Opening
from pumpclient.publish.publisher import Publisher
from pumpclient.testing import MemoryCluster


def test_every_way_to_open() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        async with cluster.publisher() as publisher:
            await publisher.create_database("shop")
        with pytest.raises(ClientClosed):
            await publisher.create_database("late")
        async with await cluster.publisher() as publisher:
            assert publisher.catalog.databases
        publisher = await asyncio.create_task(cluster.publisher())
        await publisher.close()
        with pytest.raises(RuntimeError, match="mine"):
            async with cluster.publisher() as publisher:
                raise RuntimeError("mine")

    asyncio.run(scenario())


def test_another_event_loop_is_refused_instead_of_waiting_for_ever() -> None:
    cluster = MemoryCluster()

    async def use(publisher: Publisher) -> None:
        with pytest.raises(ClientClosed, match="another event loop"):
            async with publisher.transaction():
                pass
        with pytest.raises(ClientClosed, match="another event loop"):
            await publisher.create_database("shop")
        with pytest.raises(ClientClosed, match="another event loop"):
            await publisher.client.write_prewrite(1, b"key", b"")
        with pytest.raises(ClientClosed, match="another event loop"):
            await publisher.client.write_rollback(1)

    async def scenario() -> None:
        async with cluster.publisher() as publisher:
            await asyncio.to_thread(asyncio.run, use(publisher))
            await publisher.create_database("shop")

    asyncio.run(scenario())
    asyncio.run(use(asyncio.run(cluster.publisher())))  # its loop is closed


def test_one_that_is_not_used_says_so_and_may_be_closed() -> None:
    opening: Opening[Publisher] = MemoryCluster().publisher()
    opening.close()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        MemoryCluster().publisher()
