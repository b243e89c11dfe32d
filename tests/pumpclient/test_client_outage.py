"""No pump is usable for a while: the only one restarts, all are gone, or the client is closed meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from pumpclient import ClientClosed, Options, WriteFailed
from pumpclient.pumps.health import PumpState
from pumpclient.testing import MemoryCluster

OPTIONS = Options(write_timeout_s=15.0)


def prewrites(client: object, first: int, count: int) -> list[asyncio.Future[bool]]:
    write = client.write_prewrite  # type: ignore[attr-defined]
    return [asyncio.ensure_future(write(start_ts, b"k", b"v")) for start_ts in range(first, first + count)]


async def test_a_restart_of_the_only_pump_fails_no_prewrite_and_is_met_with_one_connection() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(options=OPTIONS, batches=True) as client:
        assert await client.write_prewrite(1, b"k", b"v")
        pump = cluster.pumps.pop("a")
        before = prewrites(client, 2, 25)
        await cluster.time.run(5.0)
        assert [view.state for view in client.pumps()] == [PumpState.OUT]
        during = prewrites(client, 1000, 25)
        await cluster.time.run(5.0)
        assert not any(prewrite.done() for prewrite in (*before, *during))
        pump.connections = 0
        cluster.pumps["a"] = pump
        await cluster.time.run(0.2)
        assert all([await prewrite for prewrite in (*before, *during)])
        assert [view.state for view in client.pumps()] == [PumpState.USABLE]
        assert client.counters.prewrites_failed == 0
        assert pump.connections <= 2
    assert len(pump.payloads) == 51


async def test_after_the_write_timeout_without_a_pump_prewrites_fail_at_once() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(options=OPTIONS) as client:
        del cluster.pumps["a"]
        first = prewrites(client, 1, 25)
        await cluster.time.run(10.0)
        second = prewrites(client, 1000, 1)
        await cluster.time.run(4.0)
        assert not any(prewrite.done() for prewrite in (*first, *second))
        await cluster.time.run(1.1)
        for prewrite in (*first, *second):
            with pytest.raises(WriteFailed):
                await prewrite
        now_s = cluster.time.now_s
        with pytest.raises(WriteFailed):
            await client.write_prewrite(2000, b"k", b"v")
        assert cluster.time.now_s == now_s


async def test_a_client_that_is_closed_in_an_outage_connects_no_more() -> None:
    cluster = MemoryCluster(["a"])
    async with cluster.client(options=OPTIONS) as client:
        pump = cluster.pumps.pop("a")
        waiting = prewrites(client, 1, 20)
        await cluster.time.run(1.0)
        cluster.pumps["a"] = pump
    for prewrite in waiting:
        with pytest.raises(ClientClosed):
            await prewrite
    assert pump.attempts == 0
    assert not cluster.transport.connected("a")
