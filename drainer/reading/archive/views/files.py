"""View files: one row a file, what it holds and what is wrong with it. Files with an index are not read.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields
from typing import Final

import pyarrow as pa

from drainer.reading.archive.decode.coverage import FileCoverage, cover
from drainer.reading.archive.views.columns import of_tuples
from drainer.reading.archive.views.view import ReadTask, View

_TEXTS: Final = frozenset({"file", "kind", "problem"})
COLUMNS: Final = pa.schema(
    {one.name: pa.string() if one.name in _TEXTS else pa.int64() for one in fields(FileCoverage)}
)


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    rows = [astuple(cover(task.location, part, segment, verify=task.verify)) for part, segment in task.files]
    if rows:
        yield of_tuples(task.columns, COLUMNS.names, rows)


VIEW: Final = View(COLUMNS, _batches, is_of_files=True)
