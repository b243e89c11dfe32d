"""Terminal: the result of a comparison for people who look at it now.

In     a `Verification`
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


def print_verification(found: Verification) -> None:
    show.print_lines(*_head(found))
    if found.tables:
        show.print_table("", _TABLES, table_rows(found))
    rows = list(difference_rows(found))
    if rows:
        show.print_table("", _ROWS, rows)
    show.print_lines(*(f"note: {one}" for one in found.notes), *_tail(found))


def _head(found: Verification) -> Iterator[str]:
    yield f"{found.upstream} -> {found.downstream}"
    line = f"at {time_text.utc(found.ts)} ({found.ts})"
    if found.downstream_ts:
        line += f", downstream at {found.downstream_ts}"
    elif found.held_ms:
        line += f", apply was held for {found.held_ms:.1f} ms"
    if found.looked_again:
        line += f", differences looked at {found.looked_again + 1} times"
    yield line


def table_rows(found: Verification) -> Iterator[tuple[str, ...]]:
    """The rows of the list of tables."""
    for one in found.tables:
        place = name_text(one.downstream)
        if one.upstream and one.upstream != (one.downstream,):
            place = f"{names_text(one.upstream)} -> {place}"
        counts = [f"{number:,}" for number in (one.rows, one.downstream_rows, one.chunks)]
        yield (place, one.state, *counts, kinds_text(one), about(one))


def difference_rows(found: Verification) -> Iterator[tuple[str, ...]]:
    """The rows of the list of differences, a line for each column that differs."""
    shown = 0
    for table in found.tables:
        for row in table.differences:
            if shown == ROWS_MAX:
                return
            shown += 1
            last = time_text.utc(row.commit_ts) if row.commit_ts else ""
            head = (name_text(table.downstream), str(row.kind), key_text(table, row))
            for values in compared_values(table, row):
                yield (*head, *values, last)
                head, last = ("", "", ""), ""


def _tail(found: Verification) -> Iterator[str]:
    listed = sum(len(one.differences) for one in found.tables)
    if listed > ROWS_MAX:
        yield f"{ROWS_MAX} of {found.wrong:,} rows are shown: -report and -output json have more"
    took = f" ({span(found.ended_s - found.began_s)})" if found.ended_s else ""
    yield f"{verdict(found)}{took}"
