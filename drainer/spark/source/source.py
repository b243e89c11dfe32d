"""Source: `spark.read.format("binlog")`.

Out     partitions, one a stretch of a segment; in a task record batches of a view
Holds   the archive is surveyed when the frame is loaded and when it is planned; a frame that is there does
        not see what is written later. A schema that is given prunes columns: only they are made
Why     a range of Pumps is another source with the same views (`pump_source`, `pump_stream`)
Never   takes filters of Spark: it keeps those of one query for another one (options select, for each load)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource, Part
from drainer.spark.source.spark_types import arrow_schema, struct_of
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.process.garbage import collect_rarely

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader

NAME: Final = "binlog"
PUMPS: Final = "pumps://"


@dataclass
class _Partition(InputPartition):
    part: Part


class BinlogReader(DataSourceReader):
    """Of one frame. It is sent to the tasks with all that they need."""

    def __init__(self, archive: ArchiveSource, columns: StructType) -> None:
        archive.check_tables()
        self._task = archive.task(arrow_schema(columns))
        self._view = archive.options.view
        self._parts = archive.parts()

    def partitions(self) -> list[InputPartition]:
        return list(map(_Partition, self._parts))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Partition):  # Spark's own: there is nothing to read
            return
        collect_rarely()
        yield from archive_source.read(self._task, self._view, partition.part)


class BinlogDataSource(DataSource):
    """`format("binlog")`, for `spark.read` and `spark.readStream`; its options: `read_options`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the view, or of the table, that the options name."""
        return struct_of(self._source().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch: the archive, or what Pumps have, as it is now."""
        if is_of_pumps(self.options):
            from drainer.spark.source import pump_source

            return pump_source.PumpReader(pump_source.PumpSource(self.options), schema)
        return BinlogReader(self._source(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For a stream, which follows an archive that is written, or Pumps."""
        from drainer.spark.source import stream_reader

        if is_of_pumps(self.options):
            from drainer.spark.source.pump_stream import PumpStreamReader

            return PumpStreamReader(self.options, schema)
        return stream_reader.reader(self.options, schema)

    def _source(self) -> ArchiveSource:
        if not is_of_pumps(self.options):
            return ArchiveSource(self.options)
        from drainer.spark.source import pump_source

        return pump_source.PumpSource(self.options)


def is_of_pumps(given: Mapping[str, str]) -> bool:
    """Whether options name Pumps instead of an archive."""
    options = {key.lower(): value for key, value in given.items()}
    return "pd-urls" in options or options.get("path", "").startswith(PUMPS)


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(BinlogDataSource)
