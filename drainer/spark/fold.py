"""Fold: effects of a whole range, one row a key, by Spark's own operators; nothing is kept in Python.

In     slices of an archive
Out    a data frame of effects, sorted by place, and so by bucket
Holds  the first and the last operation of a key are found by (commit_ts, order) alone, whatever slices its
       changes were in. A key's bucket and its place in there depend on nothing but table and key
Why    what is read is folded in the reader first, so that a key changed often crosses the shuffle once a
       slice. Whole numbers that are near each other share a bucket and lie side by side: statements touch
       few pages of the table's index

    place = bucket * 2^47 + something that brings neighbours together
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from drainer.change import PUT_MOVED
from drainer.spark.definitions import Definitions
from drainer.spark.known_tables import KnownTables
from drainer.spark.location import Location
from drainer.spark.operations import OPERATION, Operations
from drainer.spark.reading import read
from drainer.spark.records import Changes
from drainer.spark.segments import Slice
from drainer.spark.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE_BITS: Final = 47
BUCKETS_MAX: Final = 1 << 12
_RUN_BITS: Final = 10  # so many neighbours (2^10) of a whole number are in its bucket
_BATCH_ROWS: Final = 8192
_BATCH_BYTES: Final = 8 << 20
_HELD_KEYS: Final = 200_000
_HELD_BYTES: Final = 64 << 20
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)

ARROW: Final = pa.schema(
    [
        ("place", pa.int64()),
        ("table", pa.int64()),
        ("key", pa.binary()),
        ("first_ts", pa.int64()),
        ("first_order", pa.int64()),
        ("before", pa.binary()),
        ("last_ts", pa.int64()),
        ("last_order", pa.int64()),
        ("definition", pa.int64()),
        ("image", pa.binary()),
        ("reborn", pa.bool_()),
        ("times", pa.int64()),
    ]
)
COLUMNS: Final = (
    "place long, table long, key binary, first_ts long, first_order long, before binary, last_ts long,"
    " last_order long, definition long, image binary, reborn boolean, times long"
)


def places(keys: list[bytes], table: int, buckets: int, *, digits: bool) -> Any:
    """Place of each key; `buckets` is a power of two, `digits`: keys are whole numbers."""
    bits = buckets.bit_length() - 1
    if digits:
        try:
            numbers = np.array(list(map(int, keys)), dtype=np.int64)
        except OverflowError:  # unsigned ones
            numbers = np.array([int(key) & (1 << 63) - 1 for key in keys], dtype=np.int64)
        with np.errstate(over="ignore"):
            mixed = ((numbers >> _RUN_BITS).astype(np.uint64) ^ np.uint64(table)) * _SPREAD
        low = numbers & ((1 << PLACE_BITS) - 1)
    else:
        seed = table & 0xFFFFFFFF
        low = np.array([zlib.crc32(key, seed) for key in keys], dtype=np.int64)
        mixed = low.astype(np.uint64) << np.uint64(32)
    bucket = (mixed >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(keys), np.int64)
    return (bucket << PLACE_BITS) | low


def batches(taken: Mapping[int, Mapping[bytes, list[Any]]], digits: Set[int], buckets: int) -> Iterator[Any]:
    """Record batches of what `Operations.take` gives; `digits`: tables whose keys are whole numbers."""
    for table, effects in taken.items():
        keys, values = list(effects), list(effects.values())
        step = _BATCH_ROWS
        for start in range(0, len(keys), step):
            some = keys[start : start + step]
            columns: list[Any] = [places(some, table, buckets, digits=table in digits)]
            columns += [np.full(len(some), table, np.int64), some]
            columns += zip(*values[start : start + step], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


@dataclass(frozen=True)
class Reading:
    """What a task does with the numbers of its slices."""

    location: Location
    slices: tuple[Slice, ...]
    selection: Selection
    definitions: Definitions
    before_of: frozenset[int]
    buckets: int
    damage: str

    def __call__(self, numbers: Iterable[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._slice(self.slices[number])

    def _slice(self, part: Slice) -> Iterator[Any]:
        known = KnownTables(self.definitions)
        operations = Operations(known.number_of, self.before_of)
        for record in read(self.location, part, self.selection, self.definitions, damage=self.damage):
            if not isinstance(record, Changes):
                continue
            operations.add(record)
            if operations.size >= _HELD_BYTES or operations.keys >= _HELD_KEYS:
                yield from batches(operations.take(), operations.digits, self.buckets)
        yield from batches(operations.take(), operations.digits, self.buckets)


def effects(spark: SparkSession, reading: Reading) -> DataFrame:
    """Effects as readers give them: several of a key."""
    count = len(reading.slices)
    return spark.range(0, count, 1, count).mapInArrow(reading, COLUMNS)


def folded(frame: DataFrame, partitions: int) -> DataFrame:
    """One effect a key, sorted by place; a bucket is in one partition."""
    from pyspark.sql import functions as f

    bucket = f.shiftright("place", PLACE_BITS)
    operation = f.col("first_order").bitwiseAND(OPERATION)
    born = f.when(operation <= PUT_MOVED, f.struct("first_ts", "first_order"))
    keys = ("place", "bucket", "table", "key")
    found = (
        frame.withColumn("bucket", bucket)
        .repartition(partitions, "bucket")
        .groupBy(*keys)
        .agg(
            f.min(f.struct("first_ts", "first_order", "before")).alias("first"),
            f.max(f.struct("last_ts", "last_order", "definition", "image")).alias("last"),
            f.max("reborn").alias("was_reborn"),
            f.max(born).alias("born"),
            f.sum("times").alias("times"),
        )
    )
    came_later = f.col("born") > f.struct("first.first_ts", "first.first_order")
    reborn = f.col("was_reborn") | f.coalesce(came_later, f.lit(False))
    return found.select(
        "place", "table", "key", "first.*", "last.*", reborn.alias("reborn"), "times"
    ).sortWithinPartitions("place", "table", "key")
