"""HTML page: the result of a comparison as one file without scripts.

Holds  what was not compared stands beside what was found: silence must not be taken for equality
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
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
from drainer.compare.verify.result import How, RowDifference, State, TableResult, Verification
from tidb_binlog import tso
from tidb_binlog.page.template import moment, page, table_of
from tidb_binlog.quantities import count, span

_TABLES: Final = ("table downstream", "upstream", "is", "rows", "rows downstream", "chunks", "wrong", "how")
_ROWS: Final = ("table", "row", "key", "column", "upstream / downstream", "last change (UTC)")
_COLUMNS: Final = ("table", "column", "compared", "why")


def html(result: Verification) -> str:
    title = f"Comparison of {result.downstream} with {result.upstream}"
    return page(
        title, (*_head(result), _verdict(result), *_rows(result), *_tables(result), *_columns(result))
    )


def _head(result: Verification) -> Iterator[str]:
    sides = (result.downstream, result.upstream)
    down, up = (f"<span class=mono>{escape(side)}</span>" for side in sides)
    yield f"<h1>{down} beside {up}</h1>"
    line = f"upstream at {moment(result.ts)} <span class=mono>({result.ts})</span>"
    if result.downstream_ts:
        line += f", downstream at <span class=mono>{result.downstream_ts}</span>"
    elif result.held_ms:
        line += f", where apply was held for {result.held_ms:.1f} ms"
    yield f'<div class="soft">{line}</div>'
    times = f"compared {moment(tso.from_wall_s(result.began_s))}"
    if result.ended_s:
        times += f", in {span(result.ended_s - result.began_s)}"
    if result.looked_again:
        times += f"; what differed was looked at {result.looked_again + 1} times"
    yield f'<div class="soft">{times}</div>'


def _verdict(result: Verification) -> str:
    color = "good" if result.state is State.EQUAL else "bad" if result.state is State.DIFFERS else "part"
    notes = "".join(f"<p>{escape(note)}</p>" for note in result.notes)
    return f'<div class="verdict {color}">{escape(verdict(result))}{notes}</div>'


def _rows(result: Verification) -> Iterator[str]:
    rows = [_row(table, difference) for table in result.tables for difference in table.differences]
    if not rows:
        return
    yield "<h2>Rows that differ</h2>"
    if len(rows) < result.wrong:
        yield f'<p class="soft">{len(rows):,} of {result.wrong:,} are listed.</p>'
    yield table_of(_ROWS, "".join(rows))


def _row(table: TableResult, difference: RowDifference) -> str:
    values = list(compared_values(table, difference))
    names = "<br>".join(f"<b>{escape(name)}</b><br>&nbsp;" for name, _, _ in values)
    sides = "<br>".join(
        f"<span class='want mono'>{escape(up)}</span><br><span class='have mono'>{escape(down)}</span>"
        for _, up, down in values
    )
    when = ""
    if difference.commit_ts:
        when = f"{moment(difference.commit_ts)}<br><span class='soft mono'>{difference.commit_ts}</span>"
    return (
        f"<tr><td>{escape(name_text(table.downstream))}</td><td class=nowrap><b>{difference.kind}</b></td>"
        f"<td class='mono key'>{escape(key_text(table, difference))}</td><td>{names}</td><td>{sides}</td>"
        f"<td class=nowrap>{when}</td></tr>"
    )


def _tables(result: Verification) -> Iterator[str]:
    if not result.tables:
        return
    yield f"<h2>{count(len(result.tables), 'table')}</h2>"
    yield table_of(_TABLES, "".join(map(_table, result.tables)))


def _table(table: TableResult) -> str:
    color = {State.EQUAL: "want", State.DIFFERS: "have"}.get(table.state, "soft")
    figures = (table.rows, table.downstream_rows, table.chunks)
    numbers = "".join(f"<td class=number>{number:,}</td>" for number in figures)
    return (
        f"<tr><td>{escape(name_text(table.downstream))}</td><td>{escape(names_text(table.upstream))}</td>"
        f"<td class=nowrap><b class={color}>{table.state}</b></td>{numbers}"
        f"<td>{kinds_text(table)}</td><td>{escape(about(table))}</td></tr>"
    )


def _columns(result: Verification) -> Iterator[str]:
    """Columns that the servers could not compare themselves, with the reasons."""
    rows = [
        f"<tr><td>{escape(name_text(table.downstream))}</td><td>{escape(column.name)}</td>"
        f"<td class=nowrap>{column.how}</td><td>{escape(column.why)}</td></tr>"
        for table in result.tables
        for column in table.columns
        if column.how is not How.CHECKSUM
    ]
    if rows:
        shown = table_of(_COLUMNS, "".join(rows))
        yield (
            "<h2>Columns that are not in the servers' checksums</h2>"
            f"<details{' open' if len(rows) <= 12 else ''}><summary>{count(len(rows), 'column')}</summary>"
            f"{shown}</details>"
        )
