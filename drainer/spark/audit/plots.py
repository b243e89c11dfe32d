"""Plots of a report, as SVG to be put into a page: matplotlib's figures without pyplot, text as text.

Tests  tests/spark/audit/test_report.py
"""

from __future__ import annotations

import datetime
import io
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import matplotlib
from matplotlib import dates
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from drainer.spark.audit.auditing import Outcome
from drainer.spark.audit.checks.contents import TableOutcome
from tidb_binlog import tso

_TABLES_MAX: Final = 8
_CHUNK_ROWS_MAX: Final = 40
_COLORS: Final = (
    "#2f6fb0",
    "#e08a2e",
    "#3d9a68",
    "#b54a62",
    "#7a5fa8",
    "#2b9eb3",
    "#a68a3c",
    "#6b7785",
    "#c3c9d0",
)
GOOD: Final = "#3d9a68"
BAD: Final = "#c0392b"
LAG: Final = "Lag: from a file's last commit to its last write"
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_LAG_TICKS: Final = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 1000 * 86400)
_NOTHING: Final = "#eceff2"
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "audit",
    "font.size": 9,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.labelcolor": "#4a5560",
    "xtick.color": "#4a5560",
    "ytick.color": "#4a5560",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e7eb",
    "legend.frameon": False,
}


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    return figure, axes


def _svg(figure: Figure, label: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = _METADATA.sub("", svg[svg.index("<svg") :])
    # Names in one page are one space: parts of one figure must not be those of another.
    for mark in ('id="', 'xlink:href="#', "url(#"):
        svg = svg.replace(mark, f"{mark}{label}-")
    return svg


def _days(seconds: Sequence[int]) -> list[float]:
    zone = datetime.UTC
    number: Any = dates.date2num
    return [float(number(datetime.datetime.fromtimestamp(time_s, zone))) for time_s in seconds]


def _time_axis(axes: Any) -> None:
    untyped: Any = dates
    locator = untyped.AutoDateLocator(tz=datetime.UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=datetime.UTC))


def plots(outcome: Outcome) -> dict[str, str]:
    """All that there is to show, by title."""
    by_title: dict[str, str] = {}
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Names in any script: the browser has fonts for them, what measures the text here need not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        for title, make in (
            ("Changes by time and table", changes),
            ("Transactions by time (grey: nothing for long)", activity),
            ("Rows of a transaction", sizes),
            (LAG, lag),
            ("Findings by place", findings),
            ("Compared chunks", chunks),
        ):
            svg = make(outcome)
            if svg is not None:
                by_title[title] = svg
    return by_title


def changes(outcome: Outcome) -> str | None:
    """Rows changed, stacked by table: the largest tables, and the others as one."""
    stretches = outcome.figures.changes
    if not stretches:
        return None
    totals: Counter[str] = Counter()
    for stretch in stretches:
        totals[stretch.table] += stretch.changes
    named = [table for table, _ in totals.most_common(_TABLES_MAX)]
    buckets = sorted({stretch.bucket for stretch in stretches})
    place = {bucket: n for n, bucket in enumerate(buckets)}
    heights = {table: [0] * len(buckets) for table in [*named, ""]}
    for stretch in stretches:
        heights[stretch.table if stretch.table in heights else ""][place[stretch.bucket]] += stretch.changes
    figure, axes = _figure(10, 3.4)
    below = [0] * len(buckets)
    width = outcome.figures.bucket_s / 86400
    at = _days(buckets)
    for (table, values), color in zip(heights.items(), [*_COLORS[: len(named)], _COLORS[-1]], strict=True):
        if not any(values):
            continue
        label = table or f"{len(totals) - len(named)} other tables"
        axes.bar(at, values, width, bottom=below, color=color, label=label, align="edge")
        below = [a + b for a, b in zip(below, values, strict=True)]
    _time_axis(axes)
    axes.set_ylabel(f"rows in {duration(outcome.figures.bucket_s)}")
    figure.legend(loc="outside right upper", fontsize=8)
    return _svg(figure, "changes")


def activity(outcome: Outcome) -> str | None:
    """Transactions; grey where nothing was committed for five bars or more."""
    times = outcome.figures.transactions_by_time
    if not times:
        return None
    figure, axes = _figure(5.6, 3.0)
    step = outcome.figures.bucket_s
    buckets = sorted(times)
    axes.bar(
        _days(buckets), [times[bucket] for bucket in buckets], step / 86400, color=_COLORS[0], align="edge"
    )
    quiet = [(a + step, b) for a, b in pairwise(buckets) if b - a > 5 * step]
    for begin, end in quiet:
        left, right = _days([begin, end])
        axes.axvspan(left, right, color=_NOTHING, zorder=0)
    _time_axis(axes)
    axes.set_ylabel(f"transactions in {duration(step)}")
    return _svg(figure, "activity")


def sizes(outcome: Outcome) -> str | None:
    """How many transactions have how many rows."""
    counts = outcome.figures.rows_per_transaction
    if not counts:
        return None
    figure, axes = _figure(5.6, 3.0)
    powers = range(max(counts) + 1)
    axes.bar(list(powers), [counts.get(power, 0) for power in powers], 0.85, color=_COLORS[5])
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.7)
    axes.yaxis.set_major_formatter(lambda number, _place: short(int(number)))
    labels = [_range(power) for power in powers]
    every = len(labels) // 5 + 1
    axes.set_xticks(list(powers)[::every], labels[::every])
    axes.set_xlabel("rows")
    axes.set_ylabel("transactions")
    return _svg(figure, "sizes")


def lag(outcome: Outcome) -> str | None:
    """Every file a point, in a scale in which seconds and days are both seen."""
    file_lags = outcome.figures.lags
    if not file_lags:
        return None
    figure, axes = _figure(10, 2.4)
    at = _days([int(tso.physical_s(file_lag.last_ts)) for file_lag in file_lags])
    values = [max(file_lag.lag_s, 0.0) for file_lag in file_lags]
    axes.plot(at, values, color=_COLORS[0], linewidth=0.8, marker="o", markersize=3.5)
    axes.set_yscale("symlog", linthresh=1, linscale=0.6)
    ticks = [0, *(tick for tick in _LAG_TICKS if tick <= 3 * max(values))] if max(values) else [0, 1]
    axes.set_yticks(ticks[-7:], [duration(tick) for tick in ticks[-7:]])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 2 * max(ticks[-1], *values))
    _time_axis(axes)
    axes.set_xlabel("last commit of the file")
    axes.set_ylabel("written later by")
    return _svg(figure, "lag")


def _range(power: int) -> str:
    last = 1 << power
    first = (last >> 1) + 1 if power else 1
    return short(last) if first == last else f"{short(first)}-{short(last)}"


def findings(outcome: Outcome) -> str | None:
    """How many findings of which kind are where."""
    totals: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    for of_check in outcome.findings.values():
        for (kind, place), number in of_check.counts.items():
            totals[place] += number
            kinds.setdefault(kind, Counter())[place] += number
    if not totals:
        return None
    places = [place for place, _ in totals.most_common(12)][::-1]
    figure, axes = _figure(10, 1.2 + 0.28 * len(places))
    left = [0] * len(places)
    for (kind, counts), color in zip(sorted(kinds.items()), (BAD, *_COLORS, *_COLORS), strict=False):
        values = [counts[place] for place in places]
        axes.barh(places, values, left=left, color=color, label=kind)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("findings")
    axes.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside right upper", fontsize=8)
    return _svg(figure, "findings")


def chunks(outcome: Outcome) -> str | None:
    """Every table a row, every chunk of its keys a cell: equal, different, or without rows."""
    tables = outcome.contents.tables if outcome.contents else []
    tables = sorted(tables, key=lambda table: (-_differing(table), table.table))[:_CHUNK_ROWS_MAX]
    if not tables:
        return None
    wide = max((chunk.chunk for table in tables for chunk in table.chunks), default=0) + 1
    cells = [[0] * wide for _ in tables]
    for row, table in zip(cells, tables, strict=True):
        for chunk in table.chunks:
            row[chunk.chunk] = 2 if chunk.differing else 1
    figure, axes = _figure(10, 0.9 + 0.24 * len(tables))
    colors = ListedColormap([_NOTHING, GOOD, BAD])
    axes.pcolormesh(cells, cmap=colors, vmin=0, vmax=2, edgecolors="white", linewidth=1)
    axes.set_yticks([n + 0.5 for n in range(len(tables))], [table.table for table in tables])
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.set_xlabel(f"{wide} chunks of the keys (green: equal, red: different, grey: no rows)")
    return _svg(figure, "chunks")


def _differing(table: TableOutcome) -> int:
    return sum(chunk.differing for chunk in table.chunks)


def duration(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds} s"


def short(number: int) -> str:
    """1.2 M, 12 k, 345."""
    for size, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return str(number)
