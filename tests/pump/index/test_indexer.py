"""The indexer with an index that fails: it waits, tries again, and promises nothing meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pump.index.index import Index
from pump.index.indexer import Indexer, WorkerThread
from pump.index.recent_commits import RecentCommits
from pump.index.sorter import Sorter
from pump.log.record import START, LogRecord, ValuePointer
from pump.log.value_log import ValueLog
from pump.log.writer import WrittenGroup
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tests.pump.support.memory_log import MemoryDirectory
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import Clock, SystemClock

T = TypeVar("T")


class FailingIndex(Index):
    """LevelDB whose disk is full for the first few writes."""

    failures = 1

    def write(
        self, records: Sequence[LogRecord], head: ValuePointer, watermark: int, decided: ValuePointer
    ) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("No space left on device")
        super().write(records, head, watermark, decided)


def indexer_of(
    log: ValueLog,
    index: Index,
    cursor: ValuePointer,
    advanced: list[int],
    troubles: list[str] | None = None,
    clock: Clock | None = None,
) -> Indexer:
    """Of an index that has all before `cursor`. Notes watermarks and troubles."""
    told = [] if troubles is None else troubles
    return Indexer(
        log,
        index,
        Sorter(),
        RecentCommits(0, bytes_max=1 << 20),
        cursor=cursor,
        indexed_to=cursor,
        queue_bytes_max=1 << 20,
        clock=clock or SystemClock(),
        on_advance=advanced.append,
        on_settled=lambda: None,
        on_late=lambda _: None,
        on_given_up=lambda _: None,
        on_trouble=lambda error: told.append(str(error)),
        on_replayed=lambda _: None,
    )


async def test_index_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
    log.open(START, START, 0)
    index = FailingIndex.open(str(tmp_path / "kv"))
    advanced: list[int] = []
    troubles: list[str] = []
    indexer = indexer_of(log, index, log.end, advanced, troubles)
    payloads = [binlog.prewrite(10, b"k", b"v"), binlog.commit(10, 11)]
    places = log.append(payloads)
    log.commit(places, len(payloads[-1]), 11, sync=True)
    records = [LogRecord(binlog.PREWRITE, 10, 0, places[0]), LogRecord(binlog.COMMIT, 10, 11, places[1])]
    indexer.accept(WrittenGroup(records, payloads, log.end, 0.0, 0.0, 0.0))
    indexer.mark(11)
    following = asyncio.create_task(indexer.run())
    async with asyncio.timeout(PATIENCE_S):
        while not troubles:
            await asyncio.sleep(0)
        assert advanced == []
        await indexer.close()
        await following
    assert troubles == ["No space left on device", "None"]
    assert advanced == [11]
    assert index.pointer(11) == places[1]
    assert (index.head, index.handle, index.max_commit_ts) == (places[1], places[1], 11)
    index.close()


async def test_pending_marks_are_bounded(tmp_path: Path) -> None:
    log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
    log.open(START, START, 0)
    payload = binlog.fake(5)
    log.commit(log.append([payload]), len(payload), 5, sync=True)
    index = Index.open(str(tmp_path / "kv"))
    advanced: list[int] = []
    indexer = indexer_of(log, index, START, advanced)  # one record behind, so marks have to wait
    for ts in range(100, 1100):
        indexer.mark(ts)
    assert len(indexer._marks) <= 64
    assert advanced == []
    following = asyncio.create_task(indexer.run())
    async with asyncio.timeout(PATIENCE_S):
        while indexer.lag_bytes:
            await asyncio.sleep(0)
    await indexer.close()
    await following
    assert advanced[-1] == 1099
    index.close()


async def test_a_mark_waits_for_what_stood_before_it_alone_though_more_is_indexed_with_it(
    tmp_path: Path,
) -> None:
    log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
    log.open(START, START, 0)
    index = Index.open(str(tmp_path / "kv"))
    advanced: list[int] = []
    indexer = indexer_of(log, index, log.end, advanced)
    for payload, tp, commit_ts, mark_ts in (
        (binlog.fake(10), binlog.ROLLBACK, 10, 20),
        (binlog.prewrite(30, b"k", b"v"), binlog.PREWRITE, 0, 40),
    ):
        (place,) = log.append([payload])
        log.commit([place], len(payload), commit_ts, sync=True)
        record = LogRecord(tp, 10 if commit_ts else 30, commit_ts, place)
        indexer.accept(WrittenGroup([record], [payload], log.end, 0.0, 0.0, 0.0))
        indexer.mark(mark_ts)
    following = asyncio.create_task(indexer.run())
    async with asyncio.timeout(PATIENCE_S):
        while indexer.lag_bytes:
            await asyncio.sleep(0)
    await indexer.close()
    await following
    assert advanced[-1] == 20, "the prewrite that came after it holds the second mark"
    index.close()


class AtOnce(WorkerThread):
    """No thread: virtual time knows of none."""

    def run(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        done.set_result(function(*arguments))
        return done


class CountingIndex(Index):
    """Notes how many records each batch has."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sizes: list[int] = []

    def write(
        self, records: Sequence[LogRecord], head: ValuePointer, watermark: int, decided: ValuePointer
    ) -> None:
        self.sizes.append(len(records))
        super().write(records, head, watermark, decided)


def batches(
    directory: Path, apart_s: float, *, marked: bool = False, groups: int = 100, records: int = 1
) -> list[int]:
    """Sizes of those in which groups are filed within ten milliseconds of the last."""

    async def main() -> list[int]:
        log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
        log.open(START, START, 0)
        index = CountingIndex.open(str(directory / "kv"))
        indexer = indexer_of(log, index, log.end, [], clock=LoopClock())
        indexer._thread, indexer._queue_bytes_max = AtOnce("none"), 1 << 30
        following = asyncio.create_task(indexer.run())
        await virtual_time.passes(0.01)
        for group in range(groups):
            span = range(1 + group * records, 1 + (group + 1) * records)
            payloads = [binlog.fake(ts) for ts in span]
            places = log.append(payloads)
            log.commit(places, len(payloads[-1]), span[-1], sync=True)
            filed = [
                LogRecord(binlog.ROLLBACK, ts, ts, place) for ts, place in zip(span, places, strict=True)
            ]
            indexer.accept(WrittenGroup(filed, payloads, log.end, 0.0, 0.0, 0.0))
            if marked:
                indexer.mark(span[-1])
            if apart_s:
                await virtual_time.passes(apart_s)
        await virtual_time.passes(0.01)
        sizes = [size for size in index.sizes if size]
        await indexer.close()
        await following
        index.close()
        return sizes

    return virtual_time.run(main())


def test_groups_that_come_without_a_pause_share_batches(tmp_path: Path) -> None:
    sizes = batches(tmp_path, 0.0002)
    assert sum(sizes) == 100
    assert len(sizes) < 30


def test_groups_with_pauses_between_them_are_filed_at_once(tmp_path: Path) -> None:
    assert batches(tmp_path, 0.002) == [1] * 100


def test_and_so_are_those_for_which_a_mark_waits(tmp_path: Path) -> None:
    assert batches(tmp_path, 0.0002, marked=True) == [1] * 100


def test_what_fills_batches_waits_for_no_more(tmp_path: Path) -> None:
    assert batches(tmp_path, 0.0, groups=20, records=1024) == [1024] * 20


async def test_jobs_run_in_order_on_one_thread() -> None:
    worker = WorkerThread("worker-under-test")
    seen: list[tuple[int, str]] = []
    results = [
        worker.run(lambda n=number: seen.append((n, threading.current_thread().name)) or n * 2)
        for number in range(50)
    ]
    assert await asyncio.gather(*results) == [number * 2 for number in range(50)]
    assert seen == [(number, "worker-under-test") for number in range(50)]
    await worker.stop()
    await worker.stop()
    assert not any(thread.name == "worker-under-test" for thread in threading.enumerate())


async def test_an_error_reaches_who_waits_and_the_next_job_runs() -> None:
    worker = WorkerThread("worker-under-test")

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await worker.run(fail)
    assert await worker.run(sum, [1, 2]) == 3
    given_up = worker.run(sum, [3])
    given_up.cancel()
    assert await worker.run(sum, [4]) == 4
    await worker.stop()


async def test_what_was_given_is_done_before_the_end() -> None:
    worker = WorkerThread("worker-under-test")
    gate = threading.Event()
    first, second = worker.run(gate.wait, 5), worker.run(sum, [1])
    gate.set()
    await worker.stop()
    await asyncio.sleep(0)
    assert (first.result(), second.result()) == (True, 1)
