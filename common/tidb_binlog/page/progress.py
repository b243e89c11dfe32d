"""Progress: a comparison as a grid of chunks, a load as a bar for each table.

Out    inline SVG with the same in words
Tests  tests/common/page/test_progress.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidb_binlog.page.markup import Markup, element, first, join, place
from tidb_binlog.quantities import count
from tidb_binlog.status.drainer import ChunkGrid, LoadedTable, LoadStatus

STYLE: Final = """
.steps{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:14px;
margin:10px 0;align-items:start}
.steps figcaption{overflow-wrap:anywhere}.steps p{font-size:12px;margin:6px 0 0}.steps svg{display:block}
.steps .whole{fill:var(--line)}.steps .bar{fill:var(--link)}.steps .done{fill:var(--good)}
.steps .equal{fill:var(--good)}.steps .differs{fill:var(--bad)}.steps .left{fill:var(--line)}
"""
_COLUMNS: Final = 25
_STATES: Final = {"=": "equal", "!": "differs", ".": "left"}


def grids(tables: Sequence[ChunkGrid]) -> Markup:
    return element("div", *first(map(_grid, tables)), class_="steps")


def _grid(table: ChunkGrid) -> Markup:
    """A square is a chunk, or several; their numbers are of squares."""
    lines = -(-len(table.cells) // _COLUMNS)
    numbers = [f"{name} {table.cells.count(state):,}" for state, name in _STATES.items()]
    wrong = table.cells.count("!")
    each = -(-table.chunks // len(table.cells)) if table.cells else 1
    squares = f"{count(table.chunks, 'chunk')}{'' if table.is_cut else ' so far'}"
    if each > 1:
        squares += f", {each:,} a square"
    rows = f"{table.rows:,} rows" + (f" of about {table.rows_expected:,}" if table.rows_expected else "")
    return element(
        "figure",
        element("figcaption", table.table),
        element(
            "svg",
            *(
                element("path", d=_squares(table.cells, state), class_=name)
                for state, name in _STATES.items()
            ),
            viewBox=f"0 0 {_COLUMNS} {max(lines, 2)}",
            role="img",
            aria_label=f"{table.table}: {squares}: {', '.join(numbers)}",
        ),
        element("p", f"{squares}; {rows}", class_="soft"),
        element("p", element("span", f"{wrong:,} to be looked at again", class_="wrong")) if wrong else "",
    )


def _squares(cells: str, state: str) -> Markup:
    """One path for all of a state. Of any length: numbers alone are in it."""
    places = (at for at, cell in enumerate(cells) if cell == state)
    return Markup("".join(f"M{at % _COLUMNS} {at // _COLUMNS}h.85v.85h-.85z" for at in places))


def load(load: LoadStatus) -> Markup:
    """All rows, then each table."""
    at = join(", at ", place(load.ts)) if load.ts else ""
    expected = f" of about {load.rows_expected:,}" if load.rows_expected else ""
    said = element(
        "p", f"{load.stage}: {load.rows:,} rows{expected}", at, f". {load.note}" if load.note else ""
    )
    bars = first(map(_bar, load.tables))
    left = load.table_count - len(bars)
    more = element("p", f"{count(left, 'more table')}, done or not begun.", class_="soft") if left > 0 else ""
    return join(said, element("div", *bars, class_="steps"), more)


def _bar(table: LoadedTable) -> Markup:
    share = 1.0 if table.done else min(1.0, table.rows / table.rows_expected) if table.rows_expected else 0.0
    about = f" of about {table.rows_expected:,}" if table.rows_expected and not table.done else ""
    words = f"{table.rows:,} rows{about}{', done' if table.done else ''}"
    return element(
        "figure",
        element("figcaption", table.table),
        element(
            "svg",
            element("rect", width=100, height=4, class_="whole"),
            element("rect", width=f"{100 * share:.1f}", height=4, class_="done" if table.done else "bar"),
            viewBox="0 0 100 4",
            height=10,
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{table.table}: {words}",
        ),
        element("p", words, class_="soft"),
    )
