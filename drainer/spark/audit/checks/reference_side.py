"""Reference side: what an archive's rows are compared with: a database, or an image.

Out     tables as they are described there, all their rows
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from drainer.mysql.connection import Target
from drainer.mysql.rows.column_match import DownstreamTable
from drainer.points.image.manifest import Manifest, TableImage
from drainer.reading.archive.files.selection import Selection
from drainer.spark.audit.checks import image_rows
from drainer.spark.audit.checks.comparison import DATABASE, IMAGE, Comparison
from drainer.spark.audit.checks.contents import COLUMNS, Beginning, SideRow, expected
from drainer.spark.audit.checks.findings import CONTENTS, Note
from drainer.spark.audit.checks.image_rows import ImageFile
from drainer.spark.audit.rows import live_rows
from drainer.spark.audit.rows.lineage import lower
from drainer.spark.audit.rows.live_rows import Chunk, Reader
from drainer.spark.engine import Engine, Rows
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
        return image_rows.described(table.version) if table else None

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
            for file in image_rows.image_files(
                self.directory,
                self._tables[lower((comparison.live.schema, comparison.live.name))],
                comparison,
            )
        ]

        def work(some: Iterable[ImageFile]) -> Iterator[SideRow]:
            for file in some:
                for row in image_rows.rows(file):
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
        for file in image_rows.as_beginning(image.directory, table, comparisons[number])
    ]

    def work(some: Iterable[ImageFile]) -> Iterator[SideRow]:
        for file in some:
            for row in image_rows.rows(file):
                yield expected(file.comparison.number, row, 1, 0)

    rows = engine.over(files, work, COLUMNS, together=True)
    return Beginning(image.manifest.commit_ts, frozenset(tables), rows)
