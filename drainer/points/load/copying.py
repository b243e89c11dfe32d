"""Copying: all chunks of all tables, by several workers.

Drives  a thread that cuts tables into chunks and stores them, threads that copy them (`copier`)
Owns    their sessions downstream
Holds   a chunk is stored before it is copied, so a load that goes on cuts where the first one did. The first
        error ends all of it: what was begun is rolled back, what was committed counts
Stops   `stop`, from any thread; `run` raises `Ended` then
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from drainer.checkpoint.load_progress import ChunkState, LoadProgress
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import StatementRefused, TransientError
from drainer.mysql.session import DownstreamSession
from drainer.operate.control.rate_limit import Limits, RateLimit
from drainer.points.load.copier import ChunkCopy, Copier, Ended
from drainer.points.load.counters import Counters
from drainer.points.load.job import insist
from drainer.points.load.table_copy import TableCopy, unreadable
from drainer.points.snapshot.sessions import UpstreamSnapshot
from tidb_binlog.clock import Clock, SystemClock

CUT_AT_ONCE: Final = 64
_POLL_S: Final = 0.1
_NO_MORE: Final = None


class Pace:
    """Rows a second, of all workers together."""

    def __init__(self, rows_a_second: int, stop: threading.Event, clock: Clock) -> None:
        self._limit = RateLimit(Limits(rows_a_second))
        self._lock = threading.Lock()
        self._stop = stop
        self._clock = clock

    def __call__(self, rows: int, size_bytes: int) -> None:
        """Wait until so much more may be written. Raises `Ended`."""
        if self._stop.is_set():
            raise Ended
        if self._limit.limits.unlimited:
            return
        with self._lock:
            now_s = self._clock.monotonic_s()
            wait_s = self._limit.wait_s(now_s)
            self._limit.take(rows, size_bytes, now_s)
        if self._stop.wait(wait_s):
            raise Ended


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
    ) -> None:
        self._snapshot = snapshot
        self._target = target
        self._progress = progress
        self._run = run
        self._counters = counters
        self._stop = threading.Event()
        self._jobs: queue.Queue[ChunkCopy | None] = queue.Queue(2 * workers)
        self._errors: list[BaseException] = []
        pace = Pace(rate_rows, self._stop, clock or SystemClock())
        self._copiers = [
            Copier(
                snapshot,
                target,
                progress,
                run,
                pace=pace,
                wait=self._stop.wait,
                log_values=log_values,
            )
            for _ in range(workers)
        ]

    def stop(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """True where it is stopped."""
        return self._stop.wait(seconds)

    def run(self, tables: Iterator[TableCopy], begin_anew: Callable[[TableCopy], None]) -> None:
        """`begin_anew` empties a table whose stored chunks mean other rows downstream."""
        threads = [
            threading.Thread(target=self._work, args=(copier,), name=f"load-{number}")
            for number, copier in enumerate(self._copiers)
        ]
        for thread in threads:
            thread.start()
        try:
            self._feed(tables, begin_anew)
        except BaseException as error:
            self._fail(error)
        finally:
            for _ in threads:
                self._put(_NO_MORE)
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        if self._stop.is_set():
            raise Ended

    # -- workers --------------------------------------------------------------------------------------

    def _work(self, copier: Copier) -> None:
        try:
            while (job := self._take()) is not None:
                self._counters.at(job.table.source.label)
                copied = copier.copy(job)
                self._counters.copied(copied.rows, copied.size_bytes, compared=copied.compared)
        except BaseException as error:
            self._fail(error)
        finally:
            copier.close()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Ended):
            self._errors.append(error)
        self._stop.set()

    def _take(self) -> ChunkCopy | None:
        while not self._stop.is_set():
            try:
                return self._jobs.get(timeout=_POLL_S)
            except queue.Empty:
                continue
        return None

    def _put(self, job: ChunkCopy | None) -> None:
        while not self._stop.is_set():
            try:
                self._jobs.put(job, timeout=_POLL_S)
                return
            except queue.Full:
                continue
        if job is not None:
            raise Ended

    # -- chunks ---------------------------------------------------------------------------------------

    def _feed(self, tables: Iterator[TableCopy], begin_anew: Callable[[TableCopy], None]) -> None:
        """In turns from as many tables as there are workers: two that write into one wait for each other's
        pages of its indexes."""
        session = DownstreamSession(self._target)
        try:
            turns: deque[Iterator[ChunkCopy]] = deque()
            while True:
                while len(turns) < len(self._copiers) and (table := next(tables, None)) is not None:
                    turns.append(self._jobs_of(table, session, begin_anew))
                if not turns:
                    return
                if (job := next(turns[0], None)) is None:
                    turns.popleft()
                    continue
                self._put(job)
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
                yield job
            else:
                self._counters.count_stored(rows)

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
                return list(itertools.islice(table.splitter.chunks(source, last), CUT_AT_ONCE))
        except StatementRefused as error:
            raise unreadable(table.source.label, error) from None

    def _store(self, connection: Connection, table: TableCopy, chunks: Sequence[Chunk]) -> None:
        self._progress.hold(connection, self._run)
        bounds = [(chunk.number, chunk.stored()) for chunk in chunks]
        self._progress.put_chunks(connection, table.number, self._run, bounds)
        connection.commit()
