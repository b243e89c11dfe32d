"""Table dump: how the rows of one table become files of an image.

Drives  a session of the upstream's snapshot
In      the table's definition, the Drainer's rules for it, a chunk
Out     a file that has all rows of the chunk, as an archive of this Drainer would have them
Holds   rows take the Drainer's own way: read as values, encoded, ruled, then put into columns
Tests   tests/drainer/points/dump/test_dump.py

Blocks. A chunk is one thread's; several chunks may be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.cut_key import key_to_copy
from drainer.mysql.chunks.splitter import Splitter
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.chunks.value_rows import ValueSelect
from drainer.mysql.connection import Connection
from drainer.mysql.rows.column_match import Dialect, DownstreamTable
from drainer.points.image.parquet_writer import Part, TableWriter
from drainer.points.load.contents import Source
from drainer.points.load.table_copy import rows_wanted
from drainer.points.snapshot.sessions import UpstreamSnapshot
from drainer.reading.archive.decode.definitions import archived
from drainer.reading.archive.decode.images import ImagePlan
from drainer.txn import INSERT
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec import RowError

Pace = Callable[[int, int], None]


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
        found = []
        with snapshot.session() as session:
            for chunk in self.splitter.chunks(session, last):
                found.append(chunk)
                if len(found) == count:
                    break
        return found

    def write(self, session: Connection, chunk: Chunk, ts: int, pace: Pace) -> Part:
        """Raises `SessionError`, `Unavailable`, `Corruption`, and what `pace` raises."""
        with self.writer.part(chunk.number) as part:
            for rows in self.select.read(session, chunk):
                images = list(self._images(rows, ts))
                part.add(images)
                pace(len(images), sum(map(len, images)))
        found = self.writer.has(chunk.number)
        assert found is not None
        return found

    def _images(self, rows: list[bytes], ts: int) -> Iterator[bytes]:
        edit, plan = self.source.edit, self.plan
        try:
            for row in rows:
                event = (INSERT, row) if edit is None else edit.event(INSERT, row, ts)
                if event is not None:
                    yield plan.insert(event[1])
        except RowError as error:
            raise Corruption(f"a row of {self.source.label}: {error.message}") from None
