"""Writing task: what a task does with a partition of effects.

Out    how many chunks and keys it wrote; for people, since a task that was run again does not count what the
       former one wrote
Holds  a bucket's chunks are cut by number of keys and by bytes, in the order of places: the same for every
       attempt
Tests  tests/spark/replay/test_writing_task.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drainer.mysql.connection import Target
from drainer.spark.effects import blocks
from drainer.spark.effects.batches import PLACE_BITS
from drainer.spark.effects.merge import merged
from drainer.spark.effects.operations import RowEffect
from drainer.spark.replay.job import Bucket
from drainer.spark.replay.writer import NOT_SAID, Phase, Tables, Taking, Undone, Writer, taken_back
from tidb_binlog.late_dataclass import dataclass, field
from tidb_binlog.process.garbage import collect_rarely

CHUNK_BYTES: Final = 4 << 20
REPORT: Final = "chunks long, keys long"
_REPORT: Final = pa.schema([("chunks", pa.int64()), ("keys", pa.int64())])


@dataclass(frozen=True)
class Writing:
    """Picklable; the password is in no `repr`. Of removals only those of tables apart are written.
    `in_blocks`: effects come so. `undone`: what is taken back in that phase, and left out in the late one."""

    target: Target
    tables: Tables
    job: str
    step: int
    phase: Phase
    chunk_rows: int
    safe: bool
    in_blocks: bool
    taking: Taking = NOT_SAID
    undone: Undone = field(default_factory=dict)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        collect_rarely()
        writer = Writer(self.target, self.tables, safe=self.safe, taking=self.taking)
        chunks = keys = 0
        try:
            if self.in_blocks:
                only = self.tables.apart if self.phase is Phase.REMOVALS else ()
                batches = blocks.by_place(batches, only)
            for bucket, chunk, effects in chunked(batches, self.chunk_rows):
                place = Bucket(self.job, self.step, self.phase, bucket)
                if self.phase is Phase.UNDO:
                    effects = taken_back(effects, self.undone, bucket, chunk, self.tables)
                elif self.phase is Phase.LATE:
                    effects = [each for each in effects if each[0] not in self.undone]
                if writer.write(place, chunk, self.phase, effects):
                    chunks += 1
                    keys += len(effects)
        finally:
            writer.close()
        yield pa.RecordBatch.from_arrays([pa.array([chunks]), pa.array([keys])], schema=_REPORT)


def chunked(batches: Iterable[Any], chunk_rows: int) -> Iterator[tuple[int, int, Sequence[RowEffect]]]:
    """(bucket, number of the chunk in it, effects)."""
    waiting: list[RowEffect] = []
    bucket, chunk, size = -1, 0, 0
    for batch in merged(batches):
        places, *columns = batch.columns
        # Unpacked like effects; there is one for every key.
        effects = cast(list[RowEffect], list(zip(*(column.to_pylist() for column in columns), strict=True)))
        buckets = places.to_numpy() >> PLACE_BITS
        sizes = np.cumsum(pc.fill_null(pc.binary_length(batch.column("image")), 0).to_numpy())
        start, before = 0, 0
        while start < len(effects):
            of_bucket = int(buckets[start])
            full = len(waiting) >= chunk_rows or size >= CHUNK_BYTES
            if waiting and (of_bucket != bucket or full):
                yield bucket, chunk, waiting
                waiting, size, chunk = [], 0, chunk + 1
            if of_bucket != bucket:
                bucket, chunk = of_bucket, 0
            stop = min(
                int(np.searchsorted(buckets, of_bucket, "right")),
                start + chunk_rows - len(waiting),
                int(np.searchsorted(sizes, before + CHUNK_BYTES - size)) + 1,
            )
            waiting += effects[start:stop]
            size += int(sizes[stop - 1]) - before
            start, before = stop, int(sizes[stop - 1])
    if waiting:
        yield bucket, chunk, waiting
