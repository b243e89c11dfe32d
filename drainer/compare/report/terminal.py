"""Terminal: the result of a comparison for people who look at it now.

Out    on standard output: a line with the moment, the tables, the first rows that differ, one sentence
Never  more than `ROWS_MAX` rows: the page and the JSON have what was listed, and say what was not
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drainer.compare.report.shown import (
    about,
    compared_values,
    key_text,
    kinds_text,
    name_text,
    names_text,
    verdict,
)
from drainer.compare.verify.result import Verification
from tidb_binlog import time_text
from tidb_binlog.observe import show
from tidb_binlog.quantities import span

ROWS_MAX: Final = 20
_TABLES: Final = ("table", "is", "rows", "downstream", "chunks", "wrong", "how")
_ROWS: Final = ("table", "row", "key", "column", "upstream", "downstream", "last change")


def print_verification(result: Verification) -> None:
    show.print_lines(*_head(result))
    if result.tables:
        show.print_table("", _TABLES, table_rows(result))
    rows = list(difference_rows(result))
    if rows:
        show.print_table("", _ROWS, rows)
    show.print_lines(*(f"note: {note}" for note in result.notes), *_tail(result))


def _head(result: Verification) -> Iterator[str]:
    yield f"{result.upstream} -> {result.downstream}"
    line = f"at {time_text.utc(result.ts)} ({result.ts})"
    if result.downstream_ts:
        line += f", downstream at {result.downstream_ts}"
    elif result.held_ms:
        line += f", apply was held for {result.held_ms:.1f} ms"
    if result.looked_again:
        line += f", differences looked at {result.looked_again + 1} times"
    yield line


def table_rows(result: Verification) -> Iterator[tuple[str, ...]]:
    """The rows of the list of tables."""
    for table in result.tables:
        place = name_text(table.downstream)
        if table.upstream and table.upstream != (table.downstream,):
            place = f"{names_text(table.upstream)} -> {place}"
        counts = [f"{number:,}" for number in (table.rows, table.downstream_rows, table.chunks)]
        yield (place, table.state, *counts, kinds_text(table), about(table))


def difference_rows(result: Verification) -> Iterator[tuple[str, ...]]:
    """The rows of the list of differences, a line for each column that differs."""
    shown = 0
    for table in result.tables:
        for row in table.differences:
            if shown == ROWS_MAX:
                return
            shown += 1
            last = time_text.utc(row.commit_ts) if row.commit_ts else ""
            head = (name_text(table.downstream), str(row.kind), key_text(table, row))
            for values in compared_values(table, row):
                yield (*head, *values, last)
                head, last = ("", "", ""), ""


def _tail(result: Verification) -> Iterator[str]:
    listed = sum(len(table.differences) for table in result.tables)
    if listed > ROWS_MAX:
        yield f"{ROWS_MAX} of {result.wrong:,} rows are shown: -report and -output json have more"
    took = f" ({span(result.ended_s - result.began_s)})" if result.ended_s else ""
    yield f"{verdict(result)}{took}"
