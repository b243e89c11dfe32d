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

from tests.benchmarks.measure import percentile

NONE = "-"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Milliseconds of three fixed pieces of work just before a benchmark, each the median of some."""

    python_ms: float
    mariadb_ms: float
    fdatasync_ms: float


@dataclass(frozen=True, slots=True)
class Theirs:
    """What Go's program did in the same run, in turns with ours: in units of `Result.value`, and its CPU."""

    value: float
    cpu_us_per_unit: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], cpu_us: Sequence[float] = ()) -> Theirs | None:
        """Medians of rounds; None where there were none."""
        if not values:
            return None
        return cls(percentile(values, 0.5), percentile(cpu_us, 0.5) if cpu_us else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark. CPU is that of the server under test, peak memory its VmHWM.

    None where a figure has no meaning. `value` and `cpu_us_per_unit` are medians when there were rounds.
    """

    name: str
    value: float
    unit: str
    cpu_us_per_unit: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    peak_rss_mib: float | None = None
    compared_to: str
    ratio: float
    note: str = ""
    theirs: Theirs | None = None
    calibration: Calibration | None = None


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
    lines = _columns([_HEADINGS, *map(_cells, results)], {0, 2, len(_HEADINGS) - 1})
    return "\n".join([*lines, *_notes(results)])


def _columns(rows: Sequence[tuple[str, ...]], left: set[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def peer_table(results: Sequence[Result]) -> str:
    """Ours, theirs, limit, of what was measured in turns with Go's programs; each ratio is ours by theirs."""
    rows = [
        ("benchmark", "unit", "ours", "theirs", "ratio", "CPU us", "theirs", "ratio", "to limit", "limit")
    ]
    for one in results:
        if one.theirs is None:
            continue
        ours, other = one.cpu_us_per_unit, one.theirs.cpu_us_per_unit
        cpu = number(ours / other) if ours is not None and other else NONE
        rate = (number(one.value), number(one.theirs.value), number(one.value / one.theirs.value))
        costs = (number(ours), number(other), cpu)
        rows.append((one.name, one.unit, *rate, *costs, number(one.ratio), one.compared_to))
    return "\n".join(_columns(rows, {0, 1, len(rows[0]) - 1}))


def calibration_line(results: Sequence[Result]) -> str:
    """From the least to the most of a run."""
    taken = [asdict(one.calibration) for one in results if one.calibration is not None]
    if not taken:
        return ""
    ranges = {name: [one[name] for one in taken] for name in taken[0]}
    told = (
        f"{name.removesuffix('_ms')} {number(min(found))}-{number(max(found))} ms"
        for name, found in ranges.items()
    )
    return f"calibration: {', '.join(told)}"


def _notes(results: Sequence[Result]) -> list[str]:
    return [f"{result.name}: {result.note}" for result in results if result.note]


def print_report(results: Sequence[Result], console: Console) -> None:
    """The table, then the three of ours, theirs, limit where Go's programs were measured."""
    print_table(results, console)
    more = [calibration_line(results), peer_table(results) if any(one.theirs for one in results) else ""]
    for text in filter(None, more):
        console.out(text, highlight=False)


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
