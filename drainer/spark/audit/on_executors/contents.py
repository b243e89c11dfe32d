"""Contents on executors: last rows of the archive joined with those of the reference side, by key.

In      steps of rows with their lineage, what to compare with what
Out     the outcome of `contents`
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Observation
from pyspark.sql import functions as f

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import contents
from drainer.spark.audit.checks.comparison import Comparison
from drainer.spark.audit.checks.contents import (
    DIFFERS,
    EQUAL,
    MISSING,
    PARTLY,
    SURPLUS,
    UNSEEN,
    Contents,
    Group,
    Judged,
    LastStep,
)
from drainer.spark.audit.checks.runner import ContentsInput
from drainer.spark.audit.on_executors.frames import (
    EXPECTED,
    FINDINGS,
    LIVE,
    batched,
    collect,
    limited,
    over,
    rows,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW: Final = ("row", "times", "unknown")


def check(spark: SparkSession, steps: DataFrame, wanted: ContentsInput, definitions: Definitions) -> Contents:
    """`steps` with their lineage."""
    comparisons, begun = wanted.comparisons, wanted.beginning
    steps = steps.where(f.col("commit_ts") <= wanted.at_ts)
    if begun is not None:
        is_before = f.col("commit_ts") <= begun.until_ts
        steps = steps.where(~(is_before & f.col("lineage").isin(sorted(begun.lineages))))
    read = _last_rows(steps, comparisons).mapInArrow(_reading(comparisons, definitions), EXPECTED)
    if begun is not None:
        read = read.unionByName(over(spark, begun.rows, EXPECTED, together=True))
    passed = Observation("passed over")
    read = read.observe(passed, f.count_if(f.col("key").isNull()).alias("rows"))
    read = read.where(f.col("key").isNotNull())
    if begun is not None:
        read = _put_together(read, [number for number, one in comparisons.items() if one.keyed])
    known = read.groupBy("number", "key").agg(
        f.max("row").alias("expected"),
        f.sum("times").alias("expected_times"),
        f.max("unknown").alias("unknown"),
    )
    live = over(spark, wanted.live, LIVE, together=True)
    there = live.groupBy("number", "key").agg(
        f.max("row").alias("actual"), f.count(f.lit(1)).alias("actual_times")
    )
    whole = [number for number, one in comparisons.items() if one.whole]
    judged = _states(known.join(there, ["number", "key"], "full_outer"), whole, wanted.chunks)
    judged = judged.persist(StorageLevel.DISK_ONLY)
    try:
        groups = _groups(judged)
        differing = judged.where(f.col("state").isin(PARTLY, DIFFERS, MISSING, SURPLUS))
        shown = differing.select(*Judged._fields)
        findings = collect(shown.mapInArrow(_judging(comparisons), FINDINGS))
    finally:
        judged.unpersist()
    return contents.outcome(findings, groups, comparisons, int(passed.get["rows"] or 0))


def _last_rows(steps: DataFrame, comparisons: Mapping[int, Comparison]) -> DataFrame:
    """The last step of every row of the compared tables; of tables without key all steps, each once."""
    keyed = [number for number, one in comparisons.items() if one.keyed]
    keyless = [number for number, one in comparisons.items() if not one.keyed]
    parts = LastStep._fields[1:]
    last = (
        steps.where(f.col("lineage").isin(keyed) & f.col("key").isNotNull())
        .groupBy("lineage", "key")
        .agg(f.max(f.struct("commit_ts", "order", *parts)).alias("step"))
        .select("lineage", *(f.col(f"step.{name}").alias(name) for name in parts))
    )
    every = (
        steps.where(f.col("lineage").isin(keyless))
        .dropDuplicates(["lineage", "commit_ts", "order"])
        .select("lineage", *parts)
    )
    return last.unionByName(every) if keyless else last


def _put_together(rows: DataFrame, keyed: list[int]) -> DataFrame:
    """Of rows of one key the last one, in tables with a key; in others all of them count."""
    is_keyed = f.col("number").isin(keyed)
    last = rows.where(is_keyed).groupBy("number", "key").agg(f.max(f.struct("turn", *_ROW)).alias("last"))
    names = ("number", "key", *_ROW)
    return last.select("number", "key", "last.*").select(*names).union(rows.where(~is_keyed).select(*names))


def _states(joined: DataFrame, whole: list[int], chunks: int) -> DataFrame:
    """What each row is, its chunk, the hashes of its two sides; rows themselves where they are not equal."""
    here = f.coalesce("expected_times", f.lit(0))
    there = f.coalesce("actual_times", f.lit(0))
    state = (
        f.when(f.col("unknown").isNotNull() & (here == 1) & (there == 1), PARTLY)
        .when((here == there) & ((here == 0) | (f.col("expected") == f.col("actual"))), EQUAL)
        .when(f.col("expected_times").isNull() & ~f.col("number").isin(whole), UNSEEN)
        .when(there < here, MISSING)
        .when(there > here, SURPLUS)
        .otherwise(DIFFERS)
    )
    judged = joined.select("*", here.alias("here"), there.alias("there"), state.alias("state"))
    counted = ~f.col("state").isin(PARTLY, UNSEEN)
    wrong = ~f.col("state").isin(EQUAL, UNSEEN)
    return judged.select(
        "number",
        f.pmod(f.xxhash64("key"), f.lit(chunks)).cast("int").alias("chunk"),
        "state",
        "here",
        "there",
        "unknown",
        f.when(counted, _hash("expected", "here")).alias("expected_hash"),
        f.when(counted, _hash("actual", "there")).alias("actual_hash"),
        *(f.when(wrong, f.col(name)).alias(name) for name in ("key", "expected", "actual")),
    )


def _hash(row: str, times: str) -> Column:
    return f.when(f.col(times) > 0, f.xxhash64("key", row).cast("decimal(20,0)") * f.col(times))


def _groups(judged: DataFrame) -> list[Group]:
    counted = judged.groupBy("number", "chunk", "state").agg(
        f.count(f.lit(1)).alias("rows"),
        f.sum("here").alias("here"),
        f.sum("there").alias("there"),
        f.sum("expected_hash").alias("expected_sum"),
        f.sum("actual_hash").alias("actual_sum"),
    )
    return [
        Group(
            *(row.number, row.chunk, row.state, row.rows, row.here, row.there),
            *(int(row.expected_sum or 0), int(row.actual_sum or 0)),
        )
        for row in counted.collect()
    ]


# -- in tasks -------------------------------------------------------------------------------------------


def _reading(comparisons: Mapping[int, Comparison], definitions: Definitions) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = contents.readers(comparisons, definitions)
        steps = (LastStep(*row) for row in rows(batches))
        yield from batched(contents.compared(steps, readers), EXPECTED)

    return run


def _judging(comparisons: Mapping[int, Comparison]) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from limited(contents.findings((Judged(*row) for row in rows(batches)), comparisons))

    return run
