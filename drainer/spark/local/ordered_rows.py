"""Ordered rows: the rows of a view in commit order, or the first of them.

Holds  no more than `limit` rows and a batch are in memory. Files that begin after what is wanted are not
       read, and a part is left as soon as its records are later than that: records are in commit order, but
       for what a drainer wrote again
Tests  tests/spark/local/test_same_output.py
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.files.segments import PUMP
from tidb_binlog.process.garbage import collect_rarely

Row = dict[str, Any]
_COMMIT_TS = "_commit_ts"


def batches(source: ArchiveSource, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Everything, in the order of the archive."""
    collect_rarely()
    task, parts = source.in_order(columns)
    for part in parts:
        yield from archive_source.read(task, source.options.view, part)


def everything(source: ArchiveSource, columns: pa.Schema, order: Sequence[str]) -> list[Row]:
    rows = [row for batch in batches(source, columns) for row in batch.to_pylist()]
    return sorted(rows, key=itemgetter(*order)) if order else rows


def first(source: ArchiveSource, columns: pa.Schema, order: Sequence[str], limit: int) -> list[Row]:
    """So many rows; the first that there are where `order` is empty."""
    collect_rarely()
    (task, parts), view = source.in_order(columns), source.options.view
    starts = (
        {}
        if source.survey.kind == PUMP
        else {segment.name: segment.first_ts for segment in source.survey.segments}
    )
    by_time = bool(order) and order[0] == _COMMIT_TS
    kept: list[Row] = []
    for part in parts:
        if len(kept) >= limit and not order:
            break
        begins = starts.get(part.slice.name)
        if by_time and begins is not None and len(kept) >= limit and begins > kept[-1][_COMMIT_TS]:
            continue
        for batch in archive_source.read(task, view, part):
            kept = _merged(kept, batch, order, limit)
            done = len(kept) >= limit
            if done and (not order or (by_time and _last(batch) > kept[-1][_COMMIT_TS])):
                break
    return kept


def _last(batch: pa.RecordBatch) -> int:
    commit_ts: int = batch.column(_COMMIT_TS)[batch.num_rows - 1].as_py()
    return commit_ts


def _merged(kept: list[Row], batch: pa.RecordBatch, order: Sequence[str], limit: int) -> list[Row]:
    if not order:
        some: list[Row] = batch.slice(0, limit - len(kept)).to_pylist()
        return kept + some
    if batch.num_rows > limit:
        keys = list(zip(*(batch.column(name).to_pylist() for name in order), strict=True))
        batch = batch.take(pa.array(heapq.nsmallest(limit, range(len(keys)), key=keys.__getitem__)))
    key: Callable[[Row], Any] = itemgetter(*order)
    rows: list[Row] = heapq.nsmallest(limit, itertools.chain(kept, batch.to_pylist()), key=key)
    return rows
