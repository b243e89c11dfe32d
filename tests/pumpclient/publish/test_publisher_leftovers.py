"""What stays in the upstream of transactions that have ended, and for how long."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pumpclient import ClientState, Failure, Options, Publisher
from pumpclient.publish.publisher import SWEEP_EVERY_S
from pumpclient.tasks import Background
from pumpclient.testing import MemoryCluster, settle
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster import node
from tidb_binlog.errors import Unavailable
from tidb_binlog.upstream_port import Committed, RolledBack, Undecided

IGNORING = Options(ignore_error=True, write_timeout_s=1.0)


async def publisher_of(cluster: MemoryCluster, options: Options | None = None) -> Publisher:
    client = cluster.client(options=options)
    await client.start()
    publisher = Publisher(client, cluster.upstream, clock=cluster.time, sleep=cluster.time.sleep)
    await publisher.start()
    return publisher


@pytest.mark.parametrize("ends", ["commit", "roll_back", "ddl"])
async def test_a_skipped_transaction_leaves_nothing_behind_and_its_end_is_counted(ends: str) -> None:
    cluster = MemoryCluster(["a"])
    publisher = await publisher_of(cluster, IGNORING)
    async with publisher:
        cluster.pumps["a"].failures.append(Failure.TOO_LARGE)
        if ends == "ddl":
            await publisher.create_database("shop")
        else:
            async with publisher.transaction() as txn:
                txn.insert(5, b"row")
                await txn.prewrite()
                status = await publisher.client.recover("status")
                assert status.skipped_committers == 1
                await getattr(txn, ends)()
        assert await publisher.flush(1.0)
        assert cluster.upstream.entries == {}
        assert (await publisher.client.recover("wait", 1.0)).skipped_committers == 0
    assert cluster.pumps["a"].payloads == []


async def test_a_schema_change_that_no_pump_took_leaves_nothing_behind() -> None:
    cluster = MemoryCluster(["a"])
    publisher = await publisher_of(cluster)
    async with publisher:
        cluster.pumps["a"].broken = Failure.TOO_LARGE
        with pytest.raises(Exception, match="larger than a pump receives"):
            await publisher.create_database("shop")
        await publisher.flush(1.0)
        assert cluster.upstream.entries == {}


async def test_what_nobody_forgot_goes_when_every_pump_has_passed_it() -> None:
    """And not before, since a pump that is behind may ask; one that is offline never will."""
    cluster = MemoryCluster(["a", "b"])
    publisher = await publisher_of(cluster)
    entries = cluster.upstream.entries
    async with publisher:
        committed, lost, younger = publisher.transaction(), publisher.transaction(), publisher.transaction()
        for txn in (committed, lost):
            await txn.begin()
            txn.insert(5, b"row")
        await lost.abandon()
        await committed.commit(deliver=False)
        await younger.begin()
        await cluster.time.run(10.0)

        async def watermarks(a: int, b: int, state: str = node.ONLINE) -> None:
            cluster.registry.set("a", max_commit_ts=a)
            cluster.registry.set("b", max_commit_ts=b, state=state)
            await settle()
            await cluster.time.run(SWEEP_EVERY_S)

        for a, b in ((0, 10**6), (10**6, 0), (committed.commit_ts, 10**6)):
            await watermarks(a, b)
            assert publisher.client.watermark == min(a, b)
            assert entries[committed.start_ts] == Committed(committed.commit_ts)
        assert lost.start_ts not in entries
        await watermarks(committed.commit_ts + 1, 0)
        assert committed.start_ts in entries
        await watermarks(committed.commit_ts + 1, 0, node.OFFLINE)
        assert set(entries) == {younger.start_ts}
        assert isinstance(entries[younger.start_ts], Undecided)
        await younger.roll_back(deliver=False)
        assert entries == {younger.start_ts: RolledBack()}


async def test_a_sweep_that_fails_is_taken_up_again() -> None:
    cluster = MemoryCluster(["a"])
    publisher = await publisher_of(cluster)
    async with publisher:
        async with publisher.transaction() as txn:
            txn.insert(5, b"row")
            await txn.commit(deliver=False)
        cluster.registry.set("a", max_commit_ts=10**6)
        cluster.upstream.failing["sweep"] = Unavailable("etcd is away")
        await cluster.time.run(2 * SWEEP_EVERY_S)
        assert txn.start_ts in cluster.upstream.entries
        cluster.upstream.failing.clear()
        await cluster.time.run(SWEEP_EVERY_S)
        assert cluster.upstream.entries == {}


async def test_a_background_task_does_not_die_unheard(caplog: pytest.LogCaptureFixture) -> None:
    background = Background()

    async def dies() -> None:
        raise KeyError("of a bug")

    background.spawn(dies(), "pumpclient leases")
    assert await background.wait(PATIENCE_S)
    await settle()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "pumpclient leases stopped"
    ]
    assert len(background) == 0


async def test_a_publisher_that_is_interrupted_while_it_closes_keeps_no_connection() -> None:
    cluster = MemoryCluster(["a"])
    publisher = await publisher_of(cluster)
    async with publisher.transaction() as txn:
        txn.insert(5, b"row")
        await txn.prewrite()
        cluster.pumps["a"].hanging = True
    closing = asyncio.ensure_future(publisher.close(100.0))
    await settle()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert publisher.client.state is ClientState.OFF
    await cluster.time.run(20.0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pumpclient")]
