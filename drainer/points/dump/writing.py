"""Writing: all chunks of all tables become files of an image, by several threads.

Drives  one thread that cuts tables into chunks, threads that write a file each, a session of the upstream's
        snapshot for each of them
Holds   rows take the Drainer's own way, and are as an archive of this Drainer would have them: read as
        values, encoded, ruled, then put into columns
        A chunk is known to the directory before its file is begun. A file that is there is not made again
Stops   `stop`, from any thread; `run` raises `Ended` then
Tests   tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import key_to_copy
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.rows.column_match import Dialect, DownstreamTable
from drainer.points.dump.dump_directory import DumpDirectory
from drainer.points.image.manifest import directory_of
from drainer.points.image.parquet_writer import Part, TableWriter
from drainer.points.load.contents import Source
from drainer.points.load.copying import CUT_AT_ONCE
from drainer.points.load.counters import Counters
from drainer.points.load.table_copy import AGAIN, ALTERED, NotAsPublished, rows_wanted
from drainer.points.snapshot.sessions import SnapshotLost, SnapshotTooOld, UpstreamSnapshot
from drainer.points.worker_pool import Ended, Pace, WorkerPool
from drainer.reading.archive.decode.definitions import archived
from drainer.reading.archive.decode.images import ImagePlan
from drainer.txn import INSERT
from tidb_binlog.backoff import Backoff
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec import RowError
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class TableDump:
    """`size`: as the upstream estimates it."""

    source: Source
    splitter: Splitter
    select: ValueSelect
    plan: ImagePlan
    writer: TableWriter
    size: TableSize

    @classmethod
    def of(cls, source: Source, here: DownstreamTable, size: TableSize, directory: str) -> TableDump:
        """Raises `DownstreamError` for a table that is not as its definition says."""
        info = source.version.info
        hidden = here.dialect is Dialect.TIDB and not (info.pk_is_handle or info.is_common_handle)
        key = key_to_copy(here, hidden_rowid=hidden)
        version = archived(source.version)
        return cls(
            source,
            Splitter(here, key, rows_wanted(size)),
            ValueSelect.of(info, here, key),
            ImagePlan(info),
            TableWriter(directory, version),
            size,
        )

    def cut(self, snapshot: UpstreamSnapshot, last: Chunk | None, count: int) -> Sequence[Chunk]:
        """The next chunks. Raises `SessionError`, `SnapshotLost`."""
        with snapshot.session() as session:
            return list(itertools.islice(self.splitter.chunks(session, last), count))

    def write(self, session: Connection, chunk: Chunk, ts: Ts, pace: Pace) -> Part:
        """Raises `SessionError`, `Unavailable`, `Corruption`, and what `pace` raises."""
        with self.writer.part(chunk.number) as part:
            for rows in self.select.read(session, chunk):
                images = list(self._images(rows, ts))
                part.add(images)
                pace(len(images), sum(map(len, images)))
        written = self.writer.has(chunk.number)
        assert written is not None
        return written

    def _images(self, rows: list[bytes], ts: Ts) -> Iterator[bytes]:
        edit, plan = self.source.edit, self.plan
        try:
            for row in rows:
                event = (INSERT, row) if edit is None else edit.event(INSERT, row, ts)
                if event is not None:
                    yield plan.insert(event[1])
        except RowError as error:
            raise Corruption(f"a row of {self.source.label}: {error.message}") from None


TRIES_MAX: Final = 8
Job = tuple[TableDump, Chunk]
T = TypeVar("T")


class Writing:
    """One pass at one timestamp. Blocks."""

    def __init__(
        self,
        snapshot: UpstreamSnapshot,
        place: DumpDirectory,
        counters: Counters,
        clock: Clock,
        *,
        workers: int,
        rate_rows: int = 0,
    ) -> None:
        self._pool: WorkerPool[Job] = WorkerPool("dump", workers)
        self.stop = self._pool.stop
        self._snapshot = snapshot
        self._place = place
        self._counters = counters
        self._workers = workers
        self._pace = Pace(rate_rows, self.stop, clock)

    def run(self, tables: Sequence[TableDump]) -> None:
        """Raises `SnapshotLost`, `SnapshotTooOld`, `NotAsPublished`, `Rejected`, `Unavailable`, `Corruption`,
        `Ended`."""
        self._pool.run(self._missing(tables), [self._write] * self._workers)

    def _missing(self, tables: Sequence[TableDump]) -> Iterator[Job]:
        """What is not written yet; what is, is counted."""
        for table in tables:
            table.writer.begin()
            for chunk in self._chunks(table):
                if (written := table.writer.has(chunk.number)) is not None:
                    self._counters.count_stored(table.source.label, written.rows)
                else:
                    self._counters.given(table.source.label)
                    yield table, chunk
            self._counters.cut(table.source.label)

    def _chunks(self, table: TableDump) -> Iterator[Chunk]:
        name = directory_of(*table.source.target)
        last: Chunk | None = None
        for last in self._place.chunks(name):
            yield last
        while last is None or not last.is_last:
            chunks = self._tried(table, table.cut, self._snapshot, last, CUT_AT_ONCE)
            self._place.add(name, chunks)
            yield from chunks
            last = chunks[-1]

    # -- workers ---------------------------------------------------------------------------------

    def _write(self, job: Job) -> None:
        table, chunk = job
        self._counters.at(table.source.label)
        part = self._tried(table, self._written, table, chunk)
        self._counters.copied(table.source.label, part.rows, part.bytes, compared=False)

    def _written(self, table: TableDump, chunk: Chunk) -> Part:
        with self._snapshot.session() as session:
            return table.write(session, chunk, self._snapshot.ts, self._pace)

    def _tried(self, table: TableDump, work: Callable[..., T], *arguments: object) -> T:
        """What passes is tried again; anything else comes in an operator's words."""
        backoff, tries = Backoff(0.05, 5.0), 0
        while True:
            try:
                return work(*arguments)
            except (SnapshotLost, SnapshotTooOld):
                raise
            except StatementRefused as error:
                what = f"upstream table {table.source.label}: {safe_text(error)}"
                if error.number in ALTERED:
                    raise NotAsPublished(f"{what}: it was altered after T", hint=AGAIN) from None
                raise Rejected(
                    what, hint=f"check the rights of the user in [syncer.from], then {AGAIN}"
                ) from None
            except SessionError as error:
                tries += 1
                if tries >= TRIES_MAX:
                    raise Unavailable(f"upstream: {safe_text(error)}", hint=AGAIN) from None
            if self.stop.wait(backoff.next_s()):
                raise Ended
