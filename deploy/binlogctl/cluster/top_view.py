"""Top view: which nodes stand where, and which lines of the page a small terminal shows.

Out    the next view; the nodes in its order; the lines that are in the window
Holds  the window never leaves the page, whatever the page has become since
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidb_binlog.cluster.overview import NodeLine, Overview
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.quantities import span

SORTS: Final[Mapping[str, Callable[[NodeLine], Any]]] = {
    "name": lambda line: (),
    "address": lambda line: line.address,
    # what needs somebody first: dead, without an answer, in a state that passes
    "state": lambda line: (line.alive is not False, line.answers, line.state == "online", line.state),
    "behind": lambda line: (line.behind_s is None, -(line.behind_s or 0.0)),
}
"""What `-sort` and the keys choose from. Names decide between equals."""

SEQUENCES: Final[Mapping[str, str]] = {
    **{f"\x1b{mark}A": "up" for mark in "[O"},
    **{f"\x1b{mark}B": "down" for mark in "[O"},
    **{f"\x1b{mark}H": "home" for mark in "[O"},
    **{f"\x1b{mark}F": "end" for mark in "[O"},
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "k": "up",
    "j": "down",
    "g": "home",
    "G": "end",
    "b": "page up",
    " ": "page down",
}
_UNFINISHED: Final = re.compile(r"\x1b(?:[\[O][0-9;]*)?")
_ONE_KEY: Final = re.compile(rf"\x1b[\[O][0-9;]*[A-Za-z~]|{_UNFINISHED.pattern}\Z|.", re.DOTALL)


CURVE: Final = 30
"""Looks that a curve shows."""


@dataclass(frozen=True, slots=True)
class View:
    """`first` is the line of the page that the window begins with."""

    sort: str = "name"
    is_reversed: bool = False
    first: int = 0
    is_over: bool = False


class Past:
    """What was seen of each drainer: how far it was behind, and how many rows a second it applied."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def note(self, seen: Overview) -> None:
        """One more look; a drainer that is not there any more is forgotten."""
        lines = {
            line.node_id: (line.behind_s, line.rows_per_s or 0.0)
            for line in seen.nodes
            if line.kind == DRAINERS and line.behind_s is not None
        }
        self._seen = {node_id: self._seen.get(node_id, deque(maxlen=CURVE)) for node_id in lines}
        for node_id, (behind_s, rows_per_s) in lines.items():
            self._seen[node_id].append((behind_s, rows_per_s))

    def curves(self) -> list[tuple[str, ...]]:
        """Of each drainer: the lag and the rows as curves, with their highest values."""
        shown: list[tuple[str, ...]] = []
        for node_id, looks in sorted(self._seen.items()):
            behind_s, rows_per_s = zip(*looks, strict=True)
            lag = curve(behind_s, CURVE), span(max(behind_s))
            shown.append((node_id, *lag, curve(rows_per_s, CURVE), f"{max(rows_per_s):,.0f}"))
        return shown


def keys(typed: str) -> tuple[list[str], str]:
    """The keys of what was typed, and the beginning of one that is not all there yet."""
    sequences = _ONE_KEY.findall(typed)
    rest = sequences.pop() if sequences and _UNFINISHED.fullmatch(sequences[-1]) else ""
    return [SEQUENCES.get(sequence, sequence) for sequence in sequences], rest


def pressed(view: View, key: str, lines: int, window: int) -> View:
    """After one key. `window`: how many of the page's lines are seen at once."""
    if key in ("q", "Q"):
        return dataclasses.replace(view, is_over=True)
    if key == "s":
        following = [*SORTS, *SORTS][list(SORTS).index(view.sort) + 1]
        return dataclasses.replace(view, sort=following, is_reversed=False)
    if key == "r":
        return dataclasses.replace(view, is_reversed=not view.is_reversed)
    steps = {
        "up": -1,
        "down": 1,
        "page up": 1 - window,
        "page down": window - 1,
        "home": -lines,
        "end": lines,
    }
    return within(dataclasses.replace(view, first=view.first + steps.get(key, 0)), lines, window)


def within(view: View, lines: int, window: int) -> View:
    """With its window inside the page."""
    return dataclasses.replace(view, first=max(0, min(view.first, lines - window)))


def ordered(seen: Overview, view: View) -> Overview:
    """The same, its nodes in the view's order."""
    rank = SORTS[view.sort]
    nodes = sorted(seen.nodes, key=lambda line: line.node_id)
    nodes = sorted(nodes, key=rank)
    if view.is_reversed:
        nodes.reverse()
    return dataclasses.replace(seen, nodes=tuple(nodes))


def bar(view: View, seen: Overview | None, lines: int, window: int) -> str:
    """The line below the page: what is wrong, which may be out of sight, what is seen of it, and the keys."""
    counts = Counter(trouble.severity for trouble in seen.troubles) if seen else Counter[str]()
    wrong = "".join(f"{number} {name}{'s' * (number > 1)}, " for name, number in sorted(counts.items()))
    order = f"by {view.sort}{', reversed' if view.is_reversed else ''}"
    last = min(lines, view.first + window)
    part = f"lines {view.first + 1}-{last} of {lines}, " if lines > window else ""
    return f"{wrong}{part}{order}  s: sort  r: reverse  up/down, page up/down: scroll  q: end"


# Bars: numbers as a terminal draws them: a bar of parts, a curve, a place between two ends.

_EIGHTHS: Final = "▁▂▃▄▅▆▇█"
COLOURS: Final = ("blue", "magenta", "yellow", "cyan", "red")
"""Of parts, in their order."""


def stacked(parts: Mapping[str, float], width: int) -> list[tuple[str, int]]:
    """How many of `width` columns each part has, in its order; a part that is there at all has one."""
    total = sum(parts.values())
    if total <= 0:
        return []
    columns = {name: max(1, round(width * part / total)) for name, part in parts.items() if part > 0}
    while sum(columns.values()) > max(width, len(columns)):
        columns[max(columns, key=columns.__getitem__)] -= 1
    return list(columns.items())


def curve(values: Sequence[float], width: int) -> str:
    """The last `width` values from 0 to the highest one, which has a full column."""
    shown = values[-width:]
    highest = max(shown, default=0.0)
    if highest <= 0:
        return _EIGHTHS[0] * len(shown)
    return "".join(_EIGHTHS[min(7, int(max(0.0, value) / highest * 7.999))] for value in shown)


def between(left: float, right: float, width: int) -> str:
    """A mark as far from the left end as `left` is, and from the right end as `right`."""
    whole = left + right
    at = round((width - 1) * max(0.0, left) / whole) if whole > 0 else width - 1
    return "━" * at + "◆" + "─" * (width - 1 - at)
