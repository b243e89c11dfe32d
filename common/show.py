"""Show: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_OF_A_FILE: Final = 200
"""Columns where nobody looks: a pipe or a file."""


def json_text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def print_json(document: Any) -> None:
    sys.stdout.write(json_text(document))


def console() -> Console:
    """Standard output; wide where it is no terminal, so that lines stay lines."""
    from rich.console import Console  # a tenth of a second that JSON and log lines do not need

    wide = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH_OF_A_FILE if wide else None, highlight=False)


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Texts as they are: nothing in them is markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    console().print(table(title, headings, rows))


def print_facts(rows: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line."""
    shown = [(name, str(value)) for name, value in rows]
    width = max(len(name) for name, _ in shown)
    sys.stdout.write("".join(f"{name.ljust(width)}  {value}\n" for name, value in shown))
