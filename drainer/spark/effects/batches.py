"""Effect batches: effects of keys as Arrow, each with the place where, and so in which order, it is written.

Holds  a key's place depends on nothing but table and key
Why    whole numbers that are near each other share a bucket and lie side by side: statements touch few pages
       of the table's index
Tests  tests/spark/effects/test_merge.py

    place = bucket * 2^47 + something that brings neighbours together
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

import numpy as np
import pyarrow as pa

PLACE_BITS: Final = 47
_RUN_BITS: Final = 10  # so many neighbours (2^10) of a whole number are in its bucket
BATCH_ROWS: Final = 8192
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


def digit_places(numbers: Any, table: int, buckets: int) -> Any:
    """Place of each key that is a whole number, of 64 bits, whether they are seen with a sign or without."""
    numbers = (numbers.view(np.uint64) & np.uint64((1 << 63) - 1)).astype(np.int64)
    with np.errstate(over="ignore"):
        mixed = ((numbers >> _RUN_BITS).astype(np.uint64) ^ np.uint64(table)) * _SPREAD
        begin = (np.uint64(table) * _SPREAD).astype(np.int64)  # tables do not collide at their small numbers
        low = (numbers + begin) & ((1 << PLACE_BITS) - 1)
    return _placed(mixed, low, buckets)


def places(keys: list[bytes], table: int, buckets: int, *, digits: bool) -> Any:
    """Place of each key; `buckets` is a power of two, `digits`: keys are whole numbers."""
    if digits:
        try:
            numbers = np.array(list(map(int, keys)), dtype=np.int64)
        except OverflowError:  # unsigned ones
            numbers = np.array([int(key) & (1 << 64) - 1 for key in keys], dtype=np.uint64)
        return digit_places(numbers, table, buckets)
    seed = table & 0xFFFFFFFF
    low = np.array([zlib.crc32(key, seed) for key in keys], dtype=np.int64)
    return _placed(low.astype(np.uint64) << np.uint64(32), low, buckets)


def _placed(mixed: Any, low: Any, buckets: int) -> Any:
    bits = buckets.bit_length() - 1
    bucket = (mixed >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(low), np.int64)
    return (bucket << PLACE_BITS) | low


def batches(taken: Mapping[int, Mapping[bytes, list[Any]]], digits: Set[int], buckets: int) -> Iterator[Any]:
    """Record batches of what `Operations.take` gives; `digits`: tables whose keys are whole numbers."""
    for table, effects in taken.items():
        keys, values = list(effects), list(effects.values())
        step = BATCH_ROWS
        for start in range(0, len(keys), step):
            some = keys[start : start + step]
            columns: list[Any] = [places(some, table, buckets, digits=table in digits)]
            columns += [np.full(len(some), table, np.int64), some]
            columns += zip(*values[start : start + step], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)
