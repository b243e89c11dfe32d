"""Copy task: ranges of tables, read at one timestamp, become data files of a lake.

Out    what was written, one file a range that has rows
Holds  rows take the Drainer's own way: what is in the lake is what its changes would have left there
       A file is nothing before the driver commits it, so a task may be done again
Tests  tests/spark/live/test_lake_copy.py
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Final

from drainer.lake.changelog import Change
from drainer.lake.data_files import HELD_BYTES, DataFile, FileWriter, Form
from drainer.lake.lake_table import Name, plain_name
from drainer.lake.mirror import MirrorRows
from drainer.mysql.chunks.chunk import Chunk
from drainer.mysql.chunks.table_size import TableSize
from drainer.mysql.connection import Connection, Target
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.places.place import Place
from drainer.points.load.contents import Source
from drainer.points.rows.table_rows import TableRows, tried
from drainer.points.snapshot.sessions import UpstreamSnapshot
from drainer.points.snapshot.tidb import TidbSnapshot
from drainer.reading.archive.decode.definitions import archived
from drainer.reading.archive.decode.images import ImagePlan
from drainer.spark.chunk_tasks import pace_of, sources_of
from drainer.txn import INSERT
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.tso import Ts

FILE_BYTES: Final = 64 << 20
"""Of a table as its server stores it, that a file is to have."""
FILE_ROWS_MAX: Final = 1_000_000
FILE_ROWS_MIN: Final = 100


@dataclass(frozen=True, slots=True)
class LakePart:
    """A range of a table. `name`: upstream; `here`: how the table is there."""

    name: Name
    here: DownstreamTable
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Written:
    """Of a range. `file` None: it has no rows."""

    file: DataFile | None
    rows: int
    size: int


def table_of(source: Source, here: DownstreamTable, size: TableSize) -> TableRows:
    """Cut into ranges that are a file each."""
    rows = FILE_ROWS_MAX
    if size.rows and size.size_bytes:
        rows = FILE_BYTES * size.rows // size.size_bytes
    return TableRows.of(source, here, size, max(FILE_ROWS_MIN, min(rows, FILE_ROWS_MAX)))


@dataclass(frozen=True)
class LakeCopying:
    """Picklable, without the password in its `repr`. `schema`: a pickled `SchemaTracker` of `ts`. `rules`:
    the text of `Rules`. `rate_rows`: of each process, 0: no limit."""

    source: Target
    ts: Ts
    warehouse: Place
    is_mirror: bool
    schema: bytes = field(repr=False)
    rules: str
    rate_rows: int

    def __call__(self, parts: Iterator[LakePart]) -> Iterator[Written]:
        for part in parts:
            snapshot = TidbSnapshot(self.source, self.ts, 1, None)
            try:
                yield self.written(part, snapshot)
            finally:
                asyncio.run(snapshot.close())

    def written(self, part: LakePart, snapshot: UpstreamSnapshot) -> Written:
        """Raises as `tried`, and `Corruption`."""
        source = sources_of(self.schema, self.rules)[part.name]
        table = table_of(source, part.here, TableSize(0, 0))
        return tried(source.label, threading.Event().wait, self._written, table, part.chunk, snapshot)

    def _written(self, table: TableRows, chunk: Chunk, snapshot: UpstreamSnapshot) -> Written:
        version = archived(table.source.version)
        form = Form.of_new(plain_name(version.downstream), version)
        rows = MirrorRows(version) if self.is_mirror else None
        file = FileWriter(self.warehouse, form, version.downstream, 0, rows)
        try:
            with snapshot.session() as session:
                count, size = self._fill(file, table, chunk, session)
            return Written(file.end() if count else None, count, size)
        except BaseException as error:
            file.drop(error)
            raise

    def _fill(self, file: FileWriter, table: TableRows, chunk: Chunk, session: Connection) -> tuple[int, int]:
        """Rows, and bytes of them."""
        source = table.source
        version, plan = archived(source.version), ImagePlan(source.version.info)
        pace = pace_of(self.rate_rows, self.ts)
        commit_ts = 0 if self.is_mirror else self.ts
        count = size = held = 0
        for some in table.rows(session, chunk, self.ts):
            try:
                images = [plan.insert(row) for row in some]
            except RowError as error:
                raise Corruption(f"a row of {source.label}: {error.message}") from None
            file.waiting += [
                Change(commit_ts, seq, (version, INSERT, None, image), is_snapshot=True)
                for seq, image in enumerate(images, count)
            ]
            count, of_some = count + len(images), sum(map(len, images))
            size, held = size + of_some, held + of_some
            if held >= HELD_BYTES:
                file.flush()
                held = 0
            pace(len(images), of_some)
        file.flush()
        return count, size
