"""HTML page: the result of a comparison as one file without scripts.

In     a `Verification`
Out    HTML that needs nothing beside it, drawn like the page of an audit
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
from tidb_binlog.page.template import count, moment, page, table_of
from tidb_binlog.quantities import span

_TABLES: Final = ("table downstream", "upstream", "is", "rows", "rows downstream", "chunks", "wrong", "how")
_ROWS: Final = ("table", "row", "key", "column", "upstream / downstream", "last change (UTC)")
_COLUMNS: Final = ("table", "column", "compared", "why")


def html(found: Verification) -> str:
    title = f"Comparison of {found.downstream} with {found.upstream}"
    return page(title, (*_head(found), _verdict(found), *_rows(found), *_tables(found), *_columns(found)))


def _head(found: Verification) -> Iterator[str]:
    sides = (found.downstream, found.upstream)
    down, up = (f"<span class=mono>{escape(one)}</span>" for one in sides)
    yield f"<h1>{down} beside {up}</h1>"
    line = f"upstream at {moment(found.ts)} <span class=mono>({found.ts})</span>"
    if found.downstream_ts:
        line += f", downstream at <span class=mono>{found.downstream_ts}</span>"
    elif found.held_ms:
        line += f", where apply was held for {found.held_ms:.1f} ms"
    yield f'<div class="soft">{line}</div>'
    times = f"compared {moment(tso.from_wall_s(found.began_s))}"
    if found.ended_s:
        times += f", in {span(found.ended_s - found.began_s)}"
    if found.looked_again:
        times += f"; what differed was looked at {found.looked_again + 1} times"
    yield f'<div class="soft">{times}</div>'


def _verdict(found: Verification) -> str:
    color = "good" if found.state is State.EQUAL else "bad" if found.state is State.DIFFERS else "part"
    notes = "".join(f"<p>{escape(one)}</p>" for one in found.notes)
    return f'<div class="verdict {color}">{escape(verdict(found))}{notes}</div>'


def _rows(found: Verification) -> Iterator[str]:
    rows = [_row(table, one) for table in found.tables for one in table.differences]
    if not rows:
        return
    yield "<h2>Rows that differ</h2>"
    if len(rows) < found.wrong:
        yield f'<p class="soft">{len(rows):,} of {found.wrong:,} are listed.</p>'
    yield table_of(_ROWS, "".join(rows))


def _row(table: TableResult, found: RowDifference) -> str:
    values = list(compared_values(table, found))
    names = "<br>".join(f"<b>{escape(name)}</b><br>&nbsp;" for name, _, _ in values)
    sides = "<br>".join(
        f"<span class='want mono'>{escape(up)}</span><br><span class='have mono'>{escape(down)}</span>"
        for _, up, down in values
    )
    when = ""
    if found.commit_ts:
        when = f"{moment(found.commit_ts)}<br><span class='soft mono'>{found.commit_ts}</span>"
    return (
        f"<tr><td>{escape(name_text(table.downstream))}</td><td class=nowrap><b>{found.kind}</b></td>"
        f"<td class='mono key'>{escape(key_text(table, found))}</td><td>{names}</td><td>{sides}</td>"
        f"<td class=nowrap>{when}</td></tr>"
    )


def _tables(found: Verification) -> Iterator[str]:
    if not found.tables:
        return
    yield f"<h2>{count(len(found.tables), 'table')}</h2>"
    yield table_of(_TABLES, "".join(map(_table, found.tables)))


def _table(table: TableResult) -> str:
    color = {State.EQUAL: "want", State.DIFFERS: "have"}.get(table.state, "soft")
    figures = (table.rows, table.downstream_rows, table.chunks)
    numbers = "".join(f"<td class=number>{number:,}</td>" for number in figures)
    return (
        f"<tr><td>{escape(name_text(table.downstream))}</td><td>{escape(names_text(table.upstream))}</td>"
        f"<td class=nowrap><b class={color}>{table.state}</b></td>{numbers}"
        f"<td>{kinds_text(table)}</td><td>{escape(about(table))}</td></tr>"
    )


def _columns(found: Verification) -> Iterator[str]:
    """Columns that the servers could not compare themselves, with the reasons."""
    rows = [
        f"<tr><td>{escape(name_text(table.downstream))}</td><td>{escape(one.name)}</td>"
        f"<td class=nowrap>{one.how}</td><td>{escape(one.why)}</td></tr>"
        for table in found.tables
        for one in table.columns
        if one.how is not How.CHECKSUM
    ]
    if rows:
        shown = table_of(_COLUMNS, "".join(rows))
        yield (
            "<h2>Columns that are not in the servers' checksums</h2>"
            f"<details{' open' if len(rows) <= 12 else ''}><summary>{count(len(rows), 'column')}</summary>"
            f"{shown}</details>"
        )
