"""Snapshot rows: all rows of the upstream's tables at one timestamp T, before the stream that follows T.

Drives  the upstream's snapshot, one thread that reads a chunk ahead
In      the tables that are wanted, how far an earlier reader came
Out     `next`: of each chunk one transaction of commit_ts T, which says where it ends; None after the last
Holds   a chunk is read as a whole before it is given, so that what fails in the middle is read again. What is
        larger than `MEMORY_BYTES` waits in a file without a name
        A call that is cancelled loses nothing: the next one gives what it would have
        The upstream keeps T readable for a while after the end, for who comes back
Stops   `close`, also while the upstream hangs
Tests   tests/drainer/points/rows/test_snapshot_rows.py
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import IO, Final

from drainer.config.downstream import upstream_target_of
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.connection import Target
from drainer.mysql.errors import SessionError, StatementRefused, safe_text
from drainer.points.load.contents import Source, contents_of
from drainer.points.load.upstream_schema import UpstreamTables, pass_until_kept, snapshot_with_schema
from drainer.points.rows.snapshot_position import SnapshotPosition, SnapshotRequest, begun, key_of
from drainer.points.rows.table_rows import TableRows, tried
from drainer.points.snapshot.sessions import UpstreamSnapshot
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import INSERT, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

MEMORY_BYTES: Final = 8 << 20
SESSIONS: Final = 2
"""The second one still shows T when the first one is lost."""
AGAIN: Final = "open the stream again at the position that you have kept"
_PIECE_ROWS: Final = 1000
_SIZE: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """Rows of one chunk, `count` of them; the last of the `pieces` has `last`. `is_large`: from a file."""

    position: SnapshotPosition
    count: int
    size_bytes: int
    pieces: Callable[[], Iterator[Transaction]]
    is_large: bool


class Spool:
    """INSERT rows that wait, in memory or in a file."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._rows: list[bytes] = []
        self._file: IO[bytes] | None = None
        self.count = self.size_bytes = 0

    def __del__(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what the disk did not take is tried once more
                self._file.close()

    @property
    def is_large(self) -> bool:
        return self._file is not None

    def add(self, rows: Sequence[bytes]) -> None:
        """Raises `Unavailable` where the disk is full."""
        self.count += len(rows)
        self.size_bytes += sum(map(len, rows))
        self._rows += rows
        if self.is_large or self.size_bytes > MEMORY_BYTES:
            try:
                if self._file is None:
                    if self._directory is not None:
                        os.makedirs(self._directory, exist_ok=True)
                    self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115  for `__del__`
                self._file.writelines(part for row in self._rows for part in (_SIZE.pack(len(row)), row))
                self._file.flush()  # a disk that is full says so here, not to who reads the rows
            except OSError as error:
                where = self._directory or tempfile.gettempdir()
                raise Unavailable(
                    f"{where} takes no rows: {error.strerror}", hint="make room there"
                ) from None
            self._rows = []

    def rows(self) -> Iterator[list[bytes]]:
        """Some at a time, one list at least."""
        if self._file is None:
            yield self._rows
            return
        self._file.seek(0)
        for begin in range(0, self.count, _PIECE_ROWS):
            yield [self._row(self._file) for _ in range(min(_PIECE_ROWS, self.count - begin))]

    def _row(self, file: IO[bytes]) -> bytes:
        (size,) = _SIZE.unpack(file.read(_SIZE.size))
        return file.read(size)


class SnapshotRows:
    """Made by `open_snapshot`. `ends` lets T go. `planned`: where the first chunk is to end."""

    def __init__(
        self,
        snapshot: UpstreamSnapshot,
        tables: Sequence[TableRows],
        begin: SnapshotPosition,
        ends: contextlib.AsyncExitStack,
        directory: str | None = None,
        planned: SnapshotPosition | None = None,
    ) -> None:
        self._planned = planned
        self.begin = begin
        """Where it begins, or goes on."""
        self._snapshot = snapshot
        self._tables = tables
        self._ends = ends
        self._directory = directory
        self._stop = threading.Event()
        self._chunks = self._all_chunks()
        self._reading: asyncio.Task[ChunkRows | None] | None = None
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """There are no tables: `next` gives nothing."""
        return not self._tables

    async def next(self) -> ChunkRows | None:
        """Raises `SnapshotLost`, `SnapshotTooOld`, `Rejected`, `Unavailable`, `Corruption`."""
        if self._is_over:
            return None
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="snapshot")
        chunk = await asyncio.shield(self._reading)
        self._reading = None
        if chunk is None:
            self._is_over = True
        elif not chunk.position.is_end:
            self._reading = asyncio.create_task(self._read(), name="snapshot")
        return chunk

    async def _read(self) -> ChunkRows | None:
        chunk = await asyncio.to_thread(next, self._chunks, None)
        if chunk is None:
            await self._ends.aclose()
        return chunk

    async def close(self) -> None:
        """Idempotent."""
        self._is_over = True
        self._stop.set()
        self._snapshot.cut()  # a server that hangs would keep the thread waiting
        if self._reading is not None:
            await asyncio.wait({self._reading})
            _ = self._reading.cancelled() or self._reading.exception()
        await self._ends.aclose()

    # -- on a thread -----------------------------------------------------------------------------------

    def _all_chunks(self) -> Iterator[ChunkRows]:
        position = self.begin
        for number, table in enumerate(self._tables, 1):
            label, key = table.source.label, key_of(table.source.name)
            if key < position.table:
                continue
            last = Chunk.of_stored(position.chunk) if key == position.table else None
            while last is None or not last.is_last:
                chunks = self._cut(table, last)
                for chunk in chunks:
                    spool = tried(label, self._stop.wait, self._spool, table, chunk, again=AGAIN)
                    first, rows = position.rows, position.rows + spool.count
                    is_end = chunk.is_last and number == len(self._tables)
                    position = replace(position, rows=rows, table=key, chunk=chunk.stored(), is_end=is_end)
                    if spool.count or is_end:
                        version = table.source.version
                        pieces = functools.partial(self._pieces, version, spool, first, position)
                        yield ChunkRows(position, spool.count, spool.size_bytes, pieces, spool.is_large)
                last = chunks[-1]

    def _cut(self, table: TableRows, last: Chunk | None) -> Sequence[Chunk]:
        label, planned = table.source.label, self._planned
        if planned is not None and planned.table == key_of(table.source.name):
            self._planned = None
            return [Chunk.of_stored(planned.chunk)]
        return tried(label, self._stop.wait, table.cut, self._snapshot, last, again=AGAIN)

    def _spool(self, table: TableRows, chunk: Chunk) -> Spool:
        spool = Spool(self._directory)
        with self._snapshot.session() as session:
            for rows in table.rows(session, chunk, self._snapshot.ts):
                spool.add(rows)
        return spool

    def _pieces(
        self, version: TableVersion, spool: Spool, first: int, position: SnapshotPosition
    ) -> Iterator[Transaction]:
        ts, text, end = position.ts, position.text(), first + spool.count
        for rows in spool.rows():
            events = TableEvents(version, [INSERT] * len(rows), rows, first)
            first += len(rows)
            size = sum(map(len, rows))
            yield Transaction(ts, ts, (events,) if rows else (), size, first == end, snapshot=text)


async def open_snapshot(request: SnapshotRequest) -> tuple[SnapshotRows, SchemaTracker]:
    """The rows, and the schema at their timestamp.

    Raises `SnapshotLost`, `SnapshotTooOld`, `Unavailable`, `Rejected`, `ConfigError`, `DownstreamError`."""

    async def opened(_: Ts = 0) -> tuple[SnapshotRows, SchemaTracker]:
        return await _opened(request)

    if request.position.ts:  # no other one will do
        return await opened()
    return await pass_until_kept(opened, 0, lambda _: None)


async def _opened(request: SnapshotRequest) -> tuple[SnapshotRows, SchemaTracker]:
    settings, position = request.settings, request.position
    target = upstream_target_of(settings)
    async with contextlib.AsyncExitStack() as ends:
        snapshot, tracker = await ends.enter_async_context(
            snapshot_with_schema(
                settings,
                request.upstream,
                SESSIONS,
                at_ts=position.ts,
                hold_name=request.hold_name,
                keep=True,
            )
        )
        sources = [source for source in contents_of(tracker, request.rules).tables if source.copies]
        definitions = UpstreamTables(target, snapshot)
        try:
            tables = await asyncio.to_thread(_described, target, definitions, sources)
        except BaseException:
            snapshot.cut()  # a server that hangs would keep the thread waiting
            definitions.cut()
            raise
        begin = begun((table.source for table in tables), position, snapshot.ts, request.upstream.cluster_id)
        left = ends.pop_all()
        return SnapshotRows(snapshot, tables, begin, left, request.directory, request.planned), tracker


def _described(target: Target, definitions: UpstreamTables, sources: Sequence[Source]) -> list[TableRows]:
    try:
        with closing(definitions) as upstream:
            described = [
                TableRows.of(source, upstream.table(source.name), upstream.size(source.name))
                for source in sources
            ]
    except StatementRefused as error:
        raise Rejected(
            f"upstream {target!r}: {safe_text(error)}", hint="check the rights of the user"
        ) from None
    except SessionError as error:
        raise Unavailable(f"upstream {target!r}: {safe_text(error)}", hint=AGAIN) from None
    return sorted(described, key=lambda table: key_of(table.source.name))
