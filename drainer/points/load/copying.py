"""Copying: all chunks of all tables, by several workers.

Drives  a thread that cuts tables into chunks and stores them, a pool of threads that copy them (`copier`), or
        that have other processes do so (`Spread`), some chunks at a time
Owns    their sessions downstream
Holds   a chunk is stored before it is copied, so a load that goes on cuts where the first one did
Stops   `stop`, from any thread; `run` raises `Ended` then
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, TypeVar

from drainer.checkpoint.load_progress import ChunkState, LoadProgress
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import StatementRefused, TransientError
from drainer.mysql.session import DownstreamSession
from drainer.points.load.copier import ChunkCopy, Copied, Copier, Spread
from drainer.points.load.counters import Counters
from drainer.points.load.job import insist
from drainer.points.load.table_copy import TableCopy, unreadable
from drainer.points.snapshot.sessions import UpstreamSnapshot
from drainer.points.worker_pool import Pace, WorkerPool
from tidb_binlog.clock import Clock, SystemClock

T = TypeVar("T")
SPREAD_AT_ONCE: Final = 2
"""Calls of `Spread.copy` at a time: while the last chunks of one are copied, the next ones are under way."""
CHUNKS_A_SLOT: Final = 4


class Copying:
    """One pass over all tables at one timestamp. Blocks; raises what `Copier.copy` does, and what the tables
    do, which are made one after the other, when their turn comes."""

    def __init__(
        self,
        snapshot: UpstreamSnapshot,
        target: Target,
        progress: LoadProgress,
        run: int,
        counters: Counters,
        *,
        workers: int,
        rate_rows: int = 0,
        log_values: bool = False,
        clock: Clock | None = None,
        spread: Spread | None = None,
    ) -> None:
        self._spread = spread
        self._snapshot = snapshot
        self._target = target
        self._progress = progress
        self._run = run
        self._counters = counters
        workers = workers if spread is None else SPREAD_AT_ONCE
        self._pool: WorkerPool[Sequence[ChunkCopy]] = WorkerPool("load", workers)
        self._stop = self._pool.stop
        pace = Pace(rate_rows, self._stop, clock or SystemClock())
        self._copiers = [
            Copier(snapshot, target, progress, run, pace=pace, wait=self._stop.wait, log_values=log_values)
            for _ in range(workers if spread is None else 0)
        ]

    def stop(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """True where it is stopped."""
        return self._stop.wait(seconds)

    def run(self, tables: Iterator[TableCopy], begin_anew: Callable[[TableCopy], None]) -> None:
        """`begin_anew` empties a table whose stored chunks mean other rows downstream."""
        try:
            spread = self._spread
            turns = len(self._copiers) if spread is None else spread.slots
            with closing(self._feed(tables, begin_anew, turns)) as jobs:
                if spread is None:
                    works = [functools.partial(self._copy, copier) for copier in self._copiers]
                    self._pool.run(grouped(jobs, 1), works)
                else:
                    works = [functools.partial(self._copy_elsewhere, spread)] * SPREAD_AT_ONCE
                    self._pool.run(grouped(jobs, turns * CHUNKS_A_SLOT), works)
        finally:
            for copier in self._copiers:
                copier.close()

    def _copy(self, copier: Copier, jobs: Sequence[ChunkCopy]) -> None:
        for job in jobs:
            self._counters.at(job.table.source.label)
            self._count(job, copier.copy(job))

    def _copy_elsewhere(self, spread: Spread, jobs: Sequence[ChunkCopy]) -> None:
        self._counters.at(jobs[0].table.source.label)
        for job, copied in zip(jobs, spread.copy(jobs, self._stop.wait), strict=True):
            self._count(job, copied)

    def _count(self, job: ChunkCopy, copied: Copied) -> None:
        label = job.table.source.label
        self._counters.copied(label, copied.rows, copied.size_bytes, compared=copied.compared)

    # -- chunks ---------------------------------------------------------------------------------------

    def _feed(
        self, tables: Iterator[TableCopy], begin_anew: Callable[[TableCopy], None], at_once: int
    ) -> Generator[ChunkCopy, None, None]:
        """In turns from as many tables as are copied at a time: two that write into one wait for each other's
        pages of its indexes."""
        session = DownstreamSession(self._target)
        try:
            turns: deque[Iterator[ChunkCopy]] = deque()
            while True:
                while len(turns) < at_once and (table := next(tables, None)) is not None:
                    turns.append(self._jobs_of(table, session, begin_anew))
                if not turns:
                    return
                if (job := next(turns[0], None)) is None:
                    turns.popleft()
                    continue
                yield job
                turns.rotate(-1)
        finally:
            session.close()

    def _jobs_of(
        self, table: TableCopy, session: DownstreamSession, begin_anew: Callable[[TableCopy], None]
    ) -> Iterator[ChunkCopy]:
        """Each chunk that is not copied yet once, though sessions may be lost."""
        given: set[int] = set()
        chunks = self._chunks_of(table, session, begin_anew)

        def next_chunk() -> tuple[ChunkCopy, int | None] | None:
            nonlocal chunks
            try:
                return next(chunks, None)
            except TransientError:
                chunks = self._chunks_of(table, session, begin_anew)  # what is stored says how far it came
                raise

        while (item := insist(next_chunk, wait=self._stop.wait)) is not None:
            job, rows = item
            if job.chunk.number in given:
                continue
            given.add(job.chunk.number)
            if rows is None:
                self._counters.given(table.source.label)
                yield job
            else:
                self._counters.count_stored(table.source.label, rows)
        self._counters.cut(table.source.label)

    def _chunks_of(
        self, table: TableCopy, session: DownstreamSession, begin_anew: Callable[[TableCopy], None]
    ) -> Iterator[tuple[ChunkCopy, int | None]]:
        """All of them, with the rows of those that are copied."""
        with session.connection() as connection:
            stored = self._progress.chunks(connection, table.number)
            connection.rollback()
        ts = self._snapshot.ts
        outdated = any(entry.state is not ChunkState.PLANNED and entry.ts != ts for entry in stored)
        if outdated and not table.parts_alike:
            begin_anew(table)
            stored, outdated = [], False
        last: Chunk | None = None
        for entry in stored:
            last = Chunk.of_stored(entry.bounds)
            is_copied = entry.state is ChunkState.COPIED and entry.ts == ts
            yield ChunkCopy(table, last, entry.state, entry.ts, outdated), entry.rows if is_copied else None
        while last is None or not last.is_last:
            chunks = self._cut(table, last)
            last = chunks[-1]
            with session.connection() as connection:
                self._store(connection, table, chunks)
            for chunk in chunks:
                yield ChunkCopy(table, chunk, ChunkState.PLANNED, 0, outdated), None

    def _cut(self, table: TableCopy, last: Chunk | None) -> Sequence[Chunk]:
        try:
            with self._snapshot.session() as source:
                return table.splitter.next_chunks(source, last)
        except StatementRefused as error:
            raise unreadable(table.source.label, error) from None

    def _store(self, connection: Connection, table: TableCopy, chunks: Sequence[Chunk]) -> None:
        self._progress.hold(connection, self._run)
        bounds = [(chunk.number, chunk.stored()) for chunk in chunks]
        self._progress.put_chunks(connection, table.number, self._run, bounds)
        connection.commit()


def grouped(jobs: Iterator[T], size: int) -> Iterator[Sequence[T]]:
    """So many at a time."""
    while group := list(itertools.islice(jobs, size)):
        yield group
