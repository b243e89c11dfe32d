"""View definitions: one row a definition of a table, under the number that stands for it elsewhere.

Tests  tests/spark/source/test_source.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from drainer.formats.obinlog.writer import definition_json
from drainer.spark.source.views.columns import arrow_schema, of_tuples
from drainer.spark.source.views.view import ReadTask, View

COLUMNS: Final = StructType(
    [
        StructField("definition", LongType()),
        StructField("first_commit_ts", LongType()),
        StructField("schema", StringType()),
        StructField("table", StringType()),
        StructField("document", StringType()),
    ]
)


def _batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    known = task.definitions
    rows = [
        (known.number_of(one.version), one.first_ts, one.schema, one.table, definition_json(one.version))
        for one in known
        if task.selection.wants_table(one.schema, one.table)
    ]
    if rows:
        yield of_tuples(arrow_schema(task.columns), COLUMNS.names, rows)


VIEW: Final = View(COLUMNS, _batches, is_of_definitions=True)
