"""Reference side: what an archive's rows are compared with: a database, or an image.

Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from typing import Final, Protocol

from drainer.changes.canonical import Canonical
from drainer.compare.verify.image_comparison import described
from drainer.compare.verify.row_source import printer
from drainer.mysql.connection import Target
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.image.manifest import Manifest, TableImage
from drainer.points.image.parquet_reader import Group, TableReader
from drainer.reading.archive.files.selection import Selection
from drainer.spark.audit.checks.comparison import DATABASE, IMAGE, Compared, Comparison
from drainer.spark.audit.checks.contents import COLUMNS, Beginning, SideRow, expected
from drainer.spark.audit.checks.findings import CONTENTS, Note
from drainer.spark.audit.rows import live_rows
from drainer.spark.audit.rows.lineage import lower
from drainer.spark.audit.rows.live_rows import Part, Reader
from drainer.spark.audit.rows.projection import Projections
from drainer.spark.engine import Engine, Rows
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.rowcodec.plan import TablePlan
from tidb_binlog.tso import Ts

Name = tuple[str, str]
Values = Callable[[bytes], Sequence[Canonical]]
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
        parts = [
            part for comparison in comparisons for part in self._reader.cut(comparison.live, _CHUNK_ROWS)
        ]
        target = self._target

        def work(some: Iterable[Part]) -> Iterator[SideRow]:
            with closing(Reader(target)) as reader:
                for part in some:
                    for key, row in reader.rows(part):
                        yield SideRow(part[0].number, key, 1, 0, row)

        return engine.over(parts, work, COLUMNS, together=True)

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
        tables = [
            ImageRows(self.directory, self._tables[lower((how.live.schema, how.live.name))], how)
            for how in comparisons
        ]

        def work(some: Iterable[ImagePart]) -> Iterator[SideRow]:
            for table, groups in some:
                for row in table.read(groups):
                    yield SideRow(table.how.number, row.key, 1, 0, row.row)

        return engine.over(_parts(tables), work, COLUMNS, together=True)

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
    parts = _parts(
        ImageRows(image.directory, table, comparisons[number], is_beginning=True)
        for number, table in tables.items()
        if number in comparisons
    )

    def work(some: Iterable[ImagePart]) -> Iterator[SideRow]:
        for table, groups in some:
            for row in table.read(groups):
                yield expected(table.how.number, row, 1, 0)

    rows = engine.over(parts, work, COLUMNS, together=True)
    return Beginning(image.manifest.commit_ts, frozenset(tables), rows)


@dataclass(frozen=True, slots=True)
class ImageRows:
    """Rows of a table of an image in compared form: as they were at the image's timestamp, or what the table
    began with, under the later definition of the comparison."""

    directory: str
    table: TableImage
    how: Comparison
    is_beginning: bool = False

    def groups(self) -> list[Group]:
        """What `read` takes. Raises `Corruption`."""
        return TableReader(self.directory, self.table).groups()

    def read(self, groups: Iterable[Group]) -> Iterator[Compared]:
        """Raises `Corruption`."""
        reader = TableReader(self.directory, self.table)
        values, absent = self._began(reader) if self.is_beginning else (self._same(reader), frozenset[int]())
        for group in groups:
            for row in reader.rows(group, values):
                compared = self.how.compared(row, absent)
                if compared is not None:
                    yield compared

    def _same(self, reader: TableReader) -> Values:
        plan = TablePlan(reader.version.info)
        shown = printer(plan, [(column.name, column.form) for column in self.how.live.columns])
        return lambda image: shown(plan.decode_delete(image))

    def _began(self, reader: TableReader) -> tuple[Values, frozenset[int]]:
        projection = Projections().of(reader.version, self.how.version)
        assert projection is not None  # or there were no comparison
        unknown, places = projection.unknown | projection.newer, self.how.places

        def values(image: bytes) -> Sequence[Canonical]:
            row = projection.values(image)
            return [row[place] for place in places]

        return values, frozenset(number for number, place in enumerate(places) if place in unknown)


ImagePart = tuple[ImageRows, list[Group]]
"""A file of a table."""


def _parts(tables: Iterable[ImageRows]) -> list[ImagePart]:
    return [
        (table, list(groups))
        for table in tables
        for _, groups in itertools.groupby(table.groups(), attrgetter("name"))
    ]
