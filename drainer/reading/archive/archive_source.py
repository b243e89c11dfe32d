"""Archive source: an archive as options name it, and what of it is read at a time.

Out     the schema of a view, parts of the archive that are read apart, record batches of a part
Holds   the archive is surveyed once, when it is first asked for: what is written later is not seen. Columns
        that are not wanted are not made
Tests   tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from typing import TYPE_CHECKING, Final

from drainer.places.place import Place
from drainer.reading.archive.decode import coverage, ddl_history, definitions
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import REPORT, Reach
from drainer.reading.archive.files import segments
from drainer.reading.archive.files.segments import PUMP, WHOLE_FILES, Segment, Slice, Survey
from drainer.reading.archive.files.selection import Selection
from drainer.reading.archive.read_options import ReadOptions, check_tables, ddl_names, table_names, version_of
from drainer.reading.archive.views import VIEWS, changes
from drainer.reading.archive.views.view import ReadTask, View, unknown_column
from drainer.txn import TableVersion
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING: Final = Slice("", 0, "")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch to read, or whole files."""

    slice: Slice
    files: tuple[tuple[Slice, Segment], ...] = ()


class ArchiveSource:
    """What options name, surveyed as far as it is needed. Raises `ConfigError`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = ReadOptions.of(given)
        if self.options.view not in VIEWS:
            raise ConfigError(
                f"there is no view {self.options.view!r}", hint=f"choose from {', '.join(VIEWS)}"
            )
        self.view: View = VIEWS[self.options.view]

    @cached_property
    def survey(self) -> Survey:
        """Survey the archive, once."""
        return segments.survey(self.options.location, self.options.kind, self.options.time_zone)

    @property
    def location(self) -> Place:
        """Where tasks open the names of slices."""
        return self.survey.location

    @cached_property
    def definitions(self) -> Definitions:
        """Collect the definitions of its tables."""
        options = self.options
        if options.definitions:
            return Definitions.from_json(options.definitions)
        is_pump = self.survey.kind == PUMP
        history = ddl_history.load(options.location, options.ddl_history) if is_pump else ()
        return definitions.of_archive(options.location, self.survey, ddl_history=history)

    @cached_property
    def version(self) -> TableVersion | None:
        """The definition that columns are typed by."""
        if not self.options.table[0]:
            return None
        return version_of(self.options, self.survey, self.definitions)

    @property
    def schema(self) -> pa.Schema:
        """Say which columns the view has."""
        return self.view.schema if self.version is None else changes.schema(self.version)

    @property
    def table_names(self) -> set[tuple[str, str]]:
        """Of all tables; none where they are not known."""
        return table_names(self.survey, self.definitions)

    def ddl_names(self, selection: Selection) -> set[tuple[str, str]]:
        """Of tables, databases and views that DDL of a selection touches."""
        return ddl_names(self.survey, self.definitions, selection)

    def check_tables(self, more: Set[tuple[str, str]] = frozenset()) -> None:
        """Raises `NoSuchTable` for a pattern that fits no table. `more`: those that an image has."""
        options = self.options
        if options.selection.tables:
            names, shown = self.table_names, options.location.shown
            check_tables(shown, names, options.selection, lambda alone: self.ddl_names(alone) | more)

    def in_order(self, columns: pa.Schema) -> tuple[ReadTask, list[Part]]:
        """For who reads one part after the other: what a drainer wrote again into another file comes once."""
        return replace(self.task(columns), reach=Reach()), self.parts(WHOLE_FILES)

    def parts(self, target_bytes: int = 0) -> list[Part]:
        """What is read apart, in the order of the archive."""
        if self.view.is_of_definitions:
            return [Part(NOTHING)]
        slices = self.slices(target_bytes)
        return (
            self._of_files({part.name for part in slices})
            if self.view.is_of_files
            else list(map(Part, slices))
        )

    def slices(self, target_bytes: int = 0) -> list[Slice]:
        """List the stretches that the selection needs."""
        options = self.options
        skip_damage = options.damage == REPORT or self.view.is_of_files
        size = target_bytes or options.partition_bytes
        return self.survey.plan(options.selection, size, skip_damage=skip_damage)

    def task(self, columns: pa.Schema) -> ReadTask:
        """What all parts have in common. Raises `ConfigError` for a column that the view does not have."""
        names = self.schema.names
        for name in columns.names:
            if name not in names:
                raise unknown_column(name, names, self.options.view)
        return ReadTask(
            self.location,
            NOTHING,
            self.options.selection,
            self.definitions,
            columns,
            self.version,
            self.options.damage,
            verify=self.options.verify,
        )

    def _of_files(self, names: set[str]) -> list[Part]:
        """Files that are not read are one part: a task costs more than they do."""
        covered: list[tuple[Slice, Segment]] = []
        parts = []
        for part, segment in zip(coverage.slices(self.survey), self.survey.segments, strict=True):
            if part.name not in names:
                continue
            if segment.is_covered and not self.options.verify:
                covered.append((part, segment))
            else:
                parts.append(Part(NOTHING, ((part, segment),)))
        return [*parts, Part(NOTHING, tuple(covered))] if covered else parts


def read(task: ReadTask, view: str, part: Part) -> Iterator[pa.RecordBatch]:
    """Batches of a part. Raises `Corruption`."""
    return VIEWS[view].batches(replace(task, part=part.slice, files=part.files))
