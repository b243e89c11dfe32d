"""What a benchmark found, as JSON and as a table. Pure.

`ratio` is always what was measured divided by what it is compared with: for a rate more is better, for a
time or a cost less is better; `compared_to` names the other side and its figure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from rich import box
from rich.console import Console
from rich.table import Table

NONE = "-"


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark. CPU is that of the server under test, peak memory its VmHWM.

    None where a figure has no meaning. `value` and `cpu_us_per_unit` are medians when there were rounds.
    """

    name: str
    value: float
    unit: str
    cpu_us_per_unit: float | None
    p50_ms: float | None
    p99_ms: float | None
    peak_rss_mib: float | None
    compared_to: str
    ratio: float
    note: str = ""


FIELDS = tuple(field.name for field in fields(Result))
_HEADINGS = ("benchmark", "value", "unit", "CPU us/unit", "p50 ms", "p99 ms", "peak MiB", "ratio", "to")


def number(value: float | None) -> str:
    """Three significant digits, whole numbers from 100 on."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def to_json(results: Sequence[Result]) -> str:
    """A list of objects, one a benchmark."""
    return json.dumps([asdict(result) for result in results], indent=2, ensure_ascii=False) + "\n"


def _cells(result: Result) -> tuple[str, ...]:
    figures = (result.cpu_us_per_unit, result.p50_ms, result.p99_ms, result.peak_rss_mib, result.ratio)
    return (result.name, number(result.value), result.unit, *map(number, figures), result.compared_to)


def plain_table(results: Sequence[Result]) -> str:
    """Columns of text; the notes below."""
    rows = [_HEADINGS, *map(_cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    left = {0, 2, len(_HEADINGS) - 1}
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, *_notes(results)])


def _notes(results: Sequence[Result]) -> list[str]:
    return [f"{result.name}: {result.note}" for result in results if result.note]


def print_table(results: Sequence[Result], console: Console) -> None:
    """With rules and colours on a terminal, plain text otherwise."""
    if not console.is_terminal:
        console.out(plain_table(results), highlight=False)
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column, heading in enumerate(_HEADINGS):
        right = 0 < column < len(_HEADINGS) - 1 and heading != "unit"
        table.add_column(heading, justify="right" if right else "left", no_wrap=column == 0)
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)
    for note in _notes(results):
        console.print(note, style="dim", highlight=False, markup=False)
