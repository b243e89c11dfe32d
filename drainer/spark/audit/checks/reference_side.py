"""Reference side: what an archive's rows are compared with: a database, or an image.

Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from pyarrow import parquet

from drainer.changes import canonical
from drainer.changes.canonical import Canonical, form_of
from drainer.mysql.connection import Target
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import Dialect, DownstreamTable
from drainer.places.place import Place
from drainer.points.image.columns import ROW, notes_name
from drainer.points.image.manifest import ANEW, Manifest, TableImage
from drainer.reading.archive.columns.column_types import Family, family_of
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.views.changes import INVALID
from drainer.spark.audit.checks.comparison import DATABASE, IMAGE, Compared, Comparison
from drainer.spark.audit.checks.contents import COLUMNS, Beginning, SideRow, expected
from drainer.spark.audit.checks.findings import CONTENTS, Note
from drainer.spark.audit.rows import live_rows
from drainer.spark.audit.rows.lineage import lower
from drainer.spark.audit.rows.live_rows import Chunk, Reader
from drainer.spark.audit.rows.projection import Projections
from drainer.spark.engine import Engine, Rows
from drainer.txn import TableVersion
from tidb_binlog.errors import Corruption
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.table_info import Column, FieldType
from tidb_binlog.tso import Ts

Name = tuple[str, str]
_CHUNK_ROWS: Final = 200_000


class ReferenceSide(Protocol):
    """`noun`: how it is called in messages."""

    noun: str

    def describe(self, name: Name) -> DownstreamTable | None:
        """None if it has no such table."""
        ...

    def should_have(self, name: Name) -> bool:
        """Whether a table of the archive that is not there is missing."""
        ...

    def count(self, name: Name) -> int:
        """Rows of a table."""
        ...

    def names(self, schema: str) -> set[Name]:
        """Its tables of a database, in lower case."""
        ...

    def rows(self, engine: Engine, comparisons: Iterable[Comparison]) -> Rows:
        """All rows, as `contents` has them."""
        ...

    def notes(self) -> list[Note]:
        """What is to be said when all was read."""
        ...

    def close(self) -> None: ...


class Database:
    """A database as it is, or as it was at the timestamp where it is a TiDB."""

    noun = DATABASE

    def __init__(self, target: Target, at_ts: Ts) -> None:
        self._target = live_rows.at_snapshot(target, at_ts)
        self._at_ts = at_ts
        self._reader = live_rows.Reader(self._target)
        self._checkpoint = self._reader.checkpoint()

    def describe(self, name: Name) -> DownstreamTable | None:
        return self._reader.describe(*name)

    def should_have(self, name: Name) -> bool:
        self._reader.check_absent(*name)
        return True

    def count(self, name: Name) -> int:
        return self._reader.count(*name)

    def names(self, schema: str) -> set[Name]:
        return self._reader.tables(schema)

    def rows(self, engine: Engine, comparisons: Iterable[Comparison]) -> Rows:
        chunks = [
            chunk for comparison in comparisons for chunk in self._reader.cut(comparison.live, _CHUNK_ROWS)
        ]
        target = self._target

        def work(some: Iterable[Chunk]) -> Iterator[SideRow]:
            reader = Reader(target)
            try:
                for chunk in some:
                    for key, row in reader.rows(chunk):
                        yield SideRow(chunk.table.number, key, 1, 0, row)
            finally:
                reader.close()

        return engine.over(chunks, work, COLUMNS, together=True)

    def notes(self) -> list[Note]:
        before, after = self._checkpoint, self._reader.checkpoint()
        if before != after:
            text = (
                "a drainer wrote to the database meanwhile: differences may be its work."
                " Stop it and audit again"
            )
        elif before and before != self._at_ts:
            text = f"the drainer's checkpoint in the database is at {before}, the audit at {self._at_ts}"
        else:
            return []
        return [Note(CONTENTS, "", text)]

    def close(self) -> None:
        self._reader.close()


class Image:
    """A directory that `image` made."""

    noun = IMAGE

    def __init__(self, directory: str, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self._tables = {lower((table.schema, table.table)): table for table in manifest.tables}
        self._selection = Selection(tables=manifest.selected)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(table.size(self.directory) for table in self.manifest.tables)

    def describe(self, name: Name) -> DownstreamTable | None:
        table = self._tables.get(lower(name))
        return described(table.version) if table else None

    def should_have(self, name: Name) -> bool:
        return self._selection.wants_table(*name)

    def count(self, name: Name) -> int:
        return self._tables[lower(name)].rows

    def names(self, schema: str) -> set[Name]:
        return {name for name in self._tables if name[0] == schema.lower()}

    def rows(self, engine: Engine, comparisons: Iterable[Comparison]) -> Rows:
        files = [
            file
            for comparison in comparisons
            for file in image_files(
                self.directory,
                self._tables[lower((comparison.live.schema, comparison.live.name))],
                comparison,
            )
        ]

        def work(some: Iterable[ImageFile]) -> Iterator[SideRow]:
            for file in some:
                for row in rows_of(file):
                    yield SideRow(file.comparison.number, row.key, 1, 0, row.row)

        return engine.over(files, work, COLUMNS, together=True)

    def notes(self) -> list[Note]:
        return []

    def close(self) -> None:
        pass


def beginning(
    engine: Engine, image: Image, tables: Mapping[int, TableImage], comparisons: Mapping[int, Comparison]
) -> Beginning | None:
    """Rows of tables at the image's timestamp, as they read under what they are compared in."""
    if not tables.keys() & comparisons.keys():
        return None
    files: Sequence[ImageFile] = [
        file
        for number, table in tables.items()
        if number in comparisons
        for file in as_beginning(image.directory, table, comparisons[number])
    ]

    def work(some: Iterable[ImageFile]) -> Iterator[SideRow]:
        for file in some:
            for row in rows_of(file):
                yield expected(file.comparison.number, row, 1, 0)

    rows = engine.over(files, work, COLUMNS, together=True)
    return Beginning(image.manifest.commit_ts, frozenset(tables), rows)


# Image rows: what an image (`drainer.points.image`) holds, in canonical form.
# Holds   a value that its column could not hold is read from the column `_invalid`

_BATCH_ROWS: Final = 4096
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_TYPES: Final = {
    canonical.INTEGER: "bigint",
    canonical.UNSIGNED: "bigint",
    canonical.DOUBLES: "double",
    canonical.DECIMALS: "decimal",
    canonical.TIMES: "datetime",
    canonical.CHAR: "text",
    canonical.TEXT: "text",
    canonical.PADDED: "blob",
    canonical.BINARY: "blob",
    canonical.NAMES: "enum",
    canonical.NUMBER: "enum",
    canonical.DOCUMENT: "json",
}


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file of a table's image, in its place. `columns`: for each compared one that of the image, None if it
    has none. `notes`: how its column `INVALID` is called."""

    place: Place
    name: str
    comparison: Comparison
    columns: tuple[Column | None, ...]
    notes: str = INVALID


def described(version: TableVersion) -> DownstreamTable:
    """A table of an image, in the words in which a database describes one."""
    columns = tuple(
        DownstreamColumn(column.name, _TYPES[form_of(column.type)])
        for column in _columns(version)
        if column.is_writable
    )
    return DownstreamTable(*version.downstream, columns, (), dialect=Dialect.TIDB)


def _columns(version: TableVersion) -> list[Column]:
    return sorted(version.info.columns, key=lambda column: column.offset)


def image_files(directory: str, table: TableImage, how: Comparison) -> list[ImageFile]:
    """The files of a table, for columns of these names: as they were at the image's timestamp."""
    by_name = {column.name: column for column in table.version.info.columns}
    return _files(directory, table, how, [by_name[name] for name in how.columns])


def as_beginning(directory: str, table: TableImage, how: Comparison) -> list[ImageFile]:
    """The files of a table whose rows are read under a later definition, that of the comparison."""
    projection = Projections().of(table.version, how.version)
    assert projection is not None  # or there were no comparison
    unknown = projection.unknown | projection.newer
    by_id = {column.id: column for column in table.version.info.columns}
    columns = [None if place in unknown else by_id[projection.columns[place].id] for place in how.places]
    return _files(directory, table, how, columns)


def _files(
    directory: str, table: TableImage, how: Comparison, columns: Iterable[Column | None]
) -> list[ImageFile]:
    """Raises `Corruption` for a table whose files are not there."""
    place, names = table.place(directory), table.names(directory)
    if not names:
        raise Corruption(f"{place.shown} has no Parquet files", hint=ANEW)
    for name in names:
        table.check(directory, name)
    return [ImageFile(place, name, how, tuple(columns), notes_name(table.version)) for name in names]


def rows_of(file: ImageFile) -> Iterator[Compared]:
    """Rows of a file. Raises `Corruption`."""
    try:
        yield from _rows(file)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise Corruption(
            f"{file.place.path_of(file.name)} cannot be read: {str(error) or type(error).__name__:.200}",
            hint=ANEW,
        ) from None


def _rows(file: ImageFile) -> Iterator[Compared]:
    how = file.comparison
    readers = [None if column is None else _Value(column) for column in file.columns]
    absent = frozenset(place for place, reader in enumerate(readers) if reader is None)
    names = [reader.name for reader in readers if reader is not None]
    with file.place.native(file.name) as source:
        opened = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
        for batch in opened.iter_batches(_BATCH_ROWS, columns=[*names, file.notes]):
            notes = batch.column(file.notes).to_pylist()
            arrays = [[None] * len(notes) if reader is None else reader.array(batch) for reader in readers]
            for note, *values in zip(notes, *arrays, strict=True):
                if note is not None:
                    texts = json.loads(note)
                    values = [
                        value if reader is None else reader.noted(texts, value)
                        for reader, value in zip(readers, values, strict=True)
                    ]
                compared = how.compared(values, absent)
                if compared is not None:
                    yield compared


class _Value:
    """Canonical values of one column."""

    def __init__(self, column: Column) -> None:
        self.name = column.name
        self._form = form_of(column.type)
        self._packed = family_of(column.type) in (Family.DATETIME, Family.TIME)
        self._canonical = _canonical(column.type)

    def array(self, batch: pa.RecordBatch) -> list[Canonical]:
        array = batch.column(self.name)
        if self._packed and not pa.types.is_int64(array.type):
            array = array.cast(pa.int64())
        make = self._canonical
        return [None if value is None else make(value) for value in array.to_pylist()]

    def noted(self, texts: dict[str, Any], value: Canonical) -> Canonical:
        """Of a row of which `_invalid` says something."""
        text = texts.get(f"{ROW}.{self.name}")
        if text is None:
            return value
        if isinstance(text, dict):
            return canonical.of_server(base64.b64decode(text["base64"]), self._form)
        if self._form == canonical.NAMES and text.isdecimal():
            return b""  # a number without a name
        return canonical.of_server(text, self._form)


def _canonical(kind: FieldType) -> Callable[[Any], bytes]:
    family = family_of(kind)
    form = form_of(kind)
    if family is Family.DATETIME:
        return lambda us: canonical.time((_EPOCH + datetime.timedelta(microseconds=us)).isoformat(" "))
    if family is Family.TIME:
        return _time
    if family is Family.DATE:
        return lambda date: canonical.time(date.isoformat())
    if family is Family.DECIMAL:
        return lambda value: canonical.decimal(format(value, "f") if not isinstance(value, str) else value)
    if family is Family.INTEGER:
        return lambda value: b"%d" % int(value)
    return canonical.OF_IMAGE[form]


def _time(us: int) -> bytes:
    seconds, fraction = divmod(abs(us), 1_000_000)
    hours, rest = divmod(seconds, 3600)
    text = f"{'-' if us < 0 else ''}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return canonical.time(f"{text}.{fraction:06d}" if fraction else text)
