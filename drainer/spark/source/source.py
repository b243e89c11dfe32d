"""Source: `spark.read.format("binlog")`.

In      options (`read_options`), a schema if one is given
Out     partitions, one a stretch of a segment; in a task record batches of a view
Holds   the archive is surveyed when the frame is loaded and when it is planned; a frame that is there does
        not see what is written later. A schema that is given prunes columns: only they are made
Never   takes filters of Spark: it keeps those of one query for another one (options select, for each load)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from common.errors import ConfigError
from common.process.garbage import collect_rarely
from drainer.reading.archive.decode import coverage, ddl_history, definitions
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files import segments
from drainer.reading.archive.files.segments import PUMP, Segment, Slice, Survey
from drainer.spark.source.read_options import ReadOptions
from drainer.spark.source.table_version import version_of
from drainer.spark.source.views import VIEWS, typed_changes
from drainer.spark.source.views.columns import unknown_column
from drainer.spark.source.views.view import ReadTask, View
from drainer.txn import TableVersion

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader

NAME: Final = "binlog"
_NOTHING: Final = Slice("", 0, "")


@dataclass
class _Part(InputPartition):
    """A stretch to read, or whole files."""

    part: Slice
    files: tuple[tuple[Slice, Segment], ...] = ()


class ArchiveSource:
    """What options name, surveyed as far as it is needed."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.options = ReadOptions.of(given)
        if self.options.view not in VIEWS:
            raise ConfigError(
                f"there is no view {self.options.view!r}", hint=f"choose from {', '.join(VIEWS)}"
            )
        self.view: View = VIEWS[self.options.view]

    @cached_property
    def survey(self) -> Survey:
        return segments.survey(self.options.location, self.options.kind, self.options.time_zone)

    @cached_property
    def definitions(self) -> Definitions:
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
    def schema(self) -> StructType:
        return self.view.schema if self.version is None else typed_changes.schema(self.version)

    def parts(self) -> list[_Part]:
        """What tasks read."""
        if self.view.is_of_definitions:
            return [_Part(_NOTHING)]
        slices = self.slices()
        return (
            self._of_files({part.name for part in slices})
            if self.view.is_of_files
            else list(map(_Part, slices))
        )

    def slices(self) -> list[Slice]:
        return self.survey.plan(self.options.selection, self.options.partition_bytes)

    def _of_files(self, names: set[str]) -> list[_Part]:
        """Files that are not read share a task: it costs more than they do."""
        covered: list[tuple[Slice, Segment]] = []
        found = []
        for part, segment in zip(coverage.slices(self.survey), self.survey.segments, strict=True):
            if part.name not in names:
                continue
            if segment.is_covered and not self.options.verify:
                covered.append((part, segment))
            else:
                found.append(_Part(_NOTHING, ((part, segment),)))
        return [*found, _Part(_NOTHING, tuple(covered))] if covered else found


class BinlogReader(DataSourceReader):
    """Of one frame. It is sent to the tasks with all that they need."""

    def __init__(self, archive: ArchiveSource, columns: StructType) -> None:
        known = archive.schema.names
        for name in columns.names:
            if name not in known:
                raise unknown_column(name, known, archive.options.view)
        self._options = archive.options
        self._parts = archive.parts()
        self._task = ReadTask(
            archive.survey.location,
            _NOTHING,
            archive.options.selection,
            archive.definitions,
            columns,
            archive.version,
            archive.options.damage,
            verify=archive.options.verify,
        )

    def partitions(self) -> list[InputPartition]:
        return list(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):  # Spark's own: there is nothing to read
            return
        collect_rarely()
        yield from VIEWS[self._options.view].batches(
            replace(self._task, part=partition.part, files=partition.files)
        )


class BinlogDataSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return ArchiveSource(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return BinlogReader(ArchiveSource(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from drainer.spark.source import stream_reader

        return stream_reader.reader(self.options, schema)


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(BinlogDataSource)
