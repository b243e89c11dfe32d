"""The cluster in memory keeps the promises of a real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import drainer
import pumpclient
from binlog_testing import BinlogCluster
from pumpclient import column
from pumpclient.testing.memory_pump import MemoryPump
from tests.waiting import PATIENCE_S, until

COLUMNS = [column("id", "int", nullable=False), column("item", "longtext")]


@pytest.fixture
def cluster() -> Iterator[BinlogCluster]:
    with BinlogCluster() as made:
        with made.publisher_sync() as publisher:
            publisher.create_database("shop")
            publisher.create_table("shop.orders", COLUMNS, primary_key=["id"])
        yield made


def insert(publisher: pumpclient.SyncPublisher, number: int, item: str = "pen") -> int:
    with publisher.transaction() as txn:
        txn.insert("shop.orders", {"id": number, "item": item})
    return txn.commit_ts


def numbers(changes: Any) -> list[int]:
    return [
        row.key_values[0]
        for change in changes
        if isinstance(change, drainer.Transaction)
        for row in change.rows
    ]


def test_many_threads_write_and_each_row_comes_once_in_order(cluster: BinlogCluster) -> None:
    def write(first: int) -> None:
        with cluster.publisher_sync() as publisher:
            for number in range(first, first + 40):
                insert(publisher, number)

    with cluster.subscribe_sync(start="now") as stream:
        writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
        for writer in writers:
            writer.start()
        changes = [next(stream) for _ in range(120)]
        for writer in writers:
            writer.join()
    stamps = [change.commit_ts for change in changes]
    assert stamps == sorted(set(stamps))
    found = numbers(changes)
    assert sorted(found) == [*range(40), *range(100, 140), *range(200, 240)]
    for first in (0, 100, 200):
        assert [number for number in found if first <= number < first + 40] == [*range(first, first + 40)]
    assert all(pump.payloads for pump in cluster.pumps.values()), "both pumps have a part"
    assert numbers(cluster.changes()) == found


def test_it_goes_on_from_a_position_and_by_name(cluster: BinlogCluster) -> None:
    with cluster.publisher_sync() as publisher:
        stamps = [insert(publisher, number) for number in range(6)]
    with cluster.subscribe_sync(start=stamps[1], stop=stamps[4]) as stream:
        assert numbers(stream) == [2, 3, 4]
    with cluster.subscribe_sync(name="sums", start=stamps[0]) as stream:
        for _ in range(3):
            change = next(stream)
        stream.done(change)
        next(stream)  # given, and not done
        with pytest.raises(drainer.NameTaken), cluster.subscribe_sync(name="sums"):
            pass
    assert cluster.position("sums") == stamps[3]
    with cluster.subscribe_sync(name="sums", stop="now") as stream:
        assert numbers(stream) == [4, 5]
        with pytest.raises(drainer.NotGiven):
            stream.done(drainer.Transaction(stamps[5] + 1000, 0, []))


def test_it_says_who_has_not_caught_up(cluster: BinlogCluster) -> None:
    with pytest.raises(TimeoutError, match="the reader sums has done everything up to 0"):
        cluster.caught_up_sync("sums", timeout_s=0.0)
    with cluster.publisher_sync() as publisher, cluster.subscribe_sync(name="sums", start="now") as stream:
        insert(publisher, 1)
        change = next(stream)
        with pytest.raises(TimeoutError):
            cluster.caught_up_sync("sums", timeout_s=0.0)
        stream.done(change)
        caught_up = threading.Thread(target=cluster.caught_up_sync, args=("sums",))
        caught_up.start()
        stream.ready(0.0)  # the stream goes on
        caught_up.join(PATIENCE_S)
        assert not caught_up.is_alive()


def test_a_large_transaction_comes_in_parts(cluster: BinlogCluster) -> None:
    with cluster.publisher_sync() as publisher:
        with publisher.transaction() as txn:
            for number in range(20):
                txn.insert("shop.orders", {"id": number, "item": "x" * 500_000})
        insert(publisher, 99)
    large, small = [change for change in read(cluster) if isinstance(change, drainer.Transaction)]
    assert large.large
    assert not small.large
    assert [len(row["item"]) for row in cluster.rows("shop.orders")] == [500_000] * 20 + [3]


def read(cluster: BinlogCluster) -> list[Any]:
    with cluster.subscribe_sync(start="oldest", stop="now") as stream:
        changes = []
        for change in stream:
            if isinstance(change, drainer.Transaction) and change.large:
                assert sum(1 for _ in change.rows) == 20
            changes.append(change)
    return changes


async def test_what_becomes_of_a_transaction_without_an_end(cluster: BinlogCluster) -> None:
    """A stream waits for it, as at a real pump, and asks the upstream."""
    async with cluster.publisher() as publisher:
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 1, "item": "pen"})
            await txn.prewrite()
            await txn.commit(deliver=False)  # pumps hear nothing of it
        lost = publisher.transaction(ttl_s=0.1)
        await lost.begin()
        lost.insert("shop.orders", {"id": 2, "item": "ink"})
        await lost.abandon()
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 3, "item": "paper"})
    async with cluster.subscribe(tables=["shop.*"], start="oldest", stop="now") as stream:
        async with asyncio.timeout(PATIENCE_S):
            assert numbers([change async for change in stream]) == [1, 3]


async def test_pumps_go_away_and_come(cluster: BinlogCluster) -> None:
    async with cluster.publisher() as publisher, cluster.subscribe(start="now") as stream:
        away = cluster.pumps.pop("pump-1")
        cluster.add_pump("pump-3")
        for number in range(8):
            async with publisher.transaction() as txn:
                txn.insert("shop.orders", {"id": number, "item": "pen"})
        assert cluster.pumps["pump-3"].payloads
        cluster.pumps["pump-1"] = away
        async with asyncio.timeout(PATIENCE_S):
            assert numbers([await anext(stream) for _ in range(8)]) == [*range(8)]


def test_rows_follow_what_ddl_does(cluster: BinlogCluster) -> None:
    with cluster.publisher_sync() as publisher:
        insert(publisher, 1)
        insert(publisher, 2)
        with publisher.transaction() as txn:
            txn.update("shop.orders", {"id": 1, "item": "pen"}, {"id": 9, "item": "pen"})
            txn.delete("shop.orders", {"id": 2, "item": "pen"})
        publisher.rename_table("shop.orders", "sold")
        assert cluster.rows("shop.sold") == [{"id": 9, "item": "pen"}]
        with pytest.raises(KeyError):
            cluster.rows("shop.orders")
        publisher.truncate_table("shop.sold")
        assert cluster.rows("shop.sold") == []
    kinds = [change.kind for change in cluster.changes("shop.sold") if isinstance(change, drainer.Ddl)]
    assert kinds == ["rename", "truncate"]


def test_what_is_purged_cannot_be_read(cluster: BinlogCluster) -> None:
    with cluster.publisher_sync() as publisher:
        stamps = [insert(publisher, number) for number in range(3)]
    cluster.purge(stamps[1])
    with pytest.raises(drainer.BinlogsLost) as lost, cluster.subscribe_sync(start=stamps[0]):
        pass
    assert lost.value.lowest == stamps[1]
    with cluster.subscribe_sync(start="oldest", stop="now") as stream:
        assert numbers(stream) == [2]


def test_a_reader_that_kept_its_last_change_is_told_where_it_was_done(cluster: BinlogCluster) -> None:
    """Others were written since, of tables that it does not read, and are purged."""
    with cluster.publisher_sync() as publisher:
        publisher.create_table("shop.others", COLUMNS, primary_key=["id"])
        kept = insert(publisher, 1)
        with publisher.transaction() as txn:
            txn.insert("shop.others", {"id": 2, "item": "pen"})
    reader = {"tables": ["shop.orders"], "name": "index"}
    with cluster.subscribe_sync(**reader, start="oldest", stop="now") as stream:
        for change in stream:
            stream.done(change)
    assert change.commit_ts == kept
    cluster.purge(txn.commit_ts)
    with (
        pytest.raises(
            drainer.BinlogsLost, match=r"index was done up to \d+: without a start it goes on there"
        ),
        cluster.subscribe_sync(**reader, start=kept),
    ):
        pass
    with cluster.subscribe_sync(**reader) as stream:
        assert stream.position >= txn.commit_ts


def test_two_clusters_share_nothing_and_an_endpoint_ends_with_its_cluster(cluster: BinlogCluster) -> None:
    with BinlogCluster() as other:
        assert other.endpoint != cluster.endpoint
        assert other.changes() == []
    with pytest.raises(drainer.BinlogError), drainer.subscribe_sync(other.endpoint):
        pass
    with pytest.raises(drainer.BinlogError):
        pumpclient.open_publisher_sync(other.endpoint)


def test_a_reader_that_is_behind_what_is_purged_is_told(cluster: BinlogCluster) -> None:
    with cluster.subscribe_sync(start="now") as stream:
        for pump_id in list(cluster.pumps):
            cluster.pumps[pump_id] = MemoryPump(pump_id, 1)  # it comes back with less
        cluster.purge(stream.position + (1 << 40))
        with pytest.raises(drainer.BinlogsLost):
            next(stream)


def test_a_pump_that_hangs_holds_the_stream(cluster: BinlogCluster) -> None:
    for pump in cluster.pumps.values():
        pump.hanging = True
    with cluster.subscribe_sync(start="oldest") as stream:
        assert not stream.ready(0.1)
        for pump in cluster.pumps.values():
            pump.hanging = False
        assert isinstance(next(stream), drainer.Ddl)


async def test_a_stream_says_what_it_waits_for(cluster: BinlogCluster) -> None:
    async with cluster.publisher() as publisher, cluster.subscribe(start="now") as stream:
        open_one = publisher.transaction()
        await open_one.begin()
        open_one.insert("shop.orders", {"id": 1, "item": "pen"})
        await open_one.prewrite()
        async with publisher.transaction() as txn:
            txn.insert("shop.orders", {"id": 2, "item": "ink"})
        reading = asyncio.ensure_future(anext(stream))
        await until(lambda: f"(open transaction with start_ts {open_one.start_ts})" in stream.waits_for)
        await open_one.roll_back()
        async with asyncio.timeout(PATIENCE_S):
            assert numbers([await reading]) == [2]


async def test_who_waits_at_a_pump_is_woken_from_any_thread() -> None:
    pump = MemoryPump("pump-1", 1)
    with pump.stored.waiting() as wake:
        assert pump.receive(1, b"x") is None
        assert wake.is_set()
        wake.clear()
        await asyncio.to_thread(pump.receive, 1, b"y")
        async with asyncio.timeout(PATIENCE_S):
            await wake.wait()
    assert pump.receive(1, b"z") is None
    assert len(pump.payloads) == 3
