"""Show: tables for people, JSON for programs; the only way of a command to its standard output and error.

Why     rich is imported where it is needed: it costs a start a tenth of a second, and JSON, log lines and a
        daemon without a terminal do without it
Never   lets a name or a text from outside steer the terminal (`tidb_binlog.observe.printable`)
Tests   tests/common/observe/test_printable.py
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from tidb_binlog.observe.printable import in_json, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

_WIDTH_OF_A_FILE: Final = 200
"""Columns of a pipe or a file."""
_BETWEEN: Final = 3
"""Columns between two columns of a table."""


def json_text(document: Any, *, indent: int | None = 2) -> str:
    return in_json(json.dumps(document, indent=indent, ensure_ascii=False)) + "\n"


def print_json(document: Any, *, indent: int | None = 2) -> None:
    sys.stdout.write(json_text(document, indent=indent))
    sys.stdout.flush()


def print_lines(*lines: str) -> None:
    """Plain lines on standard output, at once."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def print_warning(text: str) -> None:
    """One plain line on standard error, whatever is in it."""
    sys.stderr.write(f"{one_line(text)}\n")
    sys.stderr.flush()


def console(file: IO[str] | None = None) -> Console:
    """Standard output (or `file`); wide where it is no terminal, so that lines stay lines."""
    from rich.console import Console

    file = file or sys.stdout
    wide = not file.isatty() and "COLUMNS" not in os.environ
    return Console(file=file, width=_WIDTH_OF_A_FILE if wide else None, highlight=False)


def text(content: object, style: str = "") -> Text:
    """As it is: nothing in it is markup."""
    from rich.text import Text

    if isinstance(content, Text):
        return content
    return Text(printable(str(content)), style=style)


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Texts as they are: nothing in them is markup. Lines break between words where there is room for each:
    an address or a number can be copied then."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = list(rows)
    grid = Table(title=text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    needs = _needs(headings, rows)
    fits = _fits(needs)
    for heading, (_, is_words) in zip(headings, needs, strict=True):
        grid.add_column(text(heading), overflow="fold", no_wrap=fits and is_words)
    for row in rows:
        grid.add_row(*map(text, row))
    return grid


def _needs(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> list[tuple[int, bool]]:
    return [_need(*cells) for cells in zip(headings, *rows, strict=True)]


def _fits(needs: Sequence[tuple[int, bool]]) -> bool:
    return sum(width for width, _ in needs) + _BETWEEN * len(needs) <= console().width


def _need(heading: str, *cells: object) -> tuple[int, bool]:
    """How wide a column has to be, and whether each of its cells is one word."""
    from rich.cells import cell_len

    texts = [printable(cell) for cell in cells if isinstance(cell, str)]
    is_words = len(texts) == len(cells) and all(len(shown.split()) < 2 for shown in texts)
    parts = [heading, *texts] if is_words else " ".join((heading, *texts)).split()
    return max(map(cell_len, parts), default=0), is_words


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; where the terminal is too narrow for it, each row as lines of names and values."""
    rows = list(rows)
    if console().width >= _WIDTH_OF_A_FILE or _fits(_needs(headings, rows)):
        console().print(table(title, headings, rows))
        return
    print_lines(*([title] if title else []))
    for row in rows:
        print_lines("")
        print_facts((name, cell) for name, cell in zip(headings, row, strict=True) if str(cell))


def coloured(*parts: tuple[str, str]) -> Text:
    """Texts with the style of each."""
    from rich.text import Text

    return Text.assemble(*((printable(part), style) for part, style in parts))


def print_facts(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line."""
    shown = [(name, str(value)) for name, value in rows]
    width = max((len(name) for name, _ in shown), default=0)
    print_lines(*(f"{name.ljust(width)}  {value}" for name, value in shown))


class TerminalLine:
    """One line on standard error that is written over; there from `show` until `clear`."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, text: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(one_line(text), overflow="ellipsis", no_wrap=True), refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
