"""The applier: whole transactions, large ones in pieces, other numbers of lanes, an operator who holds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from drainer import metrics
from drainer.checkpoint.fencing import WentBack
from drainer.checkpoint.keeper import HOLD_S, PURGE_S
from drainer.ddl.run import progress
from drainer.formats.binlog_directory import BinlogDirectory, DiskFull
from drainer.mysql.connection import Target, connect
from drainer.mysql.errors import NoSuchTable, SessionError, Trouble
from drainer.relay.relay_log import Entry, RelayFiles, RelayLog
from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import INSERT, Transaction
from tests.drainer.support.apply_life import (
    Life,
    Recording,
    column,
    create_job,
    created,
    differences,
    read,
    stored_ts,
)
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.record import crc32c
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, VARCHAR, TableInfo

pytestmark = pytest.mark.integration

ROWS = 20_000
ADD_COLUMN = 5


def recording(*, keyed: bool, spilled: bool, transactions: int = 1) -> Recording:
    """A table, and one transaction of many rows into it, or more that have as many together."""
    flag = FLAG_NOT_NULL | FLAG_PRIMARY if keyed else 0
    table = TableInfo(7, "t", (column(1, "a", LONG, flag), column(2, "b", VARCHAR)), pk_is_handle=keyed)
    job = create_job(table)
    encoder = RowEncoder(table)
    rows = [encoder.insert({"a": number, "b": "x" * 40}, rowid=number + 1) for number in range(ROWS)]
    entries, size = [], ROWS // transactions
    for number in range(transactions):
        start_ts, commit_ts = 1000 + 2 * number, 1001 + 2 * number
        mutations = [INSERT] * size, rows[number * size : (number + 1) * size]
        payload = binlog.join(
            binlog.prewrite(start_ts, b"k", prewrite_value(1, [(7, *mutations)])),
            binlog.commit(start_ts, commit_ts, b"k"),
        )
        entries.append(
            Merged(commit_ts, b"", spilled=spill(payload)) if spilled else Merged(commit_ts, payload)
        )
    return Recording(4711, [json.dumps(job).encode()], [created(job), *entries])


def spill(payload: bytes) -> Spilled:
    return Spilled(
        1001, 1000, len(payload), 0, crc32c(payload), lambda offset, size: payload[offset : offset + size]
    )


def count(target: Target, isolation: str = "READ COMMITTED") -> tuple[int, int]:
    connection = connect(target)
    rows = distinct = 0
    with contextlib.closing(connection), contextlib.suppress(NoSuchTable):  # it is created by the stream
        connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL " + isolation.encode())
        ((rows, distinct),) = connection.rows(b"SELECT COUNT(*), COUNT(DISTINCT a) FROM d.t")
    return int(rows), int(distinct)


async def test_whole_transactions_are_seen_at_once_or_not_at_all(target: Target) -> None:
    life = Life(recording(keyed=True, spilled=True), target, lanes=1, whole_transactions=True)
    run = asyncio.create_task(life.run())
    seen = set()
    while not run.done():
        with contextlib.suppress(SessionError):
            seen.add((await asyncio.to_thread(count, target))[0])
    await run
    seen.add(count(target)[0])
    assert seen == {0, ROWS} or seen == {ROWS}


@pytest.mark.parametrize("keyed", [False, True], ids=["keyless", "keyed"])
async def test_a_large_transaction_survives_stops_and_deaths(target: Target, keyed: bool) -> None:
    recorded = recording(keyed=keyed, spilled=True)
    rng = random.Random(keyed)
    for graceful in (True, False, True, False):
        life = Life(recorded, target, batch_rows=500)
        run = asyncio.create_task(life.runner.run(life.batches(1)))
        await asyncio.sleep(rng.uniform(0.02, 0.15))
        if graceful:
            await life.runner.stop(10.0)
        else:
            life.die()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    assert await Life(recorded, target).run()
    assert count(target) == (ROWS, ROWS)
    assert stored_ts(target) == 1001


async def test_rows_are_executed_while_the_relay_log_syncs_and_committed_after_it(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, synced = RelayFiles.sync, threading.Event()

    def held(files: RelayFiles, entries: Sequence[Entry] = ()) -> tuple[tuple[int, ...], int]:
        sizes = sync(files, entries)
        if any(isinstance(entry, Transaction) for entry in entries):
            synced.wait()
        return sizes

    monkeypatch.setattr(RelayFiles, "sync", held)
    relay = RelayLog.open(str(tmp_path), 0, SystemClock())
    life = Life(recording(keyed=True, spilled=False), target, batch_rows=ROWS, relay=relay)
    run = asyncio.create_task(life.run())
    try:
        while not count(target, "READ UNCOMMITTED")[0]:
            await asyncio.sleep(0.01)
        while count(target) == (0, 0) and Trouble.RELAY_LOG.value not in {
            state.trouble for state in life.sink.lane_states()
        }:
            await asyncio.sleep(0.01)
        assert count(target) == (0, 0)
    finally:
        synced.set()
    assert await run
    assert count(target) == (ROWS, ROWS)


async def test_a_relay_log_on_a_full_disk_has_room_again_as_rows_are_committed(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, refused = BinlogDirectory.append, 0

    def bounded(directory: BinlogDirectory, parts: Sequence[bytes]) -> int:
        nonlocal refused
        if len(directory.files) > 3:
            refused += 1
            raise DiskFull("three files are there")
        return append(directory, parts)

    relay = RelayLog.open(str(tmp_path), 100_000, SystemClock())
    monkeypatch.setattr(BinlogDirectory, "append", bounded)
    life = Life(recording(keyed=True, spilled=False, transactions=100), target, relay=relay)
    assert await life.run(size=10)
    assert count(target) == (ROWS, ROWS)
    assert refused > 0


async def test_a_reload_changes_how_many_rows_a_transaction_has(target: Target) -> None:
    observed: list[int] = []
    life = Life(read("txn"), target, lanes=1, batch_rows=1000)
    life.sink.lanes.change_batch_rows(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "LANE_BATCH_ROWS", SimpleNamespace(observe=observed.append))
        await life.run()
    assert min(observed) < 500, "by the rows of before none would have less than 900"


async def test_a_stop_inside_a_transaction_is_not_consistent(target: Target) -> None:
    life = Life(recording(keyed=False, spilled=True), target, batch_rows=200)
    run = asyncio.create_task(life.runner.run(life.batches(1)))
    while life.runner.rows == 0:
        await asyncio.sleep(0)
    assert not await life.runner.stop(10.0)
    await run
    assert 0 < count(target)[0] < ROWS
    connection = connect(target)
    ((text,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    connection.close()
    assert json.loads(text)["consistent"] is False


@pytest.mark.parametrize("name", ["keys", "txn"])
async def test_the_number_of_lanes_changes_while_rows_go_on(target: Target, name: str) -> None:
    recorded = read(name)
    rng = random.Random(name)

    async def batches(life: Life) -> AsyncIterator[MergedBatch]:
        async for batch in life.batches(7):
            life.sink.lanes.count.goal = rng.randint(1, 5)
            yield batch

    for dies in (True, True, False):
        life = Life(recorded, target, batch_rows=20)
        run = asyncio.create_task(life.runner.run(batches(life)))
        if dies:
            await asyncio.sleep(rng.uniform(0.1, 0.4))
            life.die()
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        else:
            await run
            assert await life.runner.stop(PATIENCE_S)
    assert differences(name, target) == []


async def test_nothing_goes_downstream_while_an_operator_holds_it(target: Target) -> None:
    recorded = recording(keyed=True, spilled=False)
    life = Life(recorded, target)
    life.control.pause()
    run = asyncio.create_task(life.runner.run(life.batches(1)))
    while life.runner.doing != "held back by the operator":
        await asyncio.sleep(0.01)
    assert life.runner.rows == 0
    assert life.runner.resolved_ts == 0
    life.control.resume()
    await run
    assert await life.runner.stop(PATIENCE_S)
    assert count(target) == (ROWS, ROWS)


async def test_what_was_set_aside_is_looked_through_once_a_minute(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes when the stream is far enough after the drop: no other DROP has to come for that."""
    second = 1000 << 18
    table, other = (TableInfo(number, name, (column(1, "a", LONG),)) for number, name in ((7, "t"), (8, "u")))
    dropped = create_job(table, job_id=10, schema_version=2) | {
        "type": ActionType.DROP_TABLE,
        "query": "DROP TABLE `t`",
    }
    jobs = [create_job(table), dropped, create_job(other, job_id=11, schema_version=3)]
    entries = [created(job, at) for job, at in zip(jobs, (second, 2 * second, 1803 * second), strict=True)]
    clock = ManualClock()
    life = Life(Recording(4711, [json.dumps(job).encode() for job in jobs], entries), target, clock=clock)
    life.runner.change_interval(0.0)
    await life.runner.run(life.batches(50))
    looks, purges = asyncio.Semaphore(0), []
    save, purge = life.sink.save, life.sink.ddl_runner.purge

    async def saved() -> None:
        await save()
        looks.release()

    def purged(commit_ts: int) -> None:
        purges.append(commit_ts)
        purge(commit_ts)

    monkeypatch.setattr(life.sink, "save", saved)
    monkeypatch.setattr(life.sink.upkeep, "_purge", purged)
    keeping = asyncio.create_task(life.runner.keep_checkpoint())

    async def some_rounds() -> bool:
        """Whether the dropped table is still there after them."""
        for _ in range(3):
            await looks.acquire()
        connection = connect(target)
        with contextlib.closing(connection):
            return len(connection.rows(b"SHOW TABLES FROM tidb_binlog LIKE 'dropped%'")) == 1

    assert await some_rounds()
    clock.advance(PURGE_S - 1)
    assert await some_rounds()
    clock.advance(1)
    assert not await some_rounds()
    clock.advance(PURGE_S)
    await some_rounds()
    assert purges == [entries[-1].commit_ts] * 2
    keeping.cancel()
    assert await life.runner.stop(PATIENCE_S)


async def test_a_ddl_that_takes_long_says_how_far_it_is(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_S", 0.01)
    recorded = recording(keyed=True, spilled=False)
    assert await Life(Recording(4711, recorded.jobs, recorded.entries[:1]), target).run()
    wide = TableInfo(7, "t", (column(1, "a", LONG, FLAG_NOT_NULL | FLAG_PRIMARY), column(2, "b", VARCHAR)))
    job = create_job(wide, job_id=10, schema_version=2)
    job |= {"type": ADD_COLUMN, "query": "ALTER TABLE `t` ADD COLUMN `c` INT"}
    stream = Recording(4711, [*recorded.jobs, json.dumps(job).encode()], [created(job, 950)])
    life = Life(stream, target)
    holder = connect(target)
    holder.rows(b"SELECT * FROM d.t")  # in a transaction: the ALTER waits for it
    run = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_S):  # it is at something else before
        while "Waiting for table metadata lock for" not in life.runner.facts()["DDL"]["progress"]:
            await asyncio.sleep(0.01)
    assert life.runner.doing == "running DDL job 10"
    holder.close()
    assert await run
    assert life.runner.facts()["DDL"]["progress"] == ""


async def test_a_drainer_with_nothing_to_do_sees_that_the_downstream_went_back(target: Target) -> None:
    """Nothing connects anew on a quiet day; it reads every few seconds, and shows by that that it lives."""
    clock = ManualClock()
    table = TableInfo(7, "t", (column(1, "a", LONG),))
    job = create_job(table)
    recording = Recording(4712, [json.dumps(job).encode()], [created(job)])
    life = Life(recording, target, clock=clock)
    life.runner.change_interval(0.0)
    await life.runner.run(life.batches(50))
    await life.sink.save()
    keeping = asyncio.create_task(life.runner.keep_checkpoint())
    run_in(target, "UPDATE tidb_binlog.lanes SET applied_ts=applied_ts-1 WHERE lane < 65536")
    await asyncio.sleep(0)
    clock.advance(HOLD_S)
    with pytest.raises(WentBack, match="lane 0 stands at"):
        await asyncio.wait_for(keeping, PATIENCE_S)
    await life.sink.abandon()


def run_in(target: Target, statement: str) -> None:
    connection = connect(target)
    connection.run(statement.encode())
    connection.commit()
    connection.close()
