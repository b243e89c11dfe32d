"""Frames: rows that tasks make, as data frames.

In     items, and what makes rows of some of them
Out    data frames of exactly the schemas that stand here
Tests  tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from drainer.spark.audit.checks.chain_rule import finding
from drainer.spark.audit.checks.findings import LISTED_MAX, Finding, Findings, in_order
from drainer.spark.audit.checks.runner import Pieces
from drainer.spark.source.spark_types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 16 << 20
_TASKS: Final = 4

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
SPANS: Final = StructType(
    [
        StructField("span_schema", StringType()),
        StructField("span_table", StringType()),
        StructField("first_ts", LongType()),
        StructField("last_ts", LongType()),
        StructField("span_lineage", LongType()),
        StructField("born", BooleanType()),
    ]
)
LIVE: Final = StructType(
    [
        StructField("number", IntegerType()),
        StructField("key", BinaryType()),
        StructField("row", BinaryType()),
    ]
)
EXPECTED: Final = StructType(
    [
        StructField("number", IntegerType()),
        StructField("key", BinaryType()),
        StructField("row", BinaryType()),
        StructField("times", LongType()),
        StructField("turn", IntegerType()),
        StructField("unknown", StringType()),
    ]
)
FINDINGS: Final = StructType(
    [
        *(
            StructField(name, StringType())
            for name in ("kind", "table", "key", "text", "file", "expected", "actual")
        ),
        StructField("commit_ts", LongType()),
        StructField("pos", LongType()),
        StructField("findings", LongType()),
    ]
)
TEXTS: Final = StructType([StructField("text", StringType())])


def over(
    spark: SparkSession, pieces: Pieces[Any], schema: StructType, *, together: bool = False
) -> DataFrame:
    """Rows of the pieces, a task for each item. `together`: few tasks for each slot, where most items are
    small."""
    taken, work = list(pieces.items), pieces.work

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from batched(work(taken[number] for number in batch.column(0).to_pylist()), schema)

    if not taken:
        return spark.createDataFrame([], schema)
    slots = spark.sparkContext.defaultParallelism
    count = min(len(taken), _TASKS * slots) if together else len(taken)
    return spark.range(0, len(taken), 1, count).mapInArrow(run, schema)


def batched(rows: Iterable[tuple[Any, ...]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches of exactly this schema."""
    types = arrow_schema(schema)
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


def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Values of batches, row by row."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


# -- findings -------------------------------------------------------------------------------------------


def limited(found: Iterator[Finding]) -> Iterator[pa.RecordBatch]:
    """Of one task: the first findings, and the number of the others by kind and place."""
    return batched(_limited(found), FINDINGS)


def _limited(found: Iterator[Finding]) -> Iterator[tuple[Any, ...]]:
    more: Counter[tuple[str, str]] = Counter()
    for number, one in enumerate(found):
        if number < LISTED_MAX:
            yield (
                *(one.kind, one.place, one.key, one.text, one.file, one.expected, one.actual),
                *(one.commit_ts, one.pos, 1),
            )
        else:
            more[one.kind, one.place] += 1
    for (kind, place), count in more.items():
        yield kind, place, "", "", "", "", "", 0, -1, count


def collect(frame: DataFrame) -> Findings:
    """Findings of tasks put together, in the order of the archive."""
    found = Findings()
    listed = []
    for row in frame.collect():
        if row.findings > 1 or not row.text:
            found.counts[row.kind, row.table] += row.findings
            continue
        wrong = (row.kind, row.text, row.expected, row.actual)
        listed.append(finding(wrong, row.table, row.key, row.commit_ts, row.file, row.pos))
    found.extend(in_order(listed))
    return found
