"""Counts: the statistics of an archive (`drainer.spark.statistics`) without Spark.

In     the views `changes` and `transactions`; of `changes` only the columns that are counted
Out    the same tables, each with its schema
Holds  in memory are a count for every key that changes, and two numbers for every transaction. Percentiles
       are exact; Spark's of more than some ten thousand transactions may be off by one in ten thousand
Tests  tests/spark/local/test_same_output.py
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.views.view import TIME
from drainer.spark.local.ordered_rows import Row, batches
from drainer.spark.statistics import PERCENTS

_HOUR_US: Final = 3_600_000_000
_NAMES: Final = ("_schema", "_table", "_change_type")
_KEY: Final = ("_schema", "_table", "key")
Counted = tuple[pa.Schema, list[Row]]


def of_changes(archive: str, options: Mapping[str, str], hottest: int) -> dict[str, Counted]:
    """Changes by hour, table and kind; with `hottest` above 0 so many keys with most changes."""
    names = ("_commit_timestamp", *_NAMES, *(("key",) if hottest > 0 else ()))
    rates: Counter[tuple[Any, ...]] = Counter()
    keys: Counter[tuple[str, ...]] = Counter()
    for columns in _columns(archive, options, "changes", names):
        rates.update(zip(_hours(columns[0]), *columns[1:4], strict=True))
        if hottest > 0:
            keys.update(zip(columns[1], columns[2], columns[4], strict=True))
    found = {"changes": _sorted(("hour", *_NAMES), rates)}
    if hottest > 0:
        known = sorted((-count, key) for key, count in keys.items() if key[2] is not None)[:hottest]
        rows = [dict(zip((*_KEY, "changes"), (*key, -count), strict=True)) for count, key in known]
        found["hottest"] = _schema(_KEY), rows
    return found


def of_transactions(archive: str, options: Mapping[str, str]) -> dict[str, Counted]:
    """Transactions, rows and bytes by hour; sizes of transactions."""
    sums: dict[int, list[int]] = {}
    sizes = array("q"), array("q")
    for times, rows, size in _columns(
        archive, options, "transactions", ("_commit_timestamp", "rows", "bytes")
    ):
        for hour, row_count, byte_count in zip(_hours(times), rows, size, strict=True):
            one = sums.setdefault(hour, [0, 0, 0])
            one[0] += 1
            one[1] += row_count
            one[2] += byte_count
        sizes[0].extend(rows)
        sizes[1].extend(size)
    names = ("hour", "transactions", "rows", "bytes")
    volumes = [_timed(names, (hour, *one)) for hour, one in sorted(sums.items())]
    measures: Row = {"transactions": len(sizes[0])}
    for name, values in zip(("rows", "bytes"), sizes, strict=True):
        ordered = sorted(values)
        measures[name] = sum(ordered) if ordered else None
        for part in PERCENTS:
            place = max(math.ceil(part / 100 * len(ordered)), 1) - 1
            measures[f"{name}_p{part}"] = ordered[place] if ordered else None
        measures[f"{name}_max"] = ordered[-1] if ordered else None
    return {
        "volumes": (pa.schema([("hour", TIME), *((name, pa.int64()) for name in names[1:])]), volumes),
        "transactions": (pa.schema([(name, pa.int64()) for name in measures]), [measures]),
    }


def _columns(archive: str, options: Mapping[str, str], view: str, names: Sequence[str]) -> Any:
    """Values of these columns, batch by batch; times as microseconds."""
    source = ArchiveSource({**options, "path": archive, "view": view})
    schema = source.schema
    for batch in batches(source, pa.schema([schema.field(name) for name in names])):
        columns = [batch.column(name) for name in names]
        yield [
            (one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one).to_pylist() for one in columns
        ]


def _hours(times: Sequence[int]) -> list[int]:
    return [time - time % _HOUR_US for time in times]


def _sorted(names: Sequence[str], counts: Counter[tuple[Any, ...]]) -> Counted:
    rows = [_timed((*names, "changes"), (*key, count)) for key, count in sorted(counts.items())]
    return _schema(names), rows


def _schema(names: Sequence[str]) -> pa.Schema:
    kinds = [(name, TIME if name == "hour" else pa.string()) for name in names]
    return pa.schema([*kinds, ("changes", pa.int64())])


def _timed(names: Sequence[str], values: Sequence[Any]) -> Row:
    """A row whose first value is an hour."""
    hour = pa.scalar(values[0], pa.int64()).cast(TIME).as_py()
    return dict(zip(names, (hour, *values[1:]), strict=True))
