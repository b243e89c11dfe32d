"""Bars: numbers as a terminal draws them: a bar of parts, a curve, a place between two ends.

Out    one line of block characters, and of a bar of parts which part each of its pieces is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

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
