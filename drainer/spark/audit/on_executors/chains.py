"""Chains on executors: steps of rows with their lineage, and each beside the one before it.

In      steps of rows, spans of lineages, definitions
Out     counts of steps by lineage; findings of `chain_check`
Holds   a step that is there twice counts once. Findings are counted all and listed up to a limit in each task
Tests   tests/spark/audit/test_runners_agree.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Observation, Window
from pyspark.sql import functions as f

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks import chain_check
from drainer.spark.audit.checks.chain_check import Chains, Suspect
from drainer.spark.audit.checks.lineage_summary import StepGroup
from drainer.spark.audit.on_executors.frames import FINDINGS, SPANS, collect, limited, rows
from drainer.spark.audit.rows.lineage import Span
from tidb_binlog import tso
from tidb_binlog.tso import Ts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_lineage(
    spark: SparkSession, steps: DataFrame, spans: Sequence[Span], born: frozenset[int]
) -> DataFrame:
    """Steps with `lineage` and `born` (the table was empty when it began). Other names: their hash."""
    of_spans = [
        (span.name[0], span.name[1], span.first_ts, span.last_ts, span.lineage, span.lineage in born)
        for span in spans
    ]
    table = f.broadcast(spark.createDataFrame(of_spans, SPANS))
    matches = (
        (f.lower("schema") == f.col("span_schema"))
        & (f.lower("table") == f.col("span_table"))
        & (f.col("commit_ts") > f.col("first_ts"))
        & (f.col("commit_ts") <= f.col("last_ts"))
    )
    unnamed = -f.pmod(f.xxhash64(f.lower("schema"), f.lower("table")), f.lit(1 << 62)) - 1
    joined = steps.join(table, matches, "left")
    return (
        joined.withColumn("lineage", f.coalesce("span_lineage", unnamed))
        .withColumn("born", f.coalesce("born", f.lit(False)))
        .drop(*(field.name for field in SPANS if field.name != "born"))
    )


def groups(steps: DataFrame, until_ts: Ts, bucket_s: int) -> list[StepGroup]:
    """Counts of steps with their lineage, by one pass over them."""
    seconds = f.shiftright(f.col("commit_ts"), tso.LOGICAL_BITS) / 1000
    found = steps.groupBy(
        *("lineage", "schema", "table", "definition", "key_id"),
        (f.floor(seconds / bucket_s) * bucket_s).alias("bucket"),
        (f.col("commit_ts") <= until_ts).alias("is_until"),
    ).agg(f.count_if(f.col("part") == 0).alias("changes"), f.max("commit_ts").alias("last_ts"))
    return [StepGroup(*row) for row in found.collect()]


def check(steps: DataFrame, definitions: Definitions, rekeyed: Sequence[int]) -> Chains:
    """`steps` with their lineage. `rekeyed`: lineages in which the key changed: its rows begin anew."""
    row = Window.partitionBy("lineage", "key_id", "key").orderBy("commit_ts", "order")
    before = ("after", "definition", "commit_ts", "order")
    linked = steps.where(f.col("key").isNotNull()).select(
        "*", *(f.lag(name).over(row).alias(f"left_{name}") for name in before)
    )
    first = f.col("left_commit_ts").isNull()
    again = f.col("left_commit_ts").eqNullSafe(f.col("commit_ts")) & f.col("left_order").eqNullSafe(
        f.col("order")
    )
    strict = f.col("born") & ~f.col("lineage").isin(list(rekeyed)) if rekeyed else f.col("born")
    # `born` holds for the names' own lineage; a first step of any other row says nothing.
    known = ~first | strict
    same = f.col("before").eqNullSafe(f.col("left_after")) & (
        f.col("before").isNull() | (f.col("definition") == f.col("left_definition"))
    )
    seen = Observation("chains")
    watched = linked.select("*", known.alias("known"), again.alias("again")).observe(
        seen,
        f.count(f.lit(1)).alias("steps"),
        f.count_if(~f.col("left_commit_ts").isNull()).alias("links"),
    )
    suspects = watched.where(f.col("known") & ~f.col("again") & ~same).select(
        *("schema", "table", "commit_ts", "file", "pos", "definition", "before", "after"),
        f.col("left_after").alias("left"),
        f.coalesce("left_definition", "definition").alias("left_definition"),
    )
    found = collect(suspects.mapInArrow(_judging(definitions), FINDINGS))
    counted = seen.get
    links, total = int(counted["links"] or 0), int(counted["steps"] or 0)
    return Chains(found, links, total - links, total)


def _judging(definitions: Definitions) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from limited(chain_check.findings((Suspect(*row) for row in rows(batches)), definitions))

    return run
