"""`drainer.subscribe` on real pumps and a real etcd: what a program commits is what another one reads."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import drainer
from tests.integration.support.subscribed_shop import rows, shop, write
from tests.pump.conftest import pump as pump
from tests.pump.support.process import PumpProcess, Start
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster import node
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.etcd.registry import connect_registry

pytestmark = pytest.mark.integration


@pytest.fixture
async def one_pump(pump: Start) -> PumpProcess:
    process = pump("-node-id=p1", "-heartbeat-interval=200ms")
    await process.start_and_wait()
    return process


async def test_what_is_committed_is_read(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    async with drainer.subscribe(etcd_clean, tables=["shop.*", "!shop.items"], start="oldest") as stream:
        first = await anext(stream)
        assert isinstance(first, drainer.Ddl)
        assert first.query.lower().startswith("create database")
        second = await anext(stream)
        assert isinstance(second, drainer.Ddl)
        assert [str(table) for table in second.after] == ["shop.orders"]
        await write(publisher, 1, table="items")
        ts = await write(publisher, 2, 3)
        change = await anext(stream)
        assert isinstance(change, drainer.Transaction)
        assert change.commit_ts == ts
        assert abs(change.time - datetime.now(UTC)) < timedelta(minutes=1)
        assert [(row.kind, row.before, row.after) for row in change.rows] == [
            ("insert", None, {"id": 2, "item": "pen 2"}),
            ("insert", None, {"id": 3, "item": "pen 3"}),
        ]
        registry = await connect_registry(etcd_clean)
        assert (await registry.view()).drainers == {}, "a reader without a name leaves no trace"
        await registry.close()
        with pytest.raises(ConfigError, match="a reader without a name"):
            await stream.done(change)
    with pytest.raises(drainer.StreamEnded):
        await anext(stream)
    await publisher.close()


async def test_starts_and_ends(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    stamps = [await write(publisher, number) for number in range(4)]
    everything = [("shop.orders", number) for number in range(4)]
    for start in ("-10m", timedelta(minutes=10), datetime.now(UTC) - timedelta(minutes=10), "oldest"):
        async with drainer.subscribe(etcd_clean, start=start) as stream:
            assert await rows(stream, 4) == everything
    async with drainer.subscribe(etcd_clean, start=stamps[0], stop=stamps[2]) as stream:
        async with asyncio.timeout(PATIENCE_S):
            assert [change.commit_ts async for change in stream] == stamps[1:3]
            assert stream.position == stamps[2]
    async with drainer.subscribe(etcd_clean, start="now") as stream:
        await write(publisher, 9)
        assert await rows(stream, 1) == [("shop.orders", 9)]
    await publisher.close()


async def test_a_named_reader_goes_on_where_it_was_done(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    seen: list[tuple[str, int]] = []
    numbers = iter(range(100))
    for life in range(3):
        async with drainer.subscribe(
            etcd_clean, tables=["shop.orders"], name="search", start="now"
        ) as stream:
            for _ in range(3):
                await write(publisher, next(numbers))
                async with asyncio.timeout(PATIENCE_S):
                    change = await anext(stream)
                assert isinstance(change, drainer.Transaction)
                seen += [(str(row.table), row.key_values[0]) for row in change.rows]
                await stream.done(change, stored=life == 1)
            await write(publisher, next(numbers))
            await rows(stream, 1)  # given, and not done
        next_of = next(numbers)
        numbers = iter(range(next_of - 1, 100))
        if life < 2:
            async with drainer.subscribe(etcd_clean, name="search") as stream:
                change = await anext(stream)
                assert isinstance(change, drainer.Transaction)
                assert [row.key_values[0] for row in change.rows] == [next_of - 1]
                seen += [(str(row.table), row.key_values[0]) for row in change.rows]
                await stream.done(change)
            numbers = iter(range(next_of, 100))
    assert seen == [("shop.orders", number) for number in range(len(seen))]
    await publisher.close()


async def test_a_program_may_keep_its_position_itself(one_pump: PumpProcess, etcd_clean: str) -> None:
    """It wins over the one in the registry, which is a little late, or ahead of restored data."""
    publisher = await shop(etcd_clean)
    stamps = [await write(publisher, number) for number in range(4)]
    async with drainer.subscribe(etcd_clean, tables=["shop.orders"], start="oldest", name="sums") as stream:
        for _ in range(3):
            change = await anext(stream)
            while not isinstance(change, drainer.Transaction):
                change = await anext(stream)
        await stream.done(change, stored=True)
    for start, expected in ((stamps[0], 1), ("oldest", 3)):
        async with drainer.subscribe(etcd_clean, tables=["shop.orders"], start=start, name="sums") as stream:
            assert await rows(stream, 1) == [("shop.orders", expected)]
            if expected == 1:
                await stream.done(drainer.Transaction(stamps[1], 0, []))
                assert await rows(stream, 1) == [("shop.orders", 2)]
                await stream.done(drainer.Transaction(stamps[2], 0, []))
    await publisher.close()


async def test_a_name_is_for_one_program(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    async with drainer.subscribe(etcd_clean, name="search") as _:
        with pytest.raises(Exception, match="the name search is another process's"):
            async with drainer.subscribe(etcd_clean, name="search"):
                pass
    await publisher.close()


async def test_pumps_come_and_go(pump: Start, one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    async with (
        drainer.subscribe(etcd_clean, tables=["shop.orders"], start="now") as nameless,
        drainer.subscribe(etcd_clean, tables=["shop.orders"], start="now", name="search") as named,
    ):
        await write(publisher, 1)
        second = pump("-node-id=p2", "-heartbeat-interval=200ms", directory="second")
        await second.start_and_wait()
        for number in range(2, 30):
            await write(publisher, number)
        one_pump.kill()
        await one_pump.start_and_wait()
        for number in range(30, 60):
            await write(publisher, number)
        expected = [("shop.orders", number) for number in range(1, 60)]
        assert await rows(nameless, 59) == expected
        found = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 59:
                change = await anext(named)
                assert isinstance(change, drainer.Transaction)
                found += [(str(row.table), row.key_values[0]) for row in change.rows]
        assert found == expected
        await named.done(change)
        status, _ = await asyncio.to_thread(second.http, "/state/p2/close", "PUT")
        assert status == 200
        last = asyncio.create_task(rows(named, 1))
        registry = await connect_registry(etcd_clean)
        async with asyncio.timeout(PATIENCE_S):
            while (await registry.view()).pumps["p2"].status.state != node.OFFLINE:
                await asyncio.sleep(0.1)
        await registry.close()
        await write(publisher, 60)
        assert await last == [("shop.orders", 60)]
        assert await rows(nameless, 1) == [("shop.orders", 60)]
    await publisher.close()


async def test_what_cannot_be_is_said_at_once(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    with pytest.raises(drainer.NoSuchTable, match=r"shop\.order fits no table") as caught:
        async with drainer.subscribe(etcd_clean, tables=["shop.order"]):
            pass
    assert "did you mean shop.orders?" in caught.value.hint
    async with drainer.subscribe(etcd_clean, tables=["shop.order"], missing_ok=True):
        pass
    with pytest.raises(ConfigError, match="lies in the future"):
        async with drainer.subscribe(etcd_clean, start=datetime.now(UTC) + timedelta(hours=1)):
            pass
    with pytest.raises(ConfigError, match=r"stop -20m .* lies before the start"):
        async with drainer.subscribe(etcd_clean, start="-10m", stop="-20m"):
            pass
    with pytest.raises(ConfigError, match="has no time zone"):
        async with drainer.subscribe(etcd_clean, start=datetime(2026, 1, 1)):
            pass
    with pytest.raises(Unavailable, match="cannot be reached"):
        async with drainer.subscribe("127.0.0.1:1"):
            pass
    with pytest.raises(ConfigError, match="no rule: 'ignore-tables'"):
        drainer.subscribe(etcd_clean, rules={"ignore-tables": []})
    await publisher.close()


async def test_a_large_transaction_comes_row_by_row(
    one_pump: PumpProcess, etcd_clean: str, tmp_path: Path
) -> None:
    publisher = await shop(etcd_clean)
    async with drainer.subscribe(
        etcd_clean, tables=["shop.orders"], start="now", spill_dir=str(tmp_path)
    ) as stream:
        text = "x" * 40
        async with publisher.transaction() as txn:
            for number in range(200_000):
                txn.insert("shop.orders", {"id": number, "item": text})
        async with asyncio.timeout(PATIENCE_S):
            change = await anext(stream)
        assert isinstance(change, drainer.Transaction)
        assert change.large
        assert [row.key_values[0] for row in change.rows] == list(range(200_000))
        await write(publisher, 200_000)
        assert await rows(stream, 1) == [("shop.orders", 200_000)]
    assert [path for path in tmp_path.iterdir() if path.name.startswith("drainer-reader")] == []
    await publisher.close()


async def test_a_program_without_an_event_loop(one_pump: PumpProcess, etcd_clean: str) -> None:
    publisher = await shop(etcd_clean)
    for number in range(5):
        await write(publisher, number)

    def read() -> list[Any]:
        found = []
        before = set(threading.enumerate())
        with drainer.subscribe_sync(etcd_clean, tables=["shop.orders"], start="-10m", name="cache") as stream:
            for change in stream:
                if isinstance(change, drainer.Transaction):
                    found += [row.key_values[0] for row in change.rows]
                    stream.done(change, stored=True)
                if len(found) == 5:
                    break
        assert set(threading.enumerate()) <= before
        return found

    assert await asyncio.to_thread(read) == [0, 1, 2, 3, 4]
    await publisher.close()
