"""Batch bed: a store under lives of a batch sink, which can be killed, blocked and made to fail.

A test derives from it and says how its sink is made and what is in its store: see
`drainer.testing.sink_contract`.

Tests  tests/contract/test_batch_sink.py
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from drainer.checkpoint.savepoint import Savepoint
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.policy import Policy
from drainer.sink.batch.batched_sink import BatchedSink
from drainer.sink.batch.protocol import BATCH_BYTES, Retry
from drainer.sink.batch.public_items import PublicItems
from drainer.sink.batch.sink_writer import SinkWriter
from drainer.sink.runner import Runner
from drainer.stream.translate.translator import Translator
from drainer.testing.stream import Rows, Stream
from tidb_binlog.clock import SystemClock

Failure = Literal["before", "after", "hold"]


class BatchBed:
    """`directory` is for the Drainer's savepoint.

    `exactly_once` is for sinks that store their position; without, rows may be there twice after a kill.
    `follows_ddl`: a table that is dropped is empty in the store. `fails_at`: which writes, counted from 1 on
    over all lives, fail before or after the sink has written, and may be retried; or hold.
    """

    exactly_once = True
    follows_ddl = True
    batch_rows = 100
    HOLDS: ClassVar[str] = "the store is not as it was"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(directory)
        self._free = threading.Event()
        self._free.set()
        self._writes = 0
        self._writer: SinkWriter
        self._savepoint: MortalSavepoint
        self.fails_at: dict[int, Failure] = {}
        self.stream: Stream

    def sink(self) -> Any:
        """Another life of the sink, on the same store."""
        raise NotImplementedError

    def rows(self, table: str) -> Rows:
        """What is in the store of the table `d.t` or `d.u`: (id, v)."""
        raise NotImplementedError

    async def open(self, stream: Stream) -> Runner[BatchedSink]:
        """A life, from what is stored."""
        self.stream = stream
        clock = SystemClock()
        self._savepoint = savepoint = MortalSavepoint(self._directory)
        self._writer = SinkWriter(Beset(self.sink(), self), "contract", self.convert(), clock, pause_s=0.001)
        position = await self._writer.open()
        stored = savepoint.load()
        saved_ts = stored.commit_ts if stored else 0
        start_ts = saved_ts if position is None else position
        translator = stream.translator(start_ts)
        self.follow(translator)
        sink = BatchedSink(
            self._writer,
            start_ts,
            0,
            savepoint,
            Policy(),
            clock,
            stores_position=position is not None,
            waiting_bytes_max=1 << 12,
            position_s=0.01,
        )
        return Runner(sink, translator, interval_s=0.01)

    def convert(self) -> Any:
        """What makes of items what the sink is given."""
        return PublicItems()

    def follow(self, translator: Translator) -> None:
        """What makes the items of this life."""
        return

    async def die(self) -> None:
        """The call that runs comes to its end, and none follows."""
        self._savepoint.die()
        self._writer.thread.end()
        await asyncio.to_thread(self._writer.thread.join)

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """No write begins meanwhile."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def next_failure(self) -> Failure | None:
        """Of the write that begins, which waits here while the bed is blocked."""
        self._free.wait()
        self._writes += 1
        return self.fails_at.pop(self._writes, None)


class MortalSavepoint(Savepoint):
    """Of one life: what a thread of it is still to save comes too late once it is dead."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir)
        self._alive = True
        self._lock = threading.Lock()

    def save(self, checkpoint: Checkpoint) -> None:
        """Save unless the process is dead."""
        with self._lock:
            if self._alive:
                super().save(checkpoint)

    def die(self) -> None:
        """What is being saved is."""
        with self._lock:
            self._alive = False


class Beset:
    """A sink that is blocked and fails as its bed says."""

    def __init__(self, sink: Any, bed: BatchBed) -> None:
        self._sink = sink
        self._bed = bed
        self.batch_rows = min(bed.batch_rows, getattr(sink, "batch_rows", bed.batch_rows))
        self.batch_bytes = getattr(sink, "batch_bytes", BATCH_BYTES)
        self.batch_interval_s = getattr(sink, "batch_interval_s", 0.0)
        self.retriable = getattr(sink, "retriable", ())

    async def open(self) -> int | None:
        """Opens the sink; returns its position."""
        answer: Any = self._sink.open() if hasattr(self._sink, "open") else None
        position: int | None = await answer if inspect.isawaitable(answer) else answer
        return position

    async def write(self, items: Sequence[Any], position: int) -> None:
        """Writes, and fails as the bed says: before, after, or for good."""
        failure = self._bed.next_failure()
        if failure == "before":
            raise Retry("nothing was written")
        if failure == "hold":
            raise RuntimeError(self._bed.HOLDS)
        done = self._sink.write(items, position)
        if inspect.isawaitable(done):
            await done
        if failure == "after":
            raise Retry("everything was written")

    async def close(self) -> None:
        """Closes the sink, if it can be closed."""
        done = self._sink.close() if hasattr(self._sink, "close") else None
        if inspect.isawaitable(done):
            await done
