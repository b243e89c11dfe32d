"""Data files: rows of parts of the stream as Parquet files of changelogs, written by tasks.

In     parts of the stream in commit order; how the changelogs are whose tables were seen before (`Form`)
Out    `DataFile` values: who commits them looks whether they were written as the changelog is by then
Holds  a file that is not committed is read by nobody. Its name is never used again, and it lies where
       vacuum and `remove_orphan_files` look
Tests  tests/drainer/lake/test_lake_sink.py, tests/spark/live/test_lake_stream.py
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import parquet

from drainer.lake.changelog import Change, Changelog, columns_of
from drainer.lake.evolution import Evolution, evolution
from drainer.lake.lake_table import Name, plain_name
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import read
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.txn import TableVersion
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.process.garbage import collect_rarely
from tidb_binlog.tso import Ts

DIRECTORY: Final = "data"
"""Of a table, where its files are."""
HELD_BYTES: Final = 32 << 20
_OPEN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Form:
    """How a changelog is: what it is called in the warehouse, its columns."""

    directory: Name
    columns: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def of_new(cls, directory: Name, version: TableVersion) -> Form:
        """As a changelog begins that this version makes."""
        return cls(directory, tuple((column.name, column.type) for column in columns_of(version)))

    def takes(self, version: TableVersion) -> bool:
        """Whether rows of the version can be written so, as far as names and types say it."""
        return evolution(dict(self.columns), {}, columns_of(version), can_widen=False) == Evolution()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that is written. `table`: downstream, with the number of its definition; `path`: in the
    directory of the table. Timestamps are 0 where rows have none."""

    table: Name
    definition: int
    form: Form
    path: str
    size: int
    rows: int
    first_ts: Ts
    last_ts: Ts


class Batches(Protocol):
    """Makes of rows what a file has."""

    schema: pa.Schema

    def batches(self, changes: Iterable[Change]) -> Iterator[pa.RecordBatch]:
        """Raises `RowError` for an image that cannot be right."""
        ...


class FileWriter:
    """A file that is being written; nothing is there before the first rows are. `rows`: of a table that is no
    changelog."""

    def __init__(
        self, place: Place, form: Form, table: Name, definition: int, rows: Batches | None = None
    ) -> None:
        self._place = place.under(form.directory[0]).under(form.directory[1]).under(DIRECTORY)
        self._form = form
        self._table = table, definition
        self._batches: Batches = rows or Changelog(dict(form.columns))
        self._ends = contextlib.ExitStack()
        self._file: Any = None
        self._writer: Any = None
        self._rows = self._first_ts = self._last_ts = 0
        self._name = f"part-{uuid.uuid4().hex}.zstd.parquet"
        self.waiting: list[Change] = []

    def flush(self) -> None:
        """Raises `RowError` for an image that cannot be right, `Unavailable`."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        if self._writer is None:
            self._place.make()
            self._file = self._ends.enter_context(self._place.stream(self._name))
            self._writer = self._ends.enter_context(
                parquet.ParquetWriter(self._file, self._batches.schema, compression="zstd")
            )
            self._first_ts = waiting[0].commit_ts
        table = pa.Table.from_batches(self._batches.batches(waiting), self._batches.schema)
        self._writer.write_table(table)
        self._rows += len(waiting)
        self._last_ts = waiting[-1].commit_ts

    def end(self) -> DataFile:
        """It is there."""
        self._writer.close()
        size = self._file.tell()
        self._ends.close()
        path = f"{DIRECTORY}/{self._name}"
        return DataFile(*self._table, self._form, path, size, self._rows, self._first_ts, self._last_ts)

    def drop(self, error: BaseException) -> None:
        """It is not to be there."""
        with contextlib.suppress(BaseException):
            self._ends.__exit__(type(error), error, None)


@dataclass(frozen=True)
class DataFiles:
    """What a task does with parts of the stream, of a location. A table that is not in `forms` is taken for a
    new one; of one in `after_ts` what is at or below it is there."""

    location: Place
    warehouse: Place
    selection: Selection
    definitions: Definitions
    forms: Mapping[Name, Form] = field(repr=False)
    after_ts: Mapping[Name, Ts] = field(repr=False)

    def __call__(self, shares: Iterable[Sequence[Slice]]) -> Iterator[DataFile]:
        collect_rarely()
        for share in shares:
            files: dict[TableVersion, FileWriter] = {}
            try:
                yield from self._share(share, files)
            except BaseException as error:
                for file in files.values():
                    file.drop(error)
                raise

    def _share(self, share: Sequence[Slice], files: dict[TableVersion, FileWriter]) -> Iterator[DataFile]:
        size = 0
        for part in share:
            for record in read(self.location, part, self.selection, self.definitions):
                if not isinstance(record, Changes):
                    continue
                commit_ts = record.commit_ts
                for seq, row in enumerate(record.rows, record.first_seq):
                    version = row[0]
                    if commit_ts <= self.after_ts.get(version.downstream, 0):
                        continue
                    file = files.get(version) or self._begin(version, files)
                    file.waiting.append(Change(commit_ts, seq, row))
                    size += len(row[2] or b"") + len(row[3] or b"")
                if size >= HELD_BYTES:
                    size = 0
                    for file in files.values():
                        file.flush()
                    if len(files) > _OPEN_MAX:
                        yield from _ended(files)
        yield from _ended(files)

    def _begin(self, version: TableVersion, files: dict[TableVersion, FileWriter]) -> FileWriter:
        name = version.downstream
        form = self.forms.get(name)
        if form is None or not form.takes(version):
            form = Form.of_new(form.directory if form is not None else plain_name(name), version)
        file = files[version] = FileWriter(self.warehouse, form, name, self.definitions.number_of(version))
        return file


def _ended(files: dict[TableVersion, FileWriter]) -> Iterator[DataFile]:
    while files:
        version, file = next(iter(files.items()))
        file.flush()
        ended = file.end()
        del files[version]
        yield ended
