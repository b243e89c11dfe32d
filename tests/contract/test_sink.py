"""The contract of sinks (`drainer.sink`), for every kind of downstream; each check of it can fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from drainer.pull.merged import MergedBatch
from drainer.sink import Sink
from drainer.txn import INSERT, Ddl
from tests.contract.beds import BEDS, NEEDS_SERVERS, Bed, MemoryBed, MemorySink, Stream

KINDS = [pytest.param(name, marks=pytest.mark.integration if name in NEEDS_SERVERS else ()) for name in BEDS]


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture(params=KINDS)
def bed(request: pytest.FixtureRequest, stream: Stream) -> Bed:
    return BEDS[request.param](request, stream)


class Life:
    """One life of a sink: it is given what the stream has when the test says so, and watched all the time."""

    def __init__(self, bed: Bed, stream: Stream) -> None:
        self.bed = bed
        self._stream = stream
        self.runner = bed.open()
        self.sink: Sink = self.runner.sink
        self._given: asyncio.Queue[MergedBatch | None] = asyncio.Queue()
        self._given_ts = self.sink.start_ts
        self._seen = (0, 0, 0)
        self._run = asyncio.create_task(self.runner.run(self._batches()))
        works = [self.runner.watch(), self.runner.keep_checkpoint(), *self.sink.tasks().values()]
        self._others = [asyncio.create_task(work) for work in works]

    async def _batches(self) -> AsyncIterator[MergedBatch]:
        while (batch := await self._given.get()) is not None:
            yield batch

    def give(self, upto_ts: int = 1 << 60, size: int = 3) -> None:
        entries = [one for one in self._stream.recording.entries if self._given_ts < one.commit_ts <= upto_ts]
        for at in range(0, len(entries), size):
            batch = entries[at : at + size]
            self._given.put_nowait(MergedBatch(batch, batch[-1].commit_ts))
            self._given_ts = batch[-1].commit_ts

    def promise(self, watermark: int) -> None:
        """Pumps have nothing up to there."""
        self._given.put_nowait(MergedBatch([], watermark))

    def look(self) -> None:
        sink = self.sink
        seen = sink.stored_ts, sink.resolved_ts, sink.handed_over_ts
        assert list(seen) == sorted(seen), "handed over >= resolved >= stored"
        assert all(map(int.__ge__, seen, self._seen)), "none of them falls"
        self._seen = seen

    async def until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():
                for task in (self._run, *self._others):
                    if task.done():
                        task.result()
                self.look()
                await asyncio.sleep(0.001)
        self.look()

    async def stop(self) -> None:
        self._given.put_nowait(None)
        await self._run
        assert await self.runner.stop(30.0)
        await self._end()

    async def die(self) -> None:
        await asyncio.sleep(0.001)
        self._run.cancel()
        await self.bed.die()
        await self._end()

    async def _end(self) -> None:
        for task in self._others:
            task.cancel()
        await asyncio.gather(self._run, *self._others, return_exceptions=True)


def same_rows(bed: Bed, stream: Stream) -> None:
    for table, rows in stream.expected.items():
        assert bed.rows(table) == sorted(rows), table


async def in_order_and_once(bed: Bed, stream: Stream) -> None:
    """Whatever dies where: rows of a table without key are there once, keys have what was written last."""
    rng = random.Random(1)
    stream.changes(rng, 120)
    entries = stream.recording.entries
    for _ in range(4):
        life = Life(bed, stream)
        assert life.sink.start_ts >= life.sink.stored_ts
        wanted = max(entries[rng.randrange(len(entries))].commit_ts, life.sink.start_ts)
        life.give()
        await life.until(lambda wanted=wanted, sink=life.sink: sink.resolved_ts >= wanted)  # type: ignore[misc]
        await life.die()
    life = Life(bed, stream)
    life.give()
    await life.until(lambda: life.sink.resolved_ts >= entries[-1].commit_ts)
    await life.stop()
    same_rows(bed, stream)


async def a_watermark_moves_what_is_resolved_and_stored(bed: Bed, stream: Stream) -> None:
    life = Life(bed, stream)
    life.give()
    life.promise(5000)
    await life.until(lambda: life.sink.stored_ts == 5000, 10.0)
    await life.stop()
    stream.now_ts = 6000
    later_ts = stream.transaction(("t", INSERT, (1, "later")))
    again = Life(bed, stream)
    assert again.sink.start_ts == 5000, "nothing comes again"
    again.give()
    await again.until(lambda: again.sink.stored_ts == later_ts)
    await again.stop()
    same_rows(bed, stream)


async def a_stop_stores_what_was_done(bed: Bed, stream: Stream) -> None:
    stream.changes(random.Random(2), 40)
    life = Life(bed, stream)
    life.give()
    await life.stop()
    same_rows(bed, stream)
    again = Life(bed, stream)
    assert again.sink.start_ts == again.sink.stored_ts == stream.now_ts
    await again.stop()


async def what_waits_is_bounded(bed: Bed, stream: Stream) -> None:
    """While nothing is written little is taken; and nothing counts as resolved that is not there."""
    stream.transaction(("t", INSERT, (1, "first")), ("u", INSERT, (0, "first")))
    first_ts = stream.now_ts
    life = Life(bed, stream)
    life.give()
    await life.until(lambda: life.sink.resolved_ts >= first_ts)
    for _ in range(10):
        stream.changes(random.Random(3), 100)
    with bed.blocked():
        life.give(size=1)
        taken = -1
        while taken != life.runner.transactions:
            taken = life.runner.transactions
            await asyncio.sleep(0.3)
            life.look()
        assert taken < 700, "of 1000 that were given"
        assert life.sink.resolved_ts < stream.now_ts
        assert life.sink.stored_ts < stream.now_ts
    await life.until(lambda: life.sink.resolved_ts >= stream.now_ts)
    await life.stop()
    same_rows(bed, stream)


async def a_ddl_is_a_barrier(bed: Bed, stream: Stream) -> None:
    """A table is dropped and made again, over and over: rows belong to the one that they came for."""
    rng = random.Random(4)
    for _ in range(4):
        stream.changes(rng, 15)
        stream.drop_and_make_again()
    stream.changes(rng, 15)
    life = Life(bed, stream)
    life.give(size=7)
    await life.until(lambda: life.sink.resolved_ts >= stream.now_ts)
    await life.stop()
    same_rows(bed, stream)


CHECKS = [
    in_order_and_once,
    a_watermark_moves_what_is_resolved_and_stored,
    a_stop_stores_what_was_done,
    what_waits_is_bounded,
    a_ddl_is_a_barrier,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract(bed: Bed, stream: Stream, check: Any) -> None:
    await check(bed, stream)


# -- each check can fail ------------------------------------------------------------------------------------


class StoresAhead(MemorySink):
    """The position is stored before the data."""

    async def save(self) -> None:
        self._medium.position = self._last_ts


class Repeats(MemorySink):
    """A start from the checkpoint alone, which lags behind the data."""

    @property
    def start_ts(self) -> int:
        return self._medium.position


class Backwards(MemorySink):
    async def flush(self) -> None:
        self._given.reverse()
        await super().flush()


class IgnoresWatermarks(MemorySink):
    def watermark(self, ts: int) -> None:
        pass


class ForgetsAtTheEnd(MemorySink):
    async def finish(self, *, broken: bool) -> None:
        pass


class TakesAll(MemorySink):
    """It waits for nothing, and says that all is there."""

    async def flush(self) -> None:
        self._resolved_ts = self._last_ts
        if self._medium.free.is_set():
            await super().flush()


class PassesDdl(MemorySink):
    """DDL take effect before the rows that came before them."""

    async def take_ddl(self, ddl: Ddl) -> None:
        await super().take_ddl(ddl)
        self._medium.items.append(self._given.pop())

    async def flush(self) -> None:
        if len(self._given) > 20 or self._stopped:
            await super().flush()
        self._resolved_ts = self._last_ts

    _stopped = False

    def stop(self) -> None:
        self._stopped = True


@pytest.mark.parametrize(
    ("check", "mutant"),
    [
        (in_order_and_once, Repeats),
        (in_order_and_once, Backwards),
        (a_watermark_moves_what_is_resolved_and_stored, IgnoresWatermarks),
        (a_stop_stores_what_was_done, ForgetsAtTheEnd),
        (what_waits_is_bounded, TakesAll),
        (what_waits_is_bounded, StoresAhead),
        (a_ddl_is_a_barrier, PassesDdl),
    ],
    ids=lambda one: one.__name__,
)
async def test_a_sink_that_breaks_it_is_found(stream: Stream, check: Any, mutant: type[MemorySink]) -> None:
    with pytest.raises((AssertionError, TimeoutError, ValueError)):
        await asyncio.wait_for(check(MemoryBed(stream, mutant), stream), 20)
