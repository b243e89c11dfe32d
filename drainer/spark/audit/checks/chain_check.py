"""Chain check: every step of a row beside the one before it, with Spark's own operators.

In      steps of rows, spans of lineages, definitions
Out     findings of `chains.judge`; how many links and beginnings there were
Why     nearly all links are equal bytes under one definition: Spark compares these, and Python sees the rest
Holds   a step that is there twice counts once. Findings are counted all and listed up to a limit in each task
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Observation, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from common.rowcodec.row_error import RowError
from drainer.reading.archive.decode.definitions import Definitions
from drainer.sink.mysql.sql_literal.plan import compile_sql
from drainer.spark.audit.checks.chain_rule import Link, finding, judge
from drainer.spark.audit.checks.findings import LISTED_MAX, Finding, Findings
from drainer.spark.audit.checks.tasks import batched
from drainer.spark.audit.rows.lineage import Span
from drainer.spark.audit.rows.projection import Projections
from drainer.txn import TableVersion
from drainer.verify import canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@dataclass(frozen=True, slots=True)
class Chains:
    """Outcome of the check."""

    findings: Findings
    links: int
    beginnings: int
    steps: int


def with_lineage(
    spark: SparkSession, steps: DataFrame, spans: Sequence[Span], born: frozenset[int]
) -> DataFrame:
    """Steps with `lineage` and `born` (the table was empty when it began). Other names: their hash."""
    rows = [
        (span.name[0], span.name[1], span.first_ts, span.last_ts, span.lineage, span.lineage in born)
        for span in spans
    ]
    table = f.broadcast(spark.createDataFrame(rows, SPANS))
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


def check(steps: DataFrame, definitions: Definitions, rekeyed: Iterable[int]) -> Chains:
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
        "schema",
        "table",
        "commit_ts",
        "file",
        "pos",
        "definition",
        "before",
        "after",
        f.col("left_after").alias("left"),
        f.coalesce("left_definition", "definition").alias("left_definition"),
    )
    found = collect(suspects.mapInArrow(_judging(definitions), FINDINGS))
    counted = seen.get
    links, total = int(counted["links"] or 0), int(counted["steps"] or 0)
    return Chains(found, links, total - links, total)


def collect(findings: DataFrame) -> Findings:
    """Findings of tasks put together, in the order of the archive."""
    found = Findings()
    listed = []
    for row in findings.collect():
        if row.findings > 1 or not row.text:
            found.counts[row.kind, row.table] += row.findings
            continue
        wrong = (row.kind, row.text, row.expected, row.actual)
        listed.append(finding(wrong, row.table, row.key, row.commit_ts, row.file, row.pos))
    found.extend(sorted(listed, key=lambda one: (one.commit_ts, one.place, one.key)))
    return found


def _judging(definitions: Definitions) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batched(limited(_findings(batches, definitions)), FINDINGS)

    return run


def limited(findings: Iterator[Finding]) -> Iterator[tuple[Any, ...]]:
    """Rows of findings: the first ones, and the number of the others by kind and place."""
    more: Counter[tuple[str, str]] = Counter()
    for number, one in enumerate(findings):
        if number < LISTED_MAX:
            yield (
                *(one.kind, one.place, one.key, one.text, one.file, one.expected, one.actual),
                *(one.commit_ts, one.pos, 1),
            )
        else:
            more[one.kind, one.place] += 1
    for (kind, place), count in more.items():
        yield kind, place, "", "", "", "", "", 0, -1, count


def _findings(batches: Iterator[pa.RecordBatch], definitions: Definitions) -> Iterator[Finding]:
    projections = Projections()
    for batch in batches:
        for row in batch.to_pylist():
            link = Link(True, row["before"], row["definition"], row["left"], row["left_definition"])
            wrong = judge(link, definitions.version, projections)
            if wrong is None:
                continue
            image = row["before"] if row["before"] is not None else row["after"]
            key = key_text(definitions.version(row["definition"]), image, projections)
            table = f"{row['schema']}.{row['table']}"
            yield finding(wrong, table, key, row["commit_ts"], row["file"], row["pos"])


def key_text(version: TableVersion, image: bytes, projections: Projections) -> str:
    """The key of a row for people: `id=5, part=3`."""
    projection = projections.of(version, version)
    if projection is None:
        return ""
    try:
        values = projection.values(image)
        ids = [column.id for column in compile_sql(version.info).key_columns]
    except RowError:
        return ""
    by_id = {
        column.id: (column.name, value) for column, value in zip(projection.columns, values, strict=True)
    }
    return ", ".join(f"{by_id[one][0]}={canonical.show(by_id[one][1])}" for one in ids if one in by_id)
