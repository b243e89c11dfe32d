"""The applier: whole transactions, large ones in pieces, other numbers of lanes, an operator who holds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator

import pytest

from common import binlog
from common.record import crc32c
from common.rowcodec.encoder import RowEncoder, prewrite_value
from common.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, TableInfo
from drainer.merger import Merged, MergedBatch, Spilled
from drainer.sink import mysql
from drainer.txn import INSERT
from tests.drainer.apply_life import (
    Life,
    Recording,
    column,
    create_job,
    created,
    differences,
    read,
    stored_ts,
)

pytestmark = pytest.mark.integration

ROWS = 20_000


def recording(*, keyed: bool, spilled: bool) -> Recording:
    """A table, and one transaction of many rows into it."""
    flag = FLAG_NOT_NULL | FLAG_PRIMARY if keyed else 0
    table = TableInfo(7, "t", (column(1, "a", LONG, flag), column(2, "b", VARCHAR)), pk_is_handle=keyed)
    job = create_job(table)
    encoder = RowEncoder(table)
    rows = [encoder.insert({"a": number, "b": "x" * 40}, rowid=number + 1) for number in range(ROWS)]
    payload = binlog.join(
        binlog.prewrite(1000, b"k", prewrite_value(1, [(7, [INSERT] * ROWS, rows)])),
        binlog.commit(1000, 1001, b"k"),
    )
    entry = Merged(1001, payload)
    if spilled:
        entry = Merged(1001, b"", spilled=spill(payload))
    return Recording(4711, [json.dumps(job).encode()], [created(job), entry])


def spill(payload: bytes) -> Spilled:
    return Spilled(
        1001, 1000, len(payload), 0, crc32c(payload), lambda offset, size: payload[offset : offset + size]
    )


def count(target: mysql.Target) -> tuple[int, int]:
    connection = mysql.connect(target)
    with contextlib.closing(connection):
        ((rows, distinct),) = mysql.rows(connection, b"SELECT COUNT(*), COUNT(DISTINCT a) FROM d.t")
    return int(rows), int(distinct)


async def test_whole_transactions_are_seen_at_once_or_not_at_all(target: mysql.Target) -> None:
    life = Life(recording(keyed=True, spilled=True), target, lanes=1, whole_transactions=True)
    run = asyncio.create_task(life.run())
    seen = set()
    while not run.done():
        with contextlib.suppress(mysql.pymysql.err.MySQLError):
            seen.add((await asyncio.to_thread(count, target))[0])
    await run
    seen.add(count(target)[0])
    assert seen == {0, ROWS} or seen == {ROWS}


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
async def test_a_large_transaction_survives_stops_and_deaths(target: mysql.Target, keyed: bool) -> None:
    recorded = recording(keyed=keyed, spilled=True)
    rng = random.Random(keyed)
    for graceful in (True, False, True, False):
        life = Life(recorded, target, batch_rows=500)
        run = asyncio.create_task(life.applier.run(life.batches(1)))
        await asyncio.sleep(rng.uniform(0.02, 0.15))
        if graceful:
            await life.applier.stop(10.0)
        else:
            life.die()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    assert await Life(recorded, target).run()
    assert count(target) == (ROWS, ROWS)
    assert stored_ts(target) == 1001


async def test_a_stop_inside_a_transaction_is_not_consistent(target: mysql.Target) -> None:
    life = Life(recording(keyed=False, spilled=True), target, batch_rows=200)
    run = asyncio.create_task(life.applier.run(life.batches(1)))
    while life.applier.rows == 0:
        await asyncio.sleep(0)
    assert not await life.applier.stop(10.0)
    await run
    assert 0 < count(target)[0] < ROWS
    connection = mysql.connect(target)
    ((text,),) = mysql.rows(connection, b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    connection.close()
    assert json.loads(text)["consistent"] is False


@pytest.mark.parametrize("name", ["keys", "txn"])
async def test_the_number_of_lanes_changes_while_rows_go_on(target: mysql.Target, name: str) -> None:
    recorded = read(name)
    rng = random.Random(name)

    async def batches(life: Life) -> AsyncIterator[MergedBatch]:
        async for batch in life.batches(7):
            life.applier.lane_count.wanted = rng.randint(1, 5)
            yield batch

    for dies in (True, True, False):
        life = Life(recorded, target, batch_rows=20)
        run = asyncio.create_task(life.applier.run(batches(life)))
        if dies:
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            life.die()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        else:
            await run
            assert await life.applier.stop(30.0)
    assert differences(name, target) == []


async def test_nothing_goes_downstream_while_an_operator_holds_it(target: mysql.Target) -> None:
    recorded = recording(keyed=True, spilled=False)
    life = Life(recorded, target)
    life.control.pause()
    run = asyncio.create_task(life.applier.run(life.batches(1)))
    while life.applier.doing != "held back by the operator":
        await asyncio.sleep(0.01)
    assert life.applier.rows == 0
    assert life.applier.resolved_ts == 0
    life.control.resume()
    await run
    assert await life.applier.stop(10.0)
    assert count(target) == (ROWS, ROWS)
