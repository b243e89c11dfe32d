"""View transactions: one row a transaction, of the rows that are selected.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.records import Changes
from drainer.reading.archive.views.columns import TEXTS, TIME, of_tuples, physical_us
from drainer.reading.archive.views.view import ROWS_MAX, ReadTask, View

COLUMNS: Final = pa.schema(
    {
        "_commit_ts": pa.int64(),
        "_commit_timestamp": TIME,
        "_start_ts": pa.int64(),
        "_file": pa.string(),
        "_pos": pa.int64(),
        "rows": pa.int64(),
        "inserts": pa.int64(),
        "updates": pa.int64(),
        "deletes": pa.int64(),
        "tables": TEXTS,
        "bytes": pa.int64(),
    }
)
"""`bytes`: of the images."""


class _Sum:
    """What is known of a transaction whose record, or first piece, is `first`."""

    def __init__(self, first: Changes) -> None:
        self.first = first
        self._counts = [0, 0, 0]
        self._tables: dict[str, None] = {}
        self._bytes = 0

    def add(self, changes: Changes) -> None:
        for version, kind, before, after in changes.rows:
            self._counts[kind] += 1
            self._bytes += len(before or b"") + len(after or b"")
            self._tables[".".join(version.downstream)] = None

    def row(self) -> tuple[object, ...]:
        first = self.first
        place = (first.commit_ts, physical_us(first.commit_ts), first.start_ts or None, first.file, first.pos)
        return (*place, sum(self._counts), *self._counts, list(self._tables), self._bytes)


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    schema = task.columns
    rows: list[tuple[object, ...]] = []
    current: _Sum | None = None
    for record in reading.read(
        task.location, task.part, task.selection, task.definitions, damage=task.damage, reach=task.reach
    ):
        if not isinstance(record, Changes):
            continue
        if current is None or current.first.commit_ts != record.commit_ts:
            if current is not None:
                rows.append(current.row())
            current = _Sum(record)
        current.add(record)
        if len(rows) >= ROWS_MAX:
            yield of_tuples(schema, COLUMNS.names, rows)
            rows = []
    if current is not None:
        rows.append(current.row())
    if rows:
        yield of_tuples(schema, COLUMNS.names, rows)


VIEW: Final = View(COLUMNS, _batches)
