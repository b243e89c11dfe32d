"""Dump: an image of what the upstream has at one timestamp T.

Order   T and the schema there; objects and chunks; files; the manifest, which makes an image of them
Holds   killed at any point, the same command goes on at the same T where the upstream shows it again (TiDB).
        Where it does not, or a table was altered after T, it begins anew at another one: an image is of one T
Stops   when it is cancelled: files that were begun are gone
Tests   tests/drainer/points/dump/test_dump.py
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final, TypeVar

from drainer.config.downstream import upstream_target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.connection import Connection
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.dump.dump_directory import DumpDirectory
from drainer.points.image.manifest import ROWS, Manifest, directory_of
from drainer.points.image.objects import objects_of
from drainer.points.image.parquet_writer import Part, TableWriter
from drainer.points.load import upstream_schema
from drainer.points.load.contents import Contents, Source, contents_of
from drainer.points.load.counters import FINISHING, PREPARING, Counters
from drainer.points.load.load import Estimate, TableEstimate
from drainer.points.load.table_copy import AGAIN, rows_wanted
from drainer.points.load.upstream_schema import UpstreamTables, pass_until_kept, snapshot_with_schema
from drainer.points.rows.table_rows import TableRows, tried
from drainer.points.snapshot.sessions import UpstreamSnapshot, read_beside
from drainer.points.worker_pool import Pace, WorkerPool
from drainer.reading.archive.decode.definitions import archived
from drainer.reading.archive.decode.images import ImagePlan
from drainer.stream.rules.rule_set import read_rules
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import Corruption, Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.observe import log
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.time_text import utc
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

logger = log.get("dump")
T = TypeVar("T")

_ROWS_A_SECOND: Final = 30_000


@dataclass(frozen=True, slots=True)
class Dumped:
    """`rows` were read by this run; `kept`: of an earlier one."""

    ts: Ts
    tables: int
    rows: int
    kept: int
    seconds: float
    directory: str


class Dump:
    """One run. `rate_rows`: rows a second at most, 0: no limit."""

    def __init__(
        self,
        settings: DrainerConfig,
        upstream: Upstream,
        directory: str,
        *,
        rate_rows: int = 0,
        counters: Counters | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._settings = settings
        self._upstream = upstream
        self._path = directory
        self._rate_rows = rate_rows
        self._clock = clock or SystemClock()
        self._rules = read_rules(settings)
        self._target = upstream_target_of(settings)
        self._workers = settings.worker_count

    async def plan(self) -> Estimate:
        """What it would do. Nothing is written, nothing is locked."""
        ts = await self._upstream.oracle.timestamp()
        history = self._upstream.history
        version = await upstream_schema.newest_version(history) if self._settings.from_outcome_table else 0
        contents = self._contents(await upstream_schema.schema_at(history, ts, version))
        tables = await self._asked(self._estimates, contents)
        rows = sum(table.rows for table in tables)
        seconds = rows / (self._rate_rows or _ROWS_A_SECOND)
        return Estimate(ts, tuple(tables), len(contents.views), len(contents.sequences), seconds)

    async def run(self) -> Dumped:
        """Raises `Rejected`, `Conflict`, `Unavailable`, `Corruption`."""
        began_s = self._clock.monotonic_s()
        place = DumpDirectory(self._path)
        try:
            manifest = await self._passes(place)
        finally:
            place.close()
        done = self.counters.view()
        seconds = self._clock.monotonic_s() - began_s
        kept = done.rows - done.rows_here
        return Dumped(manifest.commit_ts, len(manifest.tables), done.rows_here, kept, seconds, self._path)

    async def _passes(self, place: DumpDirectory) -> Manifest:
        def say(why: str) -> None:
            logger.warning("the image begins anew at a later timestamp", reason=why)
            self.counters.say(PREPARING, f"begins again at a later timestamp: {why}")

        at_ts = 0 if self._settings.from_outcome_table else place.ts
        return await pass_until_kept(functools.partial(self._pass, place), at_ts, say)

    # -- one timestamp ---------------------------------------------------------------------------

    async def _pass(self, place: DumpDirectory, at_ts: Ts) -> Manifest:
        async with snapshot_with_schema(
            self._settings,
            self._upstream,
            self._workers + 1,
            at_ts=at_ts,
            hold_name=f"binlog_dump_{self._settings.name}",
        ) as (snapshot, tracker):
            contents = self._contents(tracker)
            await asyncio.to_thread(place.begin, snapshot.ts)
            tables = await self._rows(snapshot, contents, place)
            self.counters.say(FINISHING)
            return await asyncio.to_thread(self._finish, snapshot.ts, tracker, contents, tables, place)

    def _contents(self, tracker: SchemaTracker) -> Contents:
        """Raises `Rejected` for several tables that go into one."""
        contents = contents_of(tracker, self._rules)
        shared = sorted({".".join(table.target) for table in contents.tables if table.shared})
        if shared:
            raise Rejected(
                f"several tables are routed to {', '.join(shared)}: an image has one table for each",
                hint="write the image without table-migrate-rule, and give the routes to the restore",
            )
        return contents

    def _finish(
        self,
        ts: Ts,
        tracker: SchemaTracker,
        contents: Contents,
        tables: list[TableDump],
        place: DumpDirectory,
    ) -> Manifest:
        places = {
            source.name: source.target for source in (*contents.tables, *contents.views, *contents.sequences)
        }
        objects_of(tracker, lambda schema, table: places.get((schema, table))).store(self._path)
        images = [table.writer.table_image() for table in tables]
        manifest = Manifest(ts, utc(ts), repr(self._target), "", (), tuple(images), ROWS, objects=True)
        manifest.store(self._path)
        place.end()
        return manifest

    # -- rows ------------------------------------------------------------------------------------

    async def _rows(
        self, snapshot: UpstreamSnapshot, contents: Contents, place: DumpDirectory
    ) -> list[TableDump]:
        tables = await self._asked(self._tables, snapshot, contents)
        self.counters.begin(snapshot.ts, {table.source.label: table.size.rows for table in tables})
        work = Writing(
            snapshot, place, self.counters, self._clock, workers=self._workers, rate_rows=self._rate_rows
        )
        await read_beside(asyncio.to_thread(work.run, tables), snapshot, work.stop.set)
        return tables

    async def _asked(self, function: Callable[..., T], *arguments: object) -> T:
        """Of the upstream, on a thread."""
        try:
            return await asyncio.to_thread(function, *arguments)
        except StatementRefused as error:
            raise Rejected(
                f"upstream {self._target!r}: {safe_text(error)}",
                hint="check the rights of the user in [syncer.from]",
            ) from None
        except SessionError as error:
            raise Unavailable(f"upstream {self._target!r}: {safe_text(error)}", hint=AGAIN) from None

    def _tables(self, snapshot: UpstreamSnapshot, contents: Contents) -> list[TableDump]:
        """The largest first."""
        with closing(UpstreamTables(self._target, snapshot)) as upstream:
            dumps = [
                TableDump.of(source, upstream.table(source.name), upstream.size(source.name), self._path)
                for source in contents.tables
                if source.copies
            ]
        return sorted(dumps, key=lambda dump: (-dump.size.size_bytes, dump.source.name))

    def _estimates(self, contents: Contents) -> list[TableEstimate]:
        estimates = []
        with closing(UpstreamTables(self._target, None)) as upstream:
            for source in contents.tables:
                upstream.table(source.name)  # that it is there, and may be read
                size = upstream.size(source.name)
                way = "by row rules" if source.edit is not None else ""
                target, chunks = directory_of(*source.target), size.chunks(rows_wanted(size))
                estimates.append(TableEstimate(source.label, target, size.rows, size.size_bytes, chunks, way))
        return estimates


# Writing: all chunks of all tables become files of an image, by several threads.
# Holds   rows take the Drainer's own way, and are as an archive of this Drainer would have them: read as
#         values, encoded, ruled, then put into columns
#         A chunk is known to the directory before its file is begun. A file that is there is not made again
# Stops   `stop`, from any thread; `run` raises `Ended` then


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
