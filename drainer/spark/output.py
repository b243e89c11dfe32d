"""Output: the rows of a data frame, for people as a table, for programs as one JSON object a line.

Tests  tests/spark/test_readme_spark.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drainer.spark.arguments import JSON
from tidb_binlog.observe import show
from tidb_binlog.observe.printable import in_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lines_of(frame: DataFrame) -> list[str]:
    """Each row as a JSON object."""
    from pyspark.sql.functions import struct, to_json

    return [row.line for row in frame.select(to_json(struct("*")).alias("line")).collect()]


def print_frame(title: str, frame: DataFrame, output: str, *, keep_empty: bool = False) -> None:
    """All rows, in their order. `keep_empty`: columns without a value too."""
    print_rows(title, frame.columns, lines_of(frame), output, keep_empty=keep_empty)


def print_rows(
    title: str, names: Sequence[str], lines: Sequence[str], output: str, *, keep_empty: bool = False
) -> None:
    """The same of rows that are JSON already."""
    if output == JSON:
        show.print_lines(*map(in_json, lines))
        return
    rows = [json.loads(line) for line in lines]
    everything = keep_empty or not rows
    filled = [name for name in names if everything or any(row.get(name) for row in rows)]
    cells = [[_cell(row.get(name)) for name in filled] for row in rows]
    show.print_table(title, filled, cells)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
