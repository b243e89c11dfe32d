"""Sink contract: what a sink must keep, as checks that a test suite of one's own runs.

    class TestPrices(SinkContract):
        @pytest.fixture
        def bed(self, tmp_path):
            return PricesBed(tmp_path)

    class PricesBed(BatchBed):
        def sink(self):             # another life of the sink, on the same store
            return Prices({"path": ...})

        def rows(self, table):      # what is in the store of d.t and d.u
            return [(id, v), ...]

Works without pytest as well: each of `CHECKS` and `BATCH_CHECKS` is a coroutine function of a bed and a
`Stream`. It raises `AssertionError`, `TimeoutError`, or what the sink or the bed raised.

Holds  every check can fail: `tests/contract/test_sink.py` and `test_batch_sink.py` have a sink that breaks it

Tests  tests/contract/test_sink.py, tests/contract/test_batch_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

from drainer.sink import Sink
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import MergedBatch
from drainer.testing.batch_bed import BatchBed
from drainer.testing.stream import Rows, Stream
from drainer.txn import INSERT
from tidb_binlog.tso import Ts

LIMIT_S: Final = 60.0


class Bed(Protocol):
    """One downstream, through all lives of its sink.

    `exactly_once`: nothing is there twice, whatever dies. `follows_ddl`: a table that is dropped is empty.
    """

    exactly_once: bool
    follows_ddl: bool

    async def open(self, stream: Stream) -> Runner[Any]:
        """A life, from what is stored."""
        ...

    async def die(self) -> None:
        """What kill -9 leaves of the life that was opened last."""
        ...

    def blocked(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is written meanwhile."""
        ...

    def rows(self, table: str) -> Rows:
        """What is in the table: (id, v)."""
        ...


class Life:
    """One life of a sink: it is given what the stream has when the test says so, and watched all the time."""

    def __init__(self, bed: Bed, stream: Stream, runner: Runner[Any]) -> None:
        self.bed = bed
        self._stream = stream
        self.runner = runner
        self.sink: Sink = runner.sink
        self._given: asyncio.Queue[MergedBatch | None] = asyncio.Queue()
        self._given_ts = self.sink.start_ts
        self._seen = (0, 0, 0)
        self._run = asyncio.create_task(runner.run(self._batches()))
        works = [runner.watch(), runner.keep_checkpoint(), *self.sink.tasks().values()]
        self._others = [asyncio.create_task(work) for work in works]

    @classmethod
    async def begin(cls, bed: Bed, stream: Stream) -> Life:
        """Starts a sink of the bed on the stream."""
        return cls(bed, stream, await bed.open(stream))

    async def _batches(self) -> AsyncIterator[MergedBatch]:
        while (batch := await self._given.get()) is not None:
            yield batch

    def give(self, upto_ts: Ts = 1 << 60, size: int = 3) -> None:
        """What the stream has above what was given, `size` binlogs a batch."""
        entries = [entry for entry in self._stream.entries if self._given_ts < entry.commit_ts <= upto_ts]
        for at in range(0, len(entries), size):
            batch = entries[at : at + size]
            self._given.put_nowait(MergedBatch(batch, batch[-1].commit_ts))
            self._given_ts = batch[-1].commit_ts

    def promise(self, watermark: int) -> None:
        """Pumps have nothing up to there."""
        self._given.put_nowait(MergedBatch([], watermark))

    def look(self) -> None:
        """What holds at any time."""
        sink = self.sink
        seen = sink.stored_ts, sink.resolved_ts, sink.handed_over_ts
        assert list(seen) == sorted(seen), "handed over >= resolved >= stored"
        assert all(map(int.__ge__, seen, self._seen)), "none of them falls"
        self._seen = seen

    async def until(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Raises what ends the life meanwhile."""
        async with asyncio.timeout(limit_s):
            while not condition():
                for task in (self._run, *self._others):
                    if task.done():
                        task.result()
                self.look()
                await asyncio.sleep(0.001)
        self.look()

    async def stop(self) -> None:
        """Everything given is done first."""
        self._given.put_nowait(None)
        await self._run
        assert await self.runner.stop(30.0), "what was given is there, and the position is stored"
        await self.end()

    async def die(self) -> None:
        """At whatever it does now."""
        await asyncio.sleep(0.001)
        self._run.cancel()
        await self.bed.die()
        await self.end()

    async def end(self) -> None:
        """What is left of it: its tasks."""
        for task in self._others:
            task.cancel()
        await asyncio.gather(self._run, *self._others, return_exceptions=True)


def same_rows(bed: Bed, stream: Stream) -> None:
    """The store has what the tables have, and nothing else."""
    for table, rows in stream.expected.items():
        actual = sorted(bed.rows(table))
        assert (actual if bed.exactly_once else sorted(set(actual))) == sorted(rows), table


async def in_order_and_once(bed: Bed, stream: Stream) -> None:
    """Whatever dies where: rows of a table without key are there once, keys have what was written last."""
    rng = random.Random(1)
    stream.changes(rng, 120)
    entries = stream.entries
    for _ in range(4):
        life = await Life.begin(bed, stream)
        assert life.sink.start_ts >= life.sink.stored_ts
        target_ts = max(entries[rng.randrange(len(entries))].commit_ts, life.sink.start_ts)
        life.give()
        await life.until(lambda target_ts=target_ts, sink=life.sink: sink.resolved_ts >= target_ts)  # type: ignore[misc]
        await life.die()
    life = await Life.begin(bed, stream)
    life.give()
    await life.until(lambda: life.sink.resolved_ts >= entries[-1].commit_ts)
    await life.stop()
    same_rows(bed, stream)


async def a_watermark_moves_what_is_resolved_and_stored(bed: Bed, stream: Stream) -> None:
    """Where nothing is to be written, too: pumps may delete what is below it."""
    life = await Life.begin(bed, stream)
    life.give()
    await life.until(lambda: life.sink.stored_ts == stream.entries[-1].commit_ts, 10.0)
    life.promise(5000)
    await life.until(lambda: life.sink.stored_ts == 5000, 10.0)
    await life.stop()
    stream.now_ts = 6000
    later_ts = stream.transaction(("t", INSERT, (1, "later")))
    again = await Life.begin(bed, stream)
    assert again.sink.start_ts == 5000, "nothing comes again"
    again.give()
    await again.until(lambda: again.sink.stored_ts == later_ts)
    await again.stop()
    same_rows(bed, stream)


async def a_stop_stores_what_was_done(bed: Bed, stream: Stream) -> None:
    """What was given before it is there after it, and does not come again."""
    stream.changes(random.Random(2), 40)
    life = await Life.begin(bed, stream)
    life.give()
    await life.stop()
    same_rows(bed, stream)
    again = await Life.begin(bed, stream)
    assert again.sink.start_ts == again.sink.stored_ts == stream.now_ts
    await again.stop()


async def what_waits_is_bounded(bed: Bed, stream: Stream) -> None:
    """While nothing is written little is taken; and nothing counts as resolved that is not there."""
    stream.transaction(("t", INSERT, (1, "first")), ("u", INSERT, (0, "first")))
    first_ts = stream.now_ts
    life = await Life.begin(bed, stream)
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
        if bed.follows_ddl:
            stream.drop_and_make_again()
    stream.changes(rng, 15)
    life = await Life.begin(bed, stream)
    life.give(size=7)
    await life.until(lambda: life.sink.resolved_ts >= stream.now_ts)
    await life.stop()
    same_rows(bed, stream)


async def a_large_transaction_is_there_as_a_whole(bed: Bed, stream: Stream) -> None:
    """It comes in pieces, with changes before and after it, and dies in the middle."""
    rng = random.Random(5)
    stream.changes(rng, 5)
    before_ts = stream.now_ts
    stream.large_transaction(9000)
    stream.changes(rng, 5)
    life = await Life.begin(bed, stream)
    life.give()
    await life.until(lambda: life.sink.resolved_ts >= before_ts)
    await life.die()
    again = await Life.begin(bed, stream)
    again.give()
    await again.until(lambda: again.sink.resolved_ts >= stream.now_ts)
    await again.stop()
    same_rows(bed, stream)


async def an_exception_loses_nothing(bed: BatchBed, stream: Stream) -> None:
    """Writes fail before anything was written, and after all was, so that nobody knows what is there."""
    stream.changes(random.Random(6), 200)
    bed.fails_at = {2: "before", 5: "after", 6: "after", 9: "before"}
    bed.batch_rows = 10
    life = await Life.begin(bed, stream)
    life.give()
    await life.until(lambda: life.sink.resolved_ts >= stream.now_ts)
    await life.stop()
    assert not bed.fails_at, "there were as many writes"
    same_rows(bed, stream)


async def an_unknown_exception_holds_until_somebody_resumes(bed: BatchBed, stream: Stream) -> None:
    """The Drainer stays, shows the text, and goes on from there."""
    stream.changes(random.Random(7), 40)
    bed.fails_at = {2: "hold"}
    bed.batch_rows = 10
    life = await Life.begin(bed, stream)
    life.give()
    await life.until(lambda: life.sink.facts()["Sink"]["held"])
    assert bed.HOLDS in life.runner.doing, "the status says why"
    held_at = life.sink.resolved_ts
    await asyncio.sleep(0.1)
    assert life.sink.resolved_ts == held_at < stream.now_ts, "nothing is passed over"
    life.sink.try_again()
    await life.until(lambda: life.sink.resolved_ts >= stream.now_ts)
    await life.stop()
    same_rows(bed, stream)


Check = Callable[[Any, Stream], Awaitable[None]]
CHECKS: Final[tuple[Check, ...]] = (
    in_order_and_once,
    a_watermark_moves_what_is_resolved_and_stored,
    a_stop_stores_what_was_done,
    what_waits_is_bounded,
    a_ddl_is_a_barrier,
    a_large_transaction_is_there_as_a_whole,
)
"""For every sink."""
BATCH_CHECKS: Final[tuple[Check, ...]] = (
    an_exception_loses_nothing,
    an_unknown_exception_holds_until_somebody_resumes,
)
"""For batch sinks besides."""


class SinkContract:
    """For pytest: derive a class, whose name begins with Test, with a fixture `bed`."""

    def test_in_order_and_once(self, bed: Bed) -> None:
        asyncio.run(_run(in_order_and_once, bed))

    def test_a_watermark_moves_what_is_resolved_and_stored(self, bed: Bed) -> None:
        asyncio.run(_run(a_watermark_moves_what_is_resolved_and_stored, bed))

    def test_a_stop_stores_what_was_done(self, bed: Bed) -> None:
        asyncio.run(_run(a_stop_stores_what_was_done, bed))

    def test_what_waits_is_bounded(self, bed: Bed) -> None:
        asyncio.run(_run(what_waits_is_bounded, bed))

    def test_a_ddl_is_a_barrier(self, bed: Bed) -> None:
        asyncio.run(_run(a_ddl_is_a_barrier, bed))

    def test_a_large_transaction_is_there_as_a_whole(self, bed: Bed) -> None:
        asyncio.run(_run(a_large_transaction_is_there_as_a_whole, bed))


class BatchSinkContract(SinkContract):
    """The same for a batch sink; the fixture `bed` is a `BatchBed`."""

    def test_an_exception_loses_nothing(self, bed: BatchBed) -> None:
        asyncio.run(_run(an_exception_loses_nothing, bed))

    def test_an_unknown_exception_holds_until_somebody_resumes(self, bed: BatchBed) -> None:
        asyncio.run(_run(an_unknown_exception_holds_until_somebody_resumes, bed))


async def _run(check: Check, bed: Any) -> None:
    await check(bed, Stream())
