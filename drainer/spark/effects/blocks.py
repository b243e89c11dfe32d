"""Effect blocks: effects of a stretch of an archive, those of a bucket as one value: what crosses a shuffle.

In     record batches of effects in any order (`packed`); blocks by bucket (`by_place`)
Out    rows of bucket and block; record batches of effects sorted by place, for `merge.merged`; blocks of
       effects that are one a key, by definition (`folded`)
Why    Spark takes a row of twelve columns apart and puts it together again on each way: a third of the
       CPU of a replay. A block has hundreds of rows and more, and none of them is looked at
Holds  where the blocks of a bucket meet they are in memory together: it is for buckets of a few MiB
Tests  tests/spark/effects/test_blocks.py
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from drainer.spark.effects.batches import ARROW, BATCH_ROWS, PLACE_BITS
from drainer.spark.effects.fold import Reading
from drainer.spark.effects.merge import merged
from tidb_binlog.late_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "bucket long, block binary"
_ARROW: Final = pa.schema([("bucket", pa.int64()), ("block", pa.binary())])
FOLDED: Final = "definition long, keys long, block binary"
_FOLDED: Final = pa.schema([("definition", pa.int64()), ("keys", pa.int64()), ("block", pa.binary())])
_HELD_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Packing:
    """What a task does with the numbers of its shares."""

    reading: Reading

    def __call__(self, numbers: Iterable[Any]) -> Iterator[Any]:
        return packed(self.reading(numbers), _HELD_BYTES)


def by_bucket(spark: SparkSession, reading: Reading, partitions: int) -> DataFrame:
    """Blocks of the shares, sorted by bucket; a bucket is in one partition.

    All partitions have as many, but with PySpark 4.0, which cannot be told where a bucket goes.
    """
    from pyspark.sql import functions as f

    count = len(reading.shares)
    frame = spark.range(0, count, 1, count).mapInArrow(Packing(reading), COLUMNS)
    if hasattr(frame, "repartitionById"):
        placed = frame.repartitionById(partitions, (f.col("bucket") % partitions).cast("int"))
    else:
        placed = frame.repartition(partitions, "bucket")
    return placed.sortWithinPartitions("bucket")


@functools.lru_cache(1)
def plain(spark: SparkSession) -> SparkSession:
    """A session of the same context whose jobs run as they are written. What Spark finds out on the way, and
    the code that it compiles, cost more than they gain where a few hundred blocks are moved."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def packed(batches: Iterable[Any], bytes_max: int) -> Iterator[Any]:
    """Holds about `bytes_max`."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= bytes_max:
            yield _blocks(held)
            held, size = [], 0
    if held:
        yield _blocks(held)


def _blocks(held: list[Any]) -> Any:
    rows, places = _sorted(held)
    buckets, starts = np.unique(places >> PLACE_BITS, return_index=True)
    stops = np.append(starts[1:], len(places))
    blocks = [
        _block(rows.slice(start, stop - start))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(buckets), pa.array(blocks, pa.binary())], schema=_ARROW)


def _block(rows: Any) -> bytes:
    return rows.serialize().to_pybytes()  # type: ignore[no-any-return]


def effects_in(blocks: Iterable[Any]) -> Iterator[Any]:
    """Of each block its record batch."""
    for block in blocks:
        yield pa.ipc.read_record_batch(block.as_buffer(), ARROW)


def folded(batches: Iterable[Any]) -> Iterator[Any]:
    """Blocks of a bucket become one effect a key, in blocks again, each of one definition."""
    for batch in merged(by_place(batches)):
        numbers = batch.column("definition").to_numpy()
        definitions = np.unique(numbers)
        parts = [batch.filter(pa.array(numbers == number)) for number in definitions]
        columns = [pa.array(definitions), pa.array([part.num_rows for part in parts])]
        blocks = pa.array(map(_block, parts), pa.binary())
        yield pa.RecordBatch.from_arrays([*columns, blocks], schema=_FOLDED)


def by_place(batches: Iterable[Any], tables: Collection[int] = ()) -> Iterator[Any]:
    """Effects of blocks that are sorted by bucket; of these tables alone, if any is named."""
    held: list[Any] = []
    last = -1
    for batch in batches:
        for bucket, rows in zip(batch.column(0).to_pylist(), effects_in(batch.column(1)), strict=True):
            if bucket != last and held:
                yield from _in_order(held, tables)
                held = []
            last = bucket
            held.append(rows)
    if held:
        yield from _in_order(held, tables)


def _in_order(held: list[Any], tables: Collection[int]) -> Iterator[Any]:
    rows, _ = _sorted(held)
    if tables:
        chosen = np.isin(rows.column("table").to_numpy(), np.array(sorted(tables), np.int64))
        rows = rows.filter(pa.array(chosen))
    for start in range(0, rows.num_rows, BATCH_ROWS):
        yield rows.slice(start, BATCH_ROWS)


def _sorted(held: list[Any]) -> tuple[Any, Any]:
    """Rows by place, and their places."""
    rows = pa.concat_batches(held) if len(held) > 1 else held[0]
    places = rows.column("place").to_numpy()
    order = np.argsort(places, kind="stable")
    return rows.take(pa.array(order)), places[order]
