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

from collections.abc import Iterator, Sequence

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.connection import Connection
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.dump.dump_directory import DumpDirectory
from drainer.points.image.manifest import directory_of
from drainer.points.image.parquet_writer import Part, TableWriter
from drainer.points.load.contents import Source
from drainer.points.load.counters import Counters
from drainer.points.rows.table_rows import TableRows, tried
from drainer.points.snapshot.sessions import UpstreamSnapshot
from drainer.points.worker_pool import Pace, WorkerPool
from drainer.reading.archive.decode.definitions import archived
from drainer.reading.archive.decode.images import ImagePlan
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec import RowError
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class TableDump:
    """A table and the files that its rows go to."""

    table: TableRows
    plan: ImagePlan
    writer: TableWriter

    @classmethod
    def of(cls, source: Source, here: DownstreamTable, size: TableSize, directory: str) -> TableDump:
        """Raises `DownstreamError` for a table that is not as its definition says."""
        plan = ImagePlan(source.version.info)
        writer = TableWriter(directory, archived(source.version))
        return cls(TableRows.of(source, here, size), plan, writer)

    @property
    def source(self) -> Source:
        return self.table.source

    @property
    def size(self) -> TableSize:
        return self.table.size

    def write(self, session: Connection, chunk: Chunk, ts: Ts, pace: Pace) -> Part:
        """Raises `SessionError`, `Unavailable`, `Corruption`, and what `pace` raises."""
        with self.writer.part(chunk.number) as part:
            for rows in self.table.rows(session, chunk, ts):
                images = self._images(rows)
                part.add(images)
                pace(len(images), sum(map(len, images)))
        written = self.writer.has(chunk.number)
        assert written is not None
        return written

    def _images(self, rows: list[bytes]) -> list[bytes]:
        try:
            return [self.plan.insert(row) for row in rows]
        except RowError as error:
            raise Corruption(f"a row of {self.source.label}: {error.message}") from None


Job = tuple[TableDump, Chunk]


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
            chunks = tried(table.source.label, self.stop.wait, table.table.cut, self._snapshot, last)
            self._place.add(name, chunks)
            yield from chunks
            last = chunks[-1]

    # -- workers ---------------------------------------------------------------------------------

    def _write(self, job: Job) -> None:
        table, chunk = job
        self._counters.at(table.source.label)
        part = tried(table.source.label, self.stop.wait, self._written, table, chunk)
        self._counters.copied(table.source.label, part.rows, part.bytes, compared=False)

    def _written(self, table: TableDump, chunk: Chunk) -> Part:
        with self._snapshot.session() as session:
            return table.write(session, chunk, self._snapshot.ts, self._pace)
