"""Stream reader: `spark.readStream.format("binlog")`, over an archive or a relay log that grows.

    maxBytesPerTrigger   bytes of records a batch reads, one transaction at least (64 MiB)
    maxRowsPerTrigger    rows instead; they are counted on the driver before they are read
    failOnDataLoss       true; false: segments that were removed before they were read are passed over

Out     offsets, parts of segments for tasks; in a task record batches of a view
Holds   what a batch reads is decided by its offsets alone, so a batch that is run again has the same rows; an
        offset never goes back. `stop` ends the stream, `availableNow` does at what is there when it begins
Never   does anything in `commit`: Spark calls it late, again, or not at all
Tests   tests/spark/replay/test_stream_apply.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from drainer.reading.archive.decode.definitions import Definitions, of_archive
from drainer.reading.archive.read_options import ReadOptions, version_of
from drainer.reading.archive.views import VIEWS
from drainer.reading.archive.views.view import ReadTask
from drainer.spark.source.spark_types import arrow_schema
from drainer.spark.source.stream_archive import StreamArchive, StreamPart
from drainer.spark.source.stream_offsets import BATCH_BYTES, Admission, Offset
from tidb_binlog.errors import ConfigError
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

try:
    from pyspark.sql.streaming.datasource import (
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:
    raise ConfigError(
        f"a stream needs PySpark 4.2 or newer, and this is {pyspark.__version__}",
        hint="pip install 'pyspark>=4.2', or read without a stream; `binlog-spark stream --from pumps://...`"
        " does without",
    ) from None

if TYPE_CHECKING:
    import pyarrow as pa

    from drainer.txn import TableVersion

RANGES: Final = "binlog_ranges"
PARTS_MIN: Final = 4
PART_BYTES_MIN: Final = 1 << 20
_VIEWS: Final = ("changes", "transactions", "ddl")
_BOUNDS: Final = StructType([StructField(name, LongType()) for name in ("start_ts", "stop_ts", "segment")])


class Follower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Where a query is and how far its next batch goes; what a batch reads is up to others."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = self._options = ReadOptions.of(given)
        texts = {key.lower(): text for key, text in given.items()}
        self._max_rows = number_option(texts, "maxRowsPerTrigger")
        self._max_bytes = number_option(texts, "maxBytesPerTrigger")
        self._archive = StreamArchive(
            options.location,
            options.kind,
            keep_going=not _flag(texts, "failOnDataLoss", default=True),
            damage=options.damage,
            time_zone=options.time_zone,
        )
        self._frozen: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._archive.beginning(self._options.selection.start).document()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        admission = Admission(
            max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else 0,
            max_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0,
            stop_ts=self._options.selection.stop,
        )
        return self._archive.latest(Offset.of(start), admission, self._frozen).document()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._max_rows:
            return ReadMaxRows(self._max_rows)
        return ReadMaxBytes(self._max_bytes or BATCH_BYTES)

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = self._archive.end()


@dataclass
class _TaskPart(InputPartition):
    """What a task reads, and of which tables that is."""

    part: StreamPart
    definitions: Definitions
    version: TableVersion | None


class StreamReader(Follower):
    """Rows of a view."""

    def __init__(self, given: Mapping[str, str], columns: StructType) -> None:
        super().__init__(given)
        check_view(self._options.view)
        self._columns = columns

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = Offset.of(start), Offset.of(end)
        parts = self._archive.parts(begin, stop, self._part_bytes(begin, stop))
        if not parts:
            return []
        survey, options = self._archive.survey(parts), self._options
        if options.definitions:
            definitions = Definitions.from_json(options.definitions)
        else:
            definitions = of_archive(options.location, survey)
        version = version_of(options, survey, definitions) if options.table[0] else None
        return [_TaskPart(part, definitions, version) for part in parts]

    def _part_bytes(self, begin: Offset, end: Offset) -> int:
        """So that a batch of the usual size has work for several tasks."""
        if begin.segment != end.segment:
            return self._options.partition_bytes
        some = (end.position - begin.position) // PARTS_MIN
        return min(self._options.partition_bytes, max(some, PART_BYTES_MIN))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _TaskPart)
        options, part = self._options, partition.part
        selection = options.selection
        if part.start_ts > selection.start:
            selection = replace(selection, start=part.start_ts)
        task = ReadTask(
            options.location,
            self._archive.present(part),
            selection,
            partition.definitions,
            arrow_schema(self._columns),
            partition.version,
            options.damage,
        )
        yield from VIEWS[options.view].batches(task)


def reader(given: Mapping[str, str], columns: StructType) -> StreamReader:
    """For `BinlogDataSource`. Raises `ConfigError`."""
    return StreamReader(given, columns)


# -- ranges ----------------------------------------------------------------------------------------------


@dataclass
class _Bounds(InputPartition):
    start_ts: Ts
    stop_ts: Ts
    segment: int


class RangesReader(Follower):
    """One row a batch: the first and the last commit_ts that it is about, and the first segment that it
    needs. None for a batch about nothing."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, last = Offset.of(start), Offset.of(end).commit_ts
        first = max(begin.commit_ts + 1, self._options.selection.start)
        return [_Bounds(first, last, self._archive.first_needed(begin))] if first <= last else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int]]:
        assert isinstance(partition, _Bounds)
        yield partition.start_ts, partition.stop_ts, partition.segment


class RangesSource(DataSource):
    """For a program that reads the archive itself and needs to know how far: `stream_apply`."""

    @classmethod
    def name(cls) -> str:
        return RANGES

    def schema(self) -> StructType:
        return _BOUNDS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RangesReader(self.options)


# -- options ---------------------------------------------------------------------------------------------


def check_view(view: str) -> None:
    """Raises `ConfigError` for one that a stream does not have."""
    if view not in _VIEWS:
        raise ConfigError(f"the view {view} is none of a stream", hint=f"choose from {', '.join(_VIEWS)}")


def number_option(texts: Mapping[str, str], name: str) -> int:
    """0 where it is not given. Raises `ConfigError`."""
    text = texts.get(name.lower(), "")
    if text and (not text.isdecimal() or not int(text)):
        raise ConfigError(f"{name}={text!r} is no number", hint="leave it out, or give one above 0")
    return int(text or 0)


def _flag(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} is neither true nor false", hint="leave it out, or write one")
    return text == "true"
