"""Tasks of an audit: pieces of an archive or of a database, each read where a Spark task runs.

In     slices of an archive, chunks of tables
Out    data frames: steps of rows, one summary of each slice's records, rows of a database
Holds  what is damaged is passed over and said in the summary: an audit never ends because it found something
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from common import tso
from common.errors import Corruption
from common.record import FILE_OVERHEAD
from drainer.reading.archive.decode.coverage import FileCoverage, cover
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.decode.reading import REPORT, heads, read
from drainer.reading.archive.decode.records import Changes, SchemaChange
from drainer.reading.archive.files.location import Location
from drainer.reading.archive.files.segments import Slice
from drainer.reading.archive.files.selection import Selection
from drainer.sink.mysql.connection import Target
from drainer.spark.audit.checks.coverage import OrderWatch
from drainer.spark.audit.rows.lineage import Statement
from drainer.spark.audit.rows.live_rows import Chunk, Reader
from drainer.spark.audit.rows.row_steps import RowSteps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20
_MISPLACED_MAX: Final = 1000
_TASKS: Final = 4
_SMALL_BYTES: Final = 4 << 20

STEPS: Final = StructType(
    [
        StructField("commit_ts", LongType()),
        StructField("order", LongType()),
        StructField("part", ByteType()),
        StructField("kind", ByteType()),
        StructField("file", StringType()),
        StructField("pos", LongType()),
        StructField("schema", StringType()),
        StructField("table", StringType()),
        StructField("definition", LongType()),
        StructField("key_id", LongType()),
        StructField("key", BinaryType()),
        StructField("before", BinaryType()),
        StructField("after", BinaryType()),
    ]
)
LIVE: Final = StructType(
    [
        StructField("number", IntegerType()),
        StructField("key", BinaryType()),
        StructField("row", BinaryType()),
    ]
)
TEXTS: Final = StructType([StructField("text", StringType())])

T = TypeVar("T")


def arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def over(
    spark: SparkSession,
    items: Sequence[T],
    work: Callable[[T], Iterator[tuple[Any, ...]]],
    schema: StructType,
    *,
    together: bool = False,
) -> DataFrame:
    """Rows that `work` gives for the items, a task for each item. `together`: few tasks for each slot, where
    most items are small."""
    taken = list(items)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batched(work(taken[number]), schema)

    if not taken:
        return spark.createDataFrame([], schema)
    slots = spark.sparkContext.defaultParallelism
    count = min(len(taken), _TASKS * slots) if together else len(taken)
    return spark.range(0, len(taken), 1, count).mapInArrow(run, schema)


def texts(spark: SparkSession, slices: Sequence[Slice], work: Callable[[Slice], Iterator[str]]) -> list[str]:
    """What `work` says of the slices. A small archive is read here: a job costs more."""
    if sum((part.stop or part.size) - part.start for part in slices) <= _SMALL_BYTES:
        return [text for part in slices for text in work(part)]

    def run(part: Slice) -> Iterator[tuple[Any, ...]]:
        return ((text,) for text in work(part))

    return [row.text for row in over(spark, slices, run, TEXTS).collect()]


def batched(rows: Iterable[tuple[Any, ...]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches of exactly this schema."""
    types = arrow(schema)
    waiting: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes | str))
        if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(waiting, types)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, types)


def _batch(rows: list[tuple[Any, ...]], types: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


# -- an archive -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What tasks need to read rows."""

    location: Location
    selection: Selection
    definitions: Definitions


def steps(spark: SparkSession, archive: TaskInput, slices: Sequence[Slice]) -> DataFrame:
    """Steps of the rows of an archive, in any order."""

    def work(part: Slice) -> Iterator[tuple[Any, ...]]:
        makes = RowSteps(archive.definitions.number_of)
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, Changes):
                yield from makes.of(record)

    return over(spark, slices, work, STEPS)


def statements(spark: SparkSession, archive: TaskInput, slices: Sequence[Slice]) -> list[Statement]:
    """The schema changes in these slices in their order, each once."""

    def work(part: Slice) -> Iterator[str]:
        for record in read(archive.location, part, archive.selection, archive.definitions, damage=REPORT):
            if isinstance(record, SchemaChange):
                ddl = record.ddl
                found = (ddl.commit_ts, record.part, ddl.schema, ddl.query, ddl.tables, ddl.action)
                yield json.dumps(found)

    lines = set(texts(spark, slices, work))
    found = []
    for commit_ts, _, schema, query, tables, action in sorted(json.loads(line) for line in lines):
        found.append(Statement(commit_ts, schema, query, tuple((a, b) for a, b in tables), action))
    return found


# -- the records of an archive --------------------------------------------------------------------------


class _Summary:
    """What a slice's records are: counts, sizes, order. `described`: bytes that the index tells of."""

    def __init__(self, part: Slice, described: int, bucket_s: int) -> None:
        self._part = part
        self._described = described
        self._bucket_s = bucket_s
        self._watch = OrderWatch()
        self._counted = [0, 0, 0]
        self._sizes: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._times: dict[int, list[int]] = {}
        self._ddl: list[tuple[int, int]] = []
        self.end = part.start
        self._last_ts = 0

    def add(self, commit_ts: int, pos: int, size: int, rows: int, *, is_ddl: bool) -> None:
        self._watch.see(self._part.name, pos, commit_ts, is_ddl=is_ddl)
        self.end = pos + size + FILE_OVERHEAD
        self._last_ts = max(self._last_ts, commit_ts)
        if self.end <= self._described:
            self._counted[1 if is_ddl else 0] += 1
            self._counted[2] += rows
        bucket = int(tso.physical_s(commit_ts)) // self._bucket_s * self._bucket_s
        times = self._times.setdefault(bucket, [0, 0, 0, 0])
        if is_ddl:
            times[3] += 1
            self._ddl.append((pos, self.end))
            return
        times[0] += 1
        times[1] += rows
        times[2] += size
        for value, counts in ((rows, self._sizes), (size, self._bytes)):
            power = max(value - 1, 0).bit_length()
            counts[power] = counts.get(power, 0) + 1

    def text(self, problem: str, torn: int) -> str:
        run = self._watch.run
        misplaced = run.misplaced if run else []
        return json.dumps(
            {
                "file": self._part.name,
                "index": self._part.index,
                "start": self._part.start,
                "end": self.end,
                "problem": problem,
                "torn": torn,
                "counted": self._counted,
                "last_ts": self._last_ts,
                "sizes": self._sizes,
                "bytes": self._bytes,
                "times": self._times,
                "ddl": self._ddl,
                "run": None
                if run is None
                else {**asdict(run), "misplaced": [asdict(one) for one in misplaced[:_MISPLACED_MAX]]},
                "misplaced": len(misplaced),
            }
        )


def summaries(
    spark: SparkSession,
    location: Location,
    slices: Sequence[Slice],
    described: dict[str, int],
    bucket_s: int,
) -> list[dict[str, Any]]:
    """One summary of each slice: all records compared with their checksums, none decoded."""

    def work(part: Slice) -> Iterator[str]:
        found = _Summary(part, described.get(part.name, 0), bucket_s)
        problem = ""
        try:
            for head in heads(location, part):
                found.add(head.commit_ts, head.pos, head.size, head.rows, is_ddl=head.is_ddl)
        except Corruption as error:
            problem = error.message
        with location.open(part.name) as file:
            size = part.stop or file.size or 0
        yield found.text(problem, 0 if problem or not size else max(size - found.end, 0))

    return [json.loads(text) for text in texts(spark, slices, work)]


def covered(spark: SparkSession, location: Location, slices: Sequence[Slice]) -> list[FileCoverage]:
    """What the files of a value log hold, each of them read."""

    def work(part: Slice) -> Iterator[str]:
        yield json.dumps(asdict(cover(location, part)))

    return [FileCoverage(**json.loads(text)) for text in texts(spark, slices, work)]


def places(
    spark: SparkSession, location: Location, slices: Sequence[Slice], wanted: frozenset[int]
) -> list[tuple[int, str, int]]:
    """(commit_ts, file, position) of the records with one of these commit_ts."""

    def work(part: Slice) -> Iterator[str]:
        try:
            for head in heads(location, part):
                if head.commit_ts in wanted:
                    yield json.dumps((head.commit_ts, part.name, head.pos))
        except Corruption:
            return

    return [tuple(json.loads(text)) for text in texts(spark, slices, work)]


# -- a database -----------------------------------------------------------------------------------------


def live_rows(spark: SparkSession, target: Target, chunks: Sequence[Chunk]) -> DataFrame:
    """Rows of a database."""

    def work(chunk: Chunk) -> Iterator[tuple[Any, ...]]:
        reader = Reader(target)
        try:
            for key, row in reader.rows(chunk):
                yield chunk.table.number, key, row
        finally:
            reader.close()

    return over(spark, chunks, work, LIVE, together=True)
