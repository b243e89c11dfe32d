"""View definitions: one row a definition of a table, under the number that stands for it elsewhere.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from drainer.formats.obinlog.writer import definition_json
from drainer.reading.archive.views.columns import of_tuples
from drainer.reading.archive.views.view import ReadTask, View

COLUMNS: Final = pa.schema(
    {
        "definition": pa.int64(),
        "first_commit_ts": pa.int64(),
        "schema": pa.string(),
        "table": pa.string(),
        "document": pa.string(),
    }
)


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    known = task.definitions
    rows = [
        (known.number_of(one.version), one.first_ts, one.schema, one.table, definition_json(one.version))
        for one in known
        if task.selection.wants_table(one.schema, one.table)
    ]
    if rows:
        yield of_tuples(task.columns, COLUMNS.names, rows)


VIEW: Final = View(COLUMNS, _batches, is_of_definitions=True)
