"""An index whose LevelDB stalls: writers do not notice, memory stays bounded, afterwards everything is there.

How long it stalls does not matter to anything here, so it stalls until it is told to go on.
"""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pump.index.index import Index
from pump.log.record import LogRecord, ValuePointer
from pump.storage import opening
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.pump.support.payloads import filed, opened, pull, put, wait_watermark
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog

QUEUE_BYTES = 256 << 10
LIMITS = StorageLimits(
    index_queue_bytes_max=QUEUE_BYTES, recent_bytes_max=QUEUE_BYTES, segment_bytes_max=2 << 20
)
BEFORE, DURING, AFTER = range(20), range(20, 2000), range(2000, 2040)
A_GROUP = 20
BESIDES_BYTES = 1 << 20  # records on their way through, open prewrites, what the test itself makes


class StallingIndex(Index):
    """LevelDB that takes no write while `open` is cleared."""

    open_gate = threading.Event()
    stalled = threading.Event()

    def write(
        self, records: Sequence[LogRecord], head: ValuePointer, watermark: int, decided: ValuePointer
    ) -> None:
        if not self.open_gate.is_set():
            self.stalled.set()
            self.open_gate.wait()
        super().write(records, head, watermark, decided)


@pytest.fixture(autouse=True)
def stalling_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "Index", StallingIndex)
    StallingIndex.open_gate.set()
    StallingIndex.stalled.clear()


@contextmanager
def stall() -> Iterator[None]:
    """Nothing is filed until the end of the block, whatever happens in it."""
    StallingIndex.open_gate.clear()
    try:
        yield
    finally:
        StallingIndex.open_gate.set()


def start_ts(number: int) -> int:
    return 1000 + 10 * number


def commit_ts(number: int) -> int:
    return start_ts(number) + 5


def prewrite(number: int) -> bytes:
    return binlog.prewrite(start_ts(number), b"key", b"%d" % number * 1000)


def commit(number: int) -> bytes:
    return binlog.commit(start_ts(number), commit_ts(number), b"key")


async def write(storage: Storage, numbers: range) -> None:
    """Transactions, some at once. Each write is acknowledged before the next."""
    for first in range(numbers.start, numbers.stop, A_GROUP):
        group = range(first, min(first + A_GROUP, numbers.stop))
        async with asyncio.timeout(PATIENCE_S):
            await put(storage, *map(prewrite, group))
            await put(storage, *map(commit, group))


async def check_pull(storage: Storage, count: int) -> None:
    """The first `count` transactions and nothing else, in order, from memory and from the disk."""
    for from_disk in (False, True):
        found = await pull(storage, from_disk=from_disk)
        assert [delivery.commit_ts for delivery in found] == [commit_ts(number) for number in range(count)]
        for number, delivery in enumerate(found):
            assert delivery.payload == binlog.join(prewrite(number), commit(number))


async def test_writers_do_not_wait_and_afterwards_everything_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=LIMITS, sync=False) as storage:
        await write(storage, BEFORE)
        await wait_watermark(storage, commit_ts(BEFORE[-1]))
        before = storage.watermark

        with stall():
            await write(storage, DURING)
            assert StallingIndex.stalled.is_set()
            assert storage.is_chasing
            assert storage.index_lag_bytes > 4 * QUEUE_BYTES
            # What is not in the index is not promised: a puller gets what was there, and nothing wrong.
            assert storage.watermark == before
            await check_pull(storage, len(BEFORE))

        await wait_watermark(storage, commit_ts(DURING[-1]))
        await check_pull(storage, DURING.stop)
        await write(storage, AFTER)
        await wait_watermark(storage, commit_ts(AFTER[-1]))
        assert not storage.is_chasing
        assert storage.index_lag_bytes == 0
        await check_pull(storage, AFTER.stop)
        found = [ts for ts, _ in filed(storage.index, 0, commit_ts(AFTER[-1]))]
        assert found == sorted([f(number) for number in range(AFTER.stop) for f in (start_ts, commit_ts)])


async def test_memory_stays_bounded_while_the_index_stalls(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=LIMITS, sync=False) as storage:
        await write(storage, BEFORE)
        await wait_watermark(storage, commit_ts(BEFORE[-1]))
        with stall():
            tracemalloc.start()
            try:
                await write(storage, DURING)
                held, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert storage.index_lag_bytes > 4 * (2 * QUEUE_BYTES + BESIDES_BYTES)
            assert held < 2 * QUEUE_BYTES + BESIDES_BYTES
            assert most < 2 * QUEUE_BYTES + 2 * BESIDES_BYTES
        await wait_watermark(storage, commit_ts(DURING[-1]))


async def test_a_kill_during_the_stall_loses_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=LIMITS, sync=False, abandon=True) as storage:
        await write(storage, BEFORE)
        await wait_watermark(storage, commit_ts(BEFORE[-1]))
        with stall():
            await write(storage, DURING)
        # The thread has to end before the files are let go; what it files is not settled any more.
    async with opened(tmp_path, limits=LIMITS, sync=False) as storage:
        await wait_watermark(storage, commit_ts(DURING[-1]))
        await check_pull(storage, DURING.stop)
