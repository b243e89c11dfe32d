"""Streams that end at a timestamp and choose tables, over a real storage: from memory and from the log."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pump.log.delivery import Page
from pump.pull.session import MESSAGE_BYTES_MAX, Message, PullSession
from pump.storage.opening import StorageLimits
from tests.pump.support.payloads import header, put, wait_watermark
from tests.pump.support.services import CLUSTER, PartPuller, Pump, pump
from tests.waiting import settle
from tidb_binlog import binlog, rpc
from tidb_binlog.wire import binlog_pb2, pump_pb2

STORES = [{}, {"limits": StorageLimits(recent_bytes_max=1)}]


def pair(start_ts: int, commit_ts: int, table_id: int, size: int = 20) -> tuple[bytes, bytes]:
    """A prewrite with one row, and its commit; a DDL for table 0."""
    if not table_id:
        return binlog.prewrite_ddl(start_ts, b"k", "create table t (a int)", 3), binlog.commit(
            start_ts, commit_ts, b"k"
        )
    mutation = binlog_pb2.TableMutation(table_id=table_id, inserted_rows=[bytes(size)], sequence=[0])
    value = binlog_pb2.PrewriteValue(schema_version=1, mutations=[mutation]).SerializeToString()
    return binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, commit_ts, b"k")


async def fill(one: Pump, tables: list[int], size: int = 20) -> dict[int, tuple[int, bytes]]:
    """Transactions in order, and (table, payload) of each by its commit_ts."""
    written = {}
    for number, table_id in enumerate(tables):
        start_ts, commit_ts = 10 * number + 1, 10 * number + 5
        first, second = pair(start_ts, commit_ts, table_id, size)
        await put(one.storage, first)
        await put(one.storage, second)
        written[commit_ts] = table_id, binlog.join(first, second)
    await wait_watermark(one.storage, max(written))
    return written


async def whole(one: Pump, **fields: Any) -> tuple[list[bytes], int]:
    """What a stream sends before it ends by itself, and its last watermark."""
    opening = pump_pb2.PullBatchesReq(cluster_id=CLUSTER, credit_bytes=1 << 20, **fields)
    requests: asyncio.Queue[bytes] = asyncio.Queue()
    requests.put_nowait(opening.SerializeToString())

    async def sent() -> Any:
        while True:
            yield await requests.get()

    payloads: list[bytes] = []
    watermark = -1
    async for data in one.pullers.pull_batches(sent()):
        reply = pump_pb2.PullBatchesResp.FromString(data)
        payloads += reply.payloads
        assert reply.watermark >= watermark
        watermark = reply.watermark
    return payloads, watermark


def test_a_session_of_a_range_waits_for_its_end_and_for_nothing_above_it() -> None:
    session = PullSession(5, 20, hurries=True)
    session.request(1 << 30, 99)
    assert session.page_bytes == MESSAGE_BYTES_MAX
    assert session.waits_for == 20
    assert session.page(Page([], 19)) is None
    assert not session.is_over
    assert session.page(Page([], 20)) == Message([], 0, 20)
    assert session.is_over
    assert not PullSession(5).is_over


@pytest.mark.parametrize("options", STORES)
async def test_ranges_that_are_cut_anywhere_are_one_pull(options: dict[str, Any], tmp_path: Path) -> None:
    async with pump(tmp_path, **options) as one:
        written = await fill(one, [1, 2, 0, 1, 3, 2, 2, 1] * 8)
        one.oracle.pinned = 10_000
        end = max(written)
        rng = random.Random(3)
        for _ in range(10):
            bounds = [0, *sorted(rng.sample(range(1, end + 40), 5)), end + 50]
            payloads = []
            for after_ts, until_ts in pairwise(bounds):
                taken, watermark = await whole(one, after_ts=after_ts, until_ts=until_ts)
                assert watermark == until_ts
                assert all(after_ts < header(payload).commit_ts <= until_ts for payload in taken)
                payloads += taken
            assert payloads == [payload for _, payload in written.values()]
        assert await whole(one, after_ts=50, until_ts=50) == ([], 50)
        assert await whole(one, after_ts=50, until_ts=40) == ([], 50)


@pytest.mark.parametrize("options", STORES)
@pytest.mark.parametrize("tables", [{1}, {2, 3}, {99}, {binlog.NO_TABLE}])
async def test_of_chosen_tables_all_comes_and_of_others_nothing_but_ddl(
    options: dict[str, Any], tables: set[int], tmp_path: Path
) -> None:
    async with pump(tmp_path, **options) as one:
        written = await fill(one, [1, 2, 0, 1, 3, 2, 2, 1] * 8)
        payloads, watermark = await whole(one, until_ts=max(written), table_ids=sorted(tables))
        assert payloads == [payload for table_id, payload in written.values() if table_id in tables | {0}]
        assert watermark == max(written)


@pytest.mark.parametrize("options", STORES)
async def test_large_transactions_are_chosen_by_their_tables_too(
    options: dict[str, Any], tmp_path: Path
) -> None:
    async with pump(tmp_path, **options) as one:
        written = await fill(one, [1, 2, 1, 2], size=3 << 20)
        puller = PartPuller(one, credit=1 << 20, parts_above=1 << 20, until_ts=max(written), table_ids=[2])
        chosen = [payload for table_id, payload in written.values() if table_id == 2]
        assert await puller.payloads(2, 1 << 20) == chosen
        payloads, _ = await whole(one, until_ts=15, table_ids=[2])
        assert payloads == chosen[:1], "in one message without parts"


async def test_a_large_transaction_that_is_left_out_was_read_and_is_whole(tmp_path: Path) -> None:
    async with pump(tmp_path, limits=StorageLimits(recent_bytes_max=1)) as one:
        await fill(one, [1, 2], size=3 << 20)
        log = tmp_path / "value" / "000000.vlog"
        with log.open("r+b") as file:
            file.seek(1 << 20)
            file.write(b"\xff")
        with pytest.raises(Exception, match="checksum"):
            await whole(one, until_ts=15, table_ids=[2])


async def test_an_end_above_the_watermark_is_waited_for(tmp_path: Path) -> None:
    async with pump(tmp_path) as one:
        written = await fill(one, [1, 2])
        await one.write(binlog.prewrite(21, b"k", b""))
        reading = asyncio.create_task(whole(one, after_ts=0, until_ts=40))
        await settle()
        assert not reading.done()
        assert one.storage.watermark < 21
        await one.write(binlog.commit(21, 33, b"k"))
        payloads, watermark = await reading
        assert payloads[:2] == [payload for _, payload in written.values()]
        assert [header(payload).commit_ts for payload in payloads[2:]] == [33]
        assert watermark == 40


async def test_a_filter_that_leaves_all_out_still_tells_where_it_is(tmp_path: Path) -> None:
    async with pump(tmp_path, limits=StorageLimits(recent_bytes_max=1)) as one:
        await fill(one, [1] * 400, size=20_000)
        opening = pump_pb2.PullBatchesReq(
            cluster_id=CLUSTER, credit_bytes=1 << 20, until_ts=1 << 40, table_ids=[2], silence_ms=10
        )

        async def sent() -> Any:
            yield opening.SerializeToString()
            await asyncio.Event().wait()

        replies = one.pullers.pull_batches(sent())
        told = [pump_pb2.PullBatchesResp.FromString(await anext(replies)).watermark for _ in range(3)]
        assert told == sorted(told)
        assert told[0] < 3995, "before all was read"
        await replies.aclose()  # type: ignore[attr-defined]


async def test_a_purged_range_is_refused(tmp_path: Path) -> None:
    async with pump(tmp_path, limits=StorageLimits(recent_bytes_max=1)) as one:
        written = await fill(one, [1, 2, 3])
        one.storage.purged_to(12)
        with pytest.raises(rpc.RpcStatus, match="below the gc timestamp 12"):
            await whole(one, after_ts=11, until_ts=25)
        payloads, _ = await whole(one, after_ts=12, until_ts=25)
        assert payloads == [written[15][1], written[25][1]]
