"""Chunk tasks: chunks of a first copy, each read at T and written downstream by a task of its own.

Holds  a task reads at `tidb_snapshot = T`, over a connection of its own, and writes what the copy of one
       machine writes: rows and the note that the chunk is done in one transaction. A task that is done again
       ends the session of the one before, and finds what of the chunk is there; so does a copy that begins
       again after its driver was killed
       Garbage is held by the driver alone, for as long as it copies and hours longer
Stops  a task that dies, and an executor that is lost, are tried again here where Spark gives up on them
Tests  tests/spark/live/test_first_copy.py
"""

from __future__ import annotations

import asyncio
import functools
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from drainer.checkpoint.load_progress import ChunkState, LoadProgress
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.connection import Target
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.load.contents import Name, Source, contents_of
from drainer.points.load.copier import ChunkCopy, Copied, Copier
from drainer.points.load.job import Job
from drainer.points.load.table_copy import TableCopy
from drainer.points.snapshot.sessions import SnapshotLost
from drainer.points.snapshot.tidb import TidbSnapshot
from drainer.points.worker_pool import Pace
from drainer.spark.driver import translated
from drainer.spark.engine import Executors, SparkOf
from drainer.stream.rules.rule_history import rules_from
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.chunk_tasks")

TRIES: Final = 4
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """`ChunkCopy` as it travels: a table's plan holds compiled functions, so a task makes it anew."""

    number: int
    name: Name
    here: DownstreamTable
    downstream: DownstreamTable
    size: TableSize
    sync_mode: int
    has_others: bool
    chunk: Chunk
    state: ChunkState
    ts: Ts
    among_old: bool

    @classmethod
    def of(cls, job: ChunkCopy) -> ChunkPart:
        table = job.table
        return cls(
            table.number,
            table.source.name,
            table.here,
            table.downstream,
            table.size,
            table.sync_mode,
            table.has_others,
            job.chunk,
            job.state,
            job.ts,
            job.among_old,
        )

    def job(self, source: Source) -> ChunkCopy:
        """As the driver has it."""
        table = TableCopy.of(
            self.number,
            source,
            self.here,
            self.downstream,
            self.size,
            self.sync_mode,
            has_others=self.has_others,
        )
        return ChunkCopy(table, self.chunk, self.state, self.ts, self.among_old)


@dataclass(frozen=True)
class CopyingTask:
    """Picklable; passwords are in no `repr`. `schema`: a pickled `SchemaTracker` as it was at `ts`; `rules`:
    the text of `Rules`. `rate_rows`: of each process, 0: no limit."""

    source: Target
    ts: Ts
    target: Target
    progress: LoadProgress
    run: int
    rate_rows: int
    log_values: bool
    schema: bytes = field(repr=False)
    rules: str

    def __call__(self, parts: Iterator[ChunkPart]) -> Iterator[Copied]:
        sources = sources_of(self.schema, self.rules)
        pace = pace_of(self.rate_rows, self.run)
        for part in parts:
            snapshot = TidbSnapshot(self.source, self.ts, 1, None)
            copier = Copier(
                snapshot,
                self.target,
                self.progress,
                self.run,
                pace=pace,
                wait=threading.Event().wait,
                log_values=self.log_values,
                shared=True,
            )
            try:
                yield copier.copy(part.job(sources[part.name]))
            finally:
                copier.close()
                asyncio.run(snapshot.close())


@functools.lru_cache(maxsize=1)
def sources_of(schema: bytes, rules: str) -> dict[Name, Source]:
    """What every task of a pass makes alike, once for each process."""
    contents = contents_of(pickle.loads(schema), rules_from(rules) if rules else Rules())
    return {source.name: source for source in contents.tables}


@functools.lru_cache(maxsize=1)
def pace_of(rate_rows: int, run: int) -> Pace:
    """Of a process, over all its tasks: one alone writes too few statements to be held back."""
    return Pace(rate_rows, threading.Event(), SystemClock())


def patient(copied: Callable[[], list[T]], wait: Callable[[float], bool]) -> list[T]:
    """What a job of some chunks gives, which may be done again. `wait` says true where all is to end."""
    backoff = Backoff(0.5, 10.0)
    while True:
        try:
            return copied()
        except Exception as error:
            why = translated(error) or error
            passes = isinstance(why, Unavailable) and not isinstance(why, SnapshotLost)
            if not passes or backoff.attempts + 1 >= TRIES or wait(backoff.next_s()):
                raise why from None
            logger.warning("chunks are tried again", reason=str(why))


class ChunkTasks:
    """`Spread` of one pass."""

    def __init__(self, spark: SparkOf, job: Job, ts: Ts, tracker: SchemaTracker) -> None:
        self._spark = spark
        self._job = job
        self._ts = ts
        self._schema = pickle.dumps(tracker)

    @functools.cached_property
    def slots(self) -> int:
        """How many tasks run at a time. Spark is started for it."""
        return max(1, self._spark().sparkContext.defaultParallelism)

    def copy(self, jobs: Sequence[ChunkCopy], wait: Callable[[float], bool]) -> Sequence[Copied]:
        """As `Spread` has it."""
        parts = [ChunkPart.of(job) for job in jobs]
        return patient(lambda: Executors(self._spark()).over(parts, self.task).gather(_as_it_is), wait)

    @property
    def task(self) -> CopyingTask:
        """What each task does."""
        job = self._job
        rate = max(1, job.rate_rows // self.slots) if job.rate_rows else 0
        return CopyingTask(
            source=job.source,
            ts=self._ts,
            target=job.target,
            progress=job.progress,
            run=job.run,
            rate_rows=rate,
            log_values=job.settings.log_values,
            schema=self._schema,
            rules=job.rules.text,
        )


def _as_it_is(copied: Iterator[Copied]) -> Iterator[Copied]:
    return copied
