"""Contents check: what the archive says a table holds at a point in time, beside what a database holds.

In      steps of rows up to a timestamp, comparisons of tables, rows of the database
Out     findings with keys; per table and chunk of keys: rows and checksums on both sides
Holds   a checksum is the sum of 64-bit hashes of (key, row) in canonical form, modulo 2^64: it does not
        depend on any order. Rows that are not known whole are left out of it, on both sides, and counted
Why     all rows are read anyway, so they are joined by key: a difference is found with its key at once
Tests   tests/spark/audit/test_auditing.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Observation
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from drainer.reading.archive.decode.definitions import Definitions
from drainer.spark.audit.checks.chain_check import FINDINGS, collect, limited
from drainer.spark.audit.checks.comparison import Compared, Comparison, RowReader
from drainer.spark.audit.checks.findings import CONTENTS, Finding, Findings, Note
from drainer.spark.audit.checks.tasks import batched
from drainer.verify import canonical

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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

_ROW: Final = ("row", "times", "unknown")
EQUAL: Final = "equal"
PARTLY: Final = "compared in part"
UNSEEN: Final = "not in the archive"
DIFFERS: Final = "differs"
MISSING: Final = "missing"
SURPLUS: Final = "surplus"
_SHOWN: Final = 4
_MODULUS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class ChunkSum:
    """One chunk of a table's keys: rows and checksums as the archive says and as they are there."""

    chunk: int
    expected_rows: int
    actual_rows: int
    expected_sum: int
    actual_sum: int
    differing: int


@dataclass(slots=True)
class TableOutcome:
    """What the comparison of a table found. `states`: rows by state."""

    table: str
    whole: bool
    keyed: bool
    states: dict[str, int] = field(default_factory=dict)
    chunks: list[ChunkSum] = field(default_factory=list)

    @property
    def expected_sum(self) -> int:
        return sum(one.expected_sum for one in self.chunks) % _MODULUS

    @property
    def actual_sum(self) -> int:
        return sum(one.actual_sum for one in self.chunks) % _MODULUS


@dataclass(slots=True)
class Contents:
    """Outcome of the check."""

    findings: Findings
    tables: list[TableOutcome] = field(default_factory=list)


def last_rows(steps: DataFrame, comparisons: Mapping[int, Comparison]) -> DataFrame:
    """The last step of every row of the compared tables; of tables without key all steps, each once."""
    keyed = [number for number, one in comparisons.items() if one.keyed]
    keyless = [number for number, one in comparisons.items() if not one.keyed]
    parts = ("definition", "before", "after")
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


def check(
    rows: DataFrame,
    live: DataFrame,
    comparisons: Mapping[int, Comparison],
    definitions: Definitions,
    chunks: int,
    beginning: DataFrame | None = None,
) -> Contents:
    """`rows` of `last_rows`, `live` of `tasks.live_rows`, `beginning` of `tasks.beginning`: what tables held
    before these rows."""
    passed = Observation("passed over")
    read = rows.mapInArrow(_reading(comparisons, definitions), EXPECTED)
    if beginning is not None:
        read = read.unionByName(beginning)
    read = read.observe(passed, f.count_if(f.col("key").isNull()).alias("rows"))
    read = read.where(f.col("key").isNotNull())
    if beginning is not None:
        read = _put_together(read, [number for number, one in comparisons.items() if one.keyed])
    known = read.groupBy("number", "key").agg(
        f.max("row").alias("expected"),
        f.sum("times").alias("expected_times"),
        f.max("unknown").alias("unknown"),
    )
    there = live.groupBy("number", "key").agg(
        f.max("row").alias("actual"), f.count(f.lit(1)).alias("actual_times")
    )
    whole = [number for number, one in comparisons.items() if one.whole]
    judged = _states(known.join(there, ["number", "key"], "full_outer"), whole, chunks)
    judged = judged.persist(StorageLevel.DISK_ONLY)
    try:
        tables = _tables(judged, comparisons)
        differing = judged.where(f.col("state").isin(PARTLY, DIFFERS, MISSING, SURPLUS))
        findings = collect(differing.mapInArrow(_judging(comparisons), FINDINGS))
    finally:
        judged.unpersist()
    found = Findings(counts=findings.counts)
    found.listed = [replace(one, check=CONTENTS) for one in findings.listed]
    if skipped := int(passed.get["rows"] or 0):
        text = (
            f"{skipped} rows are not compared: their keys are not ASCII, in a column whose character set"
            " cannot hold every text"
        )
        found.notes.append(Note(CONTENTS, "", text))
    return Contents(found, tables)


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


def _tables(judged: DataFrame, comparisons: Mapping[int, Comparison]) -> list[TableOutcome]:
    rows = (
        judged.groupBy("number", "chunk", "state")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.sum("here").alias("here"),
            f.sum("there").alias("there"),
            f.sum("expected_hash").alias("expected_sum"),
            f.sum("actual_hash").alias("actual_sum"),
        )
        .collect()
    )
    tables = {
        number: TableOutcome(one.table, one.whole, one.keyed) for number, one in sorted(comparisons.items())
    }
    sums: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        states = tables[row.number].states
        states[row.state] = states.get(row.state, 0) + row.rows
        if row.state in (PARTLY, UNSEEN):
            continue
        parts = sums.setdefault((row.number, row.chunk), [0, 0, 0, 0, 0])
        wrong = row.rows if row.state != EQUAL else 0
        found = (row.here, row.there, int(row.expected_sum or 0), int(row.actual_sum or 0), wrong)
        for place, value in enumerate(found):
            parts[place] += value
    for (number, chunk), (here, there, expected, actual, wrong) in sorted(sums.items()):
        one = ChunkSum(chunk, here, there, expected % _MODULUS, actual % _MODULUS, wrong)
        tables[number].chunks.append(one)
    return list(tables.values())


# -- in tasks -------------------------------------------------------------------------------------------


def _reading(comparisons: Mapping[int, Comparison], definitions: Definitions) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = {number: RowReader(one, definitions.version) for number, one in comparisons.items()}
        for batch in batches:
            yield from batched(_compared(batch.to_pylist(), readers), EXPECTED)

    return run


def _compared(
    rows: list[dict[str, Any]], readers: Mapping[int, RowReader]
) -> Iterator[tuple[int, bytes | None, bytes | None, int, int, str | None]]:
    for row in rows:
        number, definition = row["lineage"], row["definition"]
        reader = readers[number]
        images = [(row["after"], 1), (row["before"], -1)]
        if reader.comparison.keyed:
            images = [(row["after"], 1) if row["after"] is not None else (row["before"], 0)]
        for image, times in images:
            if image is None:
                continue
            found = reader.read(image, definition)
            if found is None:
                yield number, None, None, times, 1, None
            else:
                yield expected(number, found, times, 1)


def expected(
    number: int, found: Compared, times: int, turn: int
) -> tuple[int, bytes, bytes | None, int, int, str | None]:
    """A row of `EXPECTED`. `turn`: of those of one key the last one counts."""
    unknown = ",".join(map(str, sorted(found.unknown))) or None
    return number, found.key, found.row if times else None, times, turn, unknown if times else None


def _judging(comparisons: Mapping[int, Comparison]) -> Any:
    def findings(batches: Iterator[pa.RecordBatch]) -> Iterator[Finding]:
        for batch in batches:
            for row in batch.to_pylist():
                found = _finding(row, comparisons[row["number"]])
                if found is not None:
                    yield found

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batched(limited(findings(batches)), FINDINGS)

    return run


def _finding(row: dict[str, Any], how: Comparison) -> Finding | None:
    key_columns = [how.columns[place] for place in how.live.key] if how.keyed else how.columns
    values = canonical.unpack(row["key"])
    key = ", ".join(
        f"{name}={canonical.show(value)}" for name, value in zip(key_columns, values, strict=True)
    )
    state, here, there = row["state"], row["here"], row["there"]
    if state in (DIFFERS, PARTLY):
        unknown = frozenset(int(one) for one in (row["unknown"] or "").split(",") if one)
        pair = canonical.unpack(row["expected"]), canonical.unpack(row["actual"])
        found = canonical.differences(how.columns, *pair, unknown)
        if not found:
            return None
        names = ", ".join(one.column for one in found[:_SHOWN])
        return Finding(
            CONTENTS,
            "row differs",
            how.table,
            f"the row differs in {names}"
            + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""),
            key,
            expected="; ".join(f"{one.column} = {canonical.show(one.expected)}" for one in found[:_SHOWN]),
            actual="; ".join(f"{one.column} = {canonical.show(one.actual)}" for one in found[:_SHOWN]),
        )
    rows = [_rows(here), _rows(there)]
    if state == MISSING:
        text = f"the archive has it, {how.side} not"
        return Finding(CONTENTS, "row is missing", how.table, text, key, expected=rows[0], actual=rows[1])
    text = f"{how.side} has it, the archive " + ("not" if how.whole else "deleted it")
    return Finding(CONTENTS, "row too many", how.table, text, key, expected=rows[0], actual=rows[1])


def _rows(number: int) -> str:
    return "no row" if not number else "a row" if number == 1 else f"{number} rows"
