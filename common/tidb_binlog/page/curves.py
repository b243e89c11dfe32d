"""Curves: the last hour of a node as three small pictures.

Out    inline SVG, from 0 at its bottom to the highest value, from the first known value, or PLACES_MIN places
       ago, to now; a place of which nothing is known is left out
Holds  all that is drawn is said in words too: now, the highest, of the disk the lowest
Tests  tests/common/page/test_curves.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidb_binlog.cluster.registry import PUMPS
from tidb_binlog.page.markup import Markup, element, join
from tidb_binlog.quantities import UP_TO_DATE, size, span
from tidb_binlog.status.history import EVERY_S, PLACES, History, pieces

STYLE: Final = """
.hour{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(260px,100%),1fr));gap:14px}
.hour figcaption{display:flex;justify-content:space-between;gap:10px}
.hour svg{display:block;height:72px;border-bottom:1px solid var(--line)}
.hour path{fill:none;stroke:var(--link);stroke-width:1.5}.hour .area{fill:var(--link);stroke:none;opacity:.16}
.hour .ends{display:flex;justify-content:space-between;gap:10px;font-size:12px;margin:4px 0 0}
"""
_HEIGHT: Final = 60
PLACES_MIN: Final = 30
BEHIND_MIN_S: Final = 2.0
PER_S_MIN: Final = 10.0
"""The height of a picture is at least that of so much: nothing worth a look does not fill it."""


def section(past: History, kind: str) -> Markup:
    counted = "Binlogs stored a second" if kind == PUMPS else "Rows applied a second"
    each_runs = (pieces(curve) for curve in (past.behind_s, past.per_s, past.free_bytes))
    begin = min([PLACES - PLACES_MIN, *(runs[0][0][0] for runs in each_runs if runs)])
    return element(
        "div",
        _figure("Behind the upstream", past.behind_s, _behind, max, begin, BEHIND_MIN_S),
        _figure(counted, past.per_s, lambda value: f"{value:,.0f}", max, begin, PER_S_MIN),
        _figure("Disk free", past.free_bytes, lambda value: size(int(value)), min, begin, 1.0),
        class_="hour",
    )


def _behind(seconds: float) -> str:
    return span(seconds) if seconds else UP_TO_DATE


def _figure(
    title: str,
    curve: Sequence[float],
    text: Callable[[float], str],
    worst: Callable[[Sequence[float]], float],
    begin: int,
    least: float,
) -> Markup:
    """`worst`: of all values, the one that is said beside the last one. `begin`: the first place that is
    drawn, `least`: what the height stands for at least."""
    since = span((PLACES - begin) * EVERY_S)
    runs = pieces(curve)
    values = [value for run in runs for _, value in run]
    now = text(runs[-1][-1][1]) if runs and runs[-1][-1][0] == len(curve) - 1 else "unknown"
    bound = worst(values) if values else 0.0
    extreme = f"{'at most' if worst is max else 'at least'} {text(bound)}" if bound else ""
    highest = max([*values, least])
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
            viewBox=f"{begin} -2 {PLACES - 1 - begin} {_HEIGHT + 2}",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{title}: {', '.join(filter(None, (now, extreme)))}",
        ),
        element(
            "p", *(element("span", said) for said in (f"{since} ago", extreme, "now")), class_="ends soft"
        ),
    )


def _line(run: Sequence[tuple[int, float]]) -> Markup:
    """A run of one place is as wide as a place. Of any length: no text of others is in it."""
    (place, y), *rest = run if len(run) > 1 else [(run[0][0] - 1, run[0][1]), *run]
    return Markup(f"M{place} {y:g}" + "".join(f"L{x} {at:g}" for x, at in rest))
