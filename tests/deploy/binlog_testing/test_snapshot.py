"""A program that begins with a snapshot, in memory: rows, then the stream; stopped anywhere it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import drainer
from binlog_testing import BinlogCluster
from binlog_testing.memory_reader import MemorySnapshot
from pumpclient import column
from tests.waiting import PATIENCE_S
from tidb_binlog.errors import ConfigError

SERVER = {"host": "database", "password-file": "/nobody/reads/it", "outcome-table": "shop.outcomes"}
ROWS = 25
Seen = list[tuple[str, int]]


@pytest.fixture
def cluster() -> Iterator[BinlogCluster]:
    columns = [column("id", "int", nullable=False), column("item", "varchar(20)")]
    with BinlogCluster() as made:
        with made.publisher_sync() as publisher:
            publisher.create_database("shop")
            for name in ("items", "orders", "void"):
                publisher.create_table(f"shop.{name}", columns, primary_key=["id"])
            for number in range(ROWS):
                write(made, number, "items", "orders")
            with publisher.transaction() as txn:
                txn.delete("shop.items", {"id": 0, "item": "pen"})
                txn.update("shop.orders", {"id": 1, "item": "pen"}, {"id": 1, "item": "ink"})
        yield made


def write(cluster: BinlogCluster, number: int, *tables: str) -> None:
    with cluster.publisher_sync() as publisher, publisher.transaction() as txn:
        for name in tables:
            txn.insert(f"shop.{name}", {"id": number, "item": "pen"})


def rows_of(change: Any) -> Seen:
    assert isinstance(change, drainer.Transaction)
    return [(row.table.name, row.after["id"]) for row in change.rows if row.after]


STOOD = sorted(
    [*(("items", number) for number in range(1, ROWS)), *(("orders", number) for number in range(ROWS))]
)


def test_rows_come_first_then_the_stream(cluster: BinlogCluster) -> None:
    with cluster.subscribe_sync(snapshot=SERVER) as stream:
        write(cluster, 100, "orders")  # behind the snapshot
        found, items = [], {}
        while stream.ready(PATIENCE_S) and stream.position == 0:  # what is ready was not given yet
            change = next(stream)
            assert isinstance(change, drainer.Transaction)
            assert change.snapshot
            found += rows_of(change)
            items |= {row.key_values: row.after for row in change.rows if row.table.name == "orders"}
        assert sorted(found) == STOOD
        assert items[1,] == {"id": 1, "item": "ink"}
        following = next(stream)
        assert isinstance(following, drainer.Transaction)
        assert (rows_of(following), following.snapshot) == ([("orders", 100)], "")


@pytest.mark.parametrize("name", [None, "search"])
def test_stopped_anywhere_it_goes_on_at_the_same_moment(cluster: BinlogCluster, name: str | None) -> None:
    kept: int | str = 0
    found: Seen = []
    moments = set()
    for life in range(20):
        start = None if name and life else kept
        with cluster.subscribe_sync(name=name, snapshot=SERVER, start=start, stop="now") as stream:
            change = next(stream, None)
            if change is None:
                break
            found += rows_of(change)
            assert isinstance(change, drainer.Transaction)
            if change.snapshot:
                moments.add(change.commit_ts)
            kept = change.snapshot or change.commit_ts
            if name:
                stream.done(change)
                next(stream, None)  # given, and not done
        if life < 5:
            write(cluster, 100 + life, "items")
    else:
        raise AssertionError("it does not come to an end")
    assert len(moments) == 1
    assert sorted(found) == sorted([*STOOD, *(("items", 100 + number) for number in range(5))])


async def test_with_asyncio_and_after_a_purge(cluster: BinlogCluster) -> None:
    """Pumps have purged what made the rows: they are in the database all the same."""
    cluster.purge(cluster.changes()[-1].commit_ts)
    async with cluster.subscribe(snapshot=SERVER, tables=["shop.orders"], stop="now") as stream:
        found = [row async for change in stream for row in rows_of(change)]
    assert sorted(found) == [row for row in STOOD if row[0] == "orders"]


def test_a_database_without_tables(cluster: BinlogCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    async def close(self: MemorySnapshot) -> None:
        closed.append(self)

    monkeypatch.setattr(MemorySnapshot, "close", close)
    with cluster.subscribe_sync(snapshot=SERVER, tables=["none.*"], missing_ok=True, name="all") as stream:
        position = stream.position
        assert position > 0
        assert not stream.ready(0)
        assert closed, "T is held while the stream runs"
    assert cluster.position("all") >= position


def test_other_tables_are_refused_as_in_earnest(cluster: BinlogCluster) -> None:
    with cluster.subscribe_sync(snapshot=SERVER) as stream:
        change = next(stream)
    assert isinstance(change, drainer.Transaction)
    with (
        pytest.raises(ConfigError, match="begun with other tables"),
        cluster.subscribe_sync(snapshot=SERVER, tables=["shop.orders"], start=change.snapshot),
    ):
        pass
