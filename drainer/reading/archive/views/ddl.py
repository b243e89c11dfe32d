"""View ddl: one row a schema change.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from drainer.reading.archive.decode import reading
from drainer.reading.archive.decode.records import SchemaChange
from drainer.reading.archive.views.columns import TEXTS, TIME, of_tuples, physical_us
from drainer.reading.archive.views.view import ROWS_MAX, ReadTask, View

COLUMNS: Final = pa.schema(
    {
        "_commit_ts": pa.int64(),
        "_commit_timestamp": TIME,
        "_file": pa.string(),
        "_pos": pa.int64(),
        "part": pa.int32(),
        "schema": pa.string(),
        "query": pa.string(),
        "job_id": pa.int64(),
        "kind": pa.int32(),
        "tables": TEXTS,
    }
)


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    schema = task.columns
    rows: list[tuple[object, ...]] = []
    for record in reading.read(
        task.location, task.part, task.selection, task.definitions, damage=task.damage, reach=task.reach
    ):
        if not isinstance(record, SchemaChange):
            continue
        ddl = record.ddl
        tables = [f"{database}.{name}" if name else database for database, name in ddl.tables]
        query = ddl.query.encode("utf-8", "backslashreplace").decode()
        where = (ddl.commit_ts, physical_us(ddl.commit_ts), record.file, record.pos, record.part)
        # A job's number and kind are not in a file archive.
        rows.append((*where, ddl.schema, query, ddl.job_id or None, ddl.action or None, tables))
        if len(rows) >= ROWS_MAX:
            yield of_tuples(schema, COLUMNS.names, rows)
            rows = []
    if rows:
        yield of_tuples(schema, COLUMNS.names, rows)


VIEW: Final = View(COLUMNS, _batches)
