"""Timestamps that clients give twice: what was acknowledged first is what every reader gets, from memory and
from the log, in this life and after the index was built anew; and repetitions change nothing."""

from __future__ import annotations

import itertools
import logging
import random
import shutil
from pathlib import Path

import pytest

from pump.index.index import RECENT_MAX, Index
from pump.log.record import START, LogRecord, ValuePointer
from pump.storage.storage import Storage
from tests.pump.support.payloads import opened, pull, put, wait_watermark
from tidb_binlog import binlog

pytestmark = pytest.mark.usefixtures("each_index")
MESSAGE = "a client gave a commit the commit_ts of another transaction"


async def transactions(storage: Storage) -> list[tuple[int, int]]:
    """(start_ts, commit_ts) of all that readers get; memory and log agree."""
    served = await pull(storage, from_disk=True)
    assert [bytes(one.payload) for one in await pull(storage)] == [bytes(one.payload) for one in served]
    return [(one.start_ts, one.commit_ts) for one in served]


async def begin(storage: Storage, *start_tss: int) -> None:
    for start_ts in start_tss:
        await put(storage, binlog.prewrite(start_ts, b"key", b"of %d" % start_ts))


async def end(storage: Storage, *pairs: tuple[int, int]) -> None:
    for start_ts, commit_ts in pairs:
        await put(storage, binlog.commit(start_ts, commit_ts, b"key"))


async def test_a_second_commit_at_the_commit_ts_of_another_replaces_nothing_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as storage:
        await begin(storage, 10, 11)
        await end(storage, (10, 20), (10, 20))  # a client repeats it: nothing to say
        await begin(storage, 30)
        assert MESSAGE not in caplog.text
        with caplog.at_level(logging.ERROR):
            await end(storage, (11, 20), (30, 40))
        await wait_watermark(storage, 40)
        assert await transactions(storage) == [(10, 20), (30, 40)]
    assert caplog.text.count(MESSAGE) == 1
    (told,) = [record for record in caplog.records if MESSAGE in record.message]
    assert (told.fields["start_ts"], told.fields["first_start_ts"]) == (11, 10)  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path) as storage:
        assert await transactions(storage) == [(10, 20), (30, 40)]


@pytest.mark.parametrize("rebuilt", [False, True])
async def test_a_commit_at_the_start_ts_of_another_stops_no_pull_and_both_arrive(
    rebuilt: bool, tmp_path: Path
) -> None:
    """Whichever of the two came first."""
    async with opened(tmp_path) as storage:
        await begin(storage, 10, 20)
        await end(storage, (10, 20), (20, 25))
        await begin(storage, 30)
        await end(storage, (30, 40))
        await begin(storage, 40, 40)
        await end(storage, (40, 50))
        await wait_watermark(storage, 50)
        expected = [(10, 20), (20, 25), (30, 40), (40, 50)]
        assert await transactions(storage) == expected
    if rebuilt:
        shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path) as storage:
        assert await transactions(storage) == expected


async def test_every_order_of_what_shares_a_timestamp(tmp_path: Path) -> None:
    """Two commits at 20, a prewrite of 20 with its commit, and repetitions, filed one by one or together: the
    prewrite is always there, the first of the commits is the one that is filed."""
    first, second = (1, 10, 20), (1, 11, 20)
    for at, order in enumerate(itertools.permutations([first, second, (0, 20, 0), first, (0, 20, 0)])):
        records = [LogRecord(*head, ValuePointer(0, 100 * place)) for place, head in enumerate(order)]
        for together in (False, True):
            index = Index.open(str(tmp_path / f"{at}-{together}"), write_buffer_bytes=1 << 16)
            index.head_at = {record.place: record[:3] for record in records}.get
            for batch in [records] if together else [[record] for record in records]:
                index.write(batch, START, 0, START)
            assert index.pointer(20) == next(record.place for record in records if record.tp == 1)
            assert index.prewrite_pointer(20) == next(record.place for record in records if record.tp == 0)
            assert index.purge(0, 100, 0) == (2, None)
            assert index.pointer(20) is index.prewrite_pointer(20) is None
            index.close()


def test_random_batches_against_a_search_for_each(tmp_path: Path) -> None:
    """Three times as many as are remembered, most in order: what is new is known without a search for it,
    also of those far back, and after a start."""
    rng, truth, place = random.Random(9), dict[int, LogRecord](), 0
    heads: dict[ValuePointer, LogRecord] = {}
    index = Index.open(str(tmp_path / "kv"))
    clock = 1000
    while len(truth) < 3 * RECENT_MAX:
        batch = []
        for _ in range(rng.randint(1, 2000)):
            clock += 2
            near = rng.choice(
                [clock, clock, clock, clock, clock - rng.randrange(200), rng.randrange(1, clock)]
            )
            ts = near if rng.random() < 0.05 else clock
            place += 10
            batch.append(LogRecord(1, rng.choice([7, 8]), ts, ValuePointer(0, place)))
        for record in batch:
            truth.setdefault(record.commit_ts, record)
            heads[record.place] = record
        index.head_at = lambda place: heads[place][:3]
        index.write(batch, START, 0, START)
        if rng.random() < 0.1:
            index.close()
            index = Index.open(str(tmp_path / "kv"))
    found = [(ts, place) for run in index.runs(0, clock + 1) for ts, place in zip(*run, strict=True)]
    assert found == [(ts, truth[ts].place) for ts in sorted(truth)]
    index.close()


@pytest.mark.parametrize("mark_first", [True, False])
async def test_a_time_mark_at_the_commit_ts_of_a_transaction_hides_nothing(
    mark_first: bool, tmp_path: Path
) -> None:
    """An oracle that stands still gives both one timestamp; who lies about a mark hides no commit."""
    async with opened(tmp_path, draws=True) as storage:
        await begin(storage, 10)
        for marks in (mark_first, not mark_first):
            await (put(storage, binlog.fake(20)) if marks else end(storage, (10, 20)))
        storage.mark(21)
        await wait_watermark(storage, 21)
        assert await transactions(storage) == [(10, 20)]
