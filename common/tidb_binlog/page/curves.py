"""Curves: the last hour of a node as three small pictures.

In     a `History`, which kind of node it is of
Out    inline SVG, from 0 at its bottom to the highest value; a place of which nothing is known is left out
Holds  all that is drawn is said in words too: now, the highest, of the disk the lowest
Tests  tests/common/page/test_curves.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.page.markup import Markup, element, join
from tidb_binlog.page.template import size
from tidb_binlog.quantities import UP_TO_DATE, span
from tidb_binlog.status.history import EVERY_S, PLACES, History, pieces

STYLE: Final = """
.hour{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));gap:14px}
.hour figcaption{display:flex;justify-content:space-between;gap:10px}
.hour svg{display:block;height:72px;border-bottom:1px solid var(--line)}
.hour path{fill:none;stroke:var(--link);stroke-width:1.5}.hour .area{fill:var(--link);stroke:none;opacity:.16}
.hour .ends{display:flex;justify-content:space-between;gap:10px;font-size:12px;margin:4px 0 0}
"""
_HEIGHT: Final = 60
_SPAN: Final = span(PLACES * EVERY_S)


def section(past: History, kind: str) -> Markup:
    counted = "Binlogs stored a second" if kind == PUMPS else "Rows applied a second"
    return element(
        "div",
        _figure("Behind the upstream", past.behind_s, _behind, max),
        _figure(counted, past.per_s, lambda value: f"{value:,.0f}", max),
        _figure("Disk free", past.free_bytes, lambda value: size(int(value)), min),
        class_="hour",
    )


def _behind(seconds: float) -> str:
    return span(seconds) if seconds else UP_TO_DATE


def _figure(
    title: str,
    curve: Sequence[float],
    text: Callable[[float], str],
    worst: Callable[[Sequence[float]], float],
) -> Markup:
    """`worst`: of all values, the one that is said beside the last one."""
    runs = pieces(curve)
    values = [value for run in runs for _, value in run]
    now = text(runs[-1][-1][1]) if runs and runs[-1][-1][0] == len(curve) - 1 else "unknown"
    extreme = f"{'at most' if worst is max else 'at least'} {text(worst(values))}" if values else ""
    highest = max(values, default=0.0) or 1.0
    drawn = [[(place, round(_HEIGHT * (1 - value / highest), 1)) for place, value in run] for run in runs]
    return element(
        "figure",
        element("figcaption", element("span", title), element("span", now)),
        element(
            "svg",
            *(
                element("path", d=join(_line(run), f"V{_HEIGHT}H{run[0][0]}Z"), class_="area")
                for run in drawn
            ),
            *(element("path", d=_line(run), vector_effect="non-scaling-stroke") for run in drawn),
            viewBox=f"0 -2 {PLACES - 1} {_HEIGHT + 2}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{title}: {', '.join(filter(None, (now, extreme)))}",
        ),
        element(
            "p", *(element("span", said) for said in (f"{_SPAN} ago", extreme, "now")), class_="ends soft"
        ),
    )


def _line(run: Sequence[tuple[int, float]]) -> Markup:
    """A run of one place is a point as wide as a place. Of any length: no text of others is in it."""
    (place, y), *others = run
    rest = others or [(place + 1, y)]
    return Markup(f"M{place} {y:g}" + "".join(f"L{x} {at:g}" for x, at in rest))
