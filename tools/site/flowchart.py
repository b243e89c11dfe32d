"""Drawings of the pages as SVG, so that the site needs no script for them.

In    the part of Mermaid's flowcharts that our pages use: boxes with text, arrows with or without words
Out   one `<svg>` that takes its colours from the page, so it is readable in light and in dark
Why   Mermaid's own renderer is a script of three megabytes that pages would load from another host
Never guesses: a line that is not understood is an error with its text
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from html import escape
from itertools import pairwise
from typing import Final
from zlib import crc32

from tidb_binlog.errors import ConfigError

BOX: Final = re.compile(r'\s*(\w+)\["([^"]+)"\]')
ARROW: Final = re.compile(r"\s*(\w+) -->(?:\|([^|]+)\|)? (\w+)")
CHARACTER: Final = 6.9
"""Width of a character at 13 px of the fonts that browsers have; a little more than the widest of them."""
LINE: Final = 18
PADDING: Final = 12
BETWEEN_BOXES: Final = 24
BETWEEN_LAYERS: Final = 44
MARGIN: Final = 44


@dataclass(slots=True)
class Box:
    """A box: its lines of text, its layer from the top, and its place in pixels."""

    lines: tuple[str, ...]
    layer: int = 0
    left: float = 0.0
    top: float = 0.0

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * CHARACTER + 2 * PADDING if self.lines else PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + PADDING

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two boxes, by their names."""

    start: str
    end: str
    words: str
    through: tuple[str, ...] = ()
    """Boxes without text in the layers between its ends: room that it has for itself."""


@dataclass(slots=True)
class Chart:
    """What a drawing says."""

    tip: str
    """Id of its arrow's head: a page may have several drawings."""
    boxes: dict[str, Box] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)


def svg(source: str, title: str) -> str:
    """The drawing of a Mermaid flowchart; `ConfigError` for a line that is none of ours."""
    chart = parse(source)
    _layers(chart)
    _make_room(chart)
    width, height = _places(chart)
    parts = [_box(box) for box in chart.boxes.values() if box.lines]
    parts += [_arrow(chart, arrow, width) for arrow in chart.arrows]
    described = ", ".join(
        f"{chart.boxes[arrow.start].lines[0]} to {chart.boxes[arrow.end].lines[0]}" for arrow in chart.arrows
    )
    return (
        f'<svg class="flowchart" role="img" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' xmlns="http://www.w3.org/2000/svg" font-size="13" fill="currentColor">'
        f"<title>{escape(title)}</title><desc>{escape(described)}</desc>"
        f'<defs><marker id="{chart.tip}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
        f' orient="auto"><path d="M0 0 8 4 0 8Z"/></marker></defs>{"".join(parts)}</svg>'
    )


def parse(source: str) -> Chart:
    """Boxes and arrows, in the order in which they are written."""
    first, *lines = source.strip().splitlines()
    if first.split()[:1] != ["flowchart"]:
        raise ConfigError(f"a drawing begins with {first!r}", hint="begin it with: flowchart LR")
    chart = Chart(f"tip-{crc32(source.encode()):08x}")
    for line in lines:
        if box := BOX.fullmatch(line):
            chart.boxes[box[1]] = Box(tuple(re.split(r"<br ?/?>", box[2])))
        elif arrow := ARROW.fullmatch(line):
            chart.arrows.append(Arrow(arrow[1], arrow[3], arrow[2] or ""))
        else:
            raise ConfigError(f"a drawing has the line {line.strip()!r}", hint="boxes and arrows are drawn")
    for arrow_ in chart.arrows:
        for name in (arrow_.start, arrow_.end):
            if name not in chart.boxes:
                raise ConfigError(f"an arrow has the end {name!r}, which is no box", hint="draw the box")
    return chart


def _layers(chart: Chart) -> None:
    """Each box below all that lead to it. Arrows that close a circle lead back up, and count for nothing."""
    forward = list(_without_circles(chart))
    for _ in chart.boxes:
        for arrow in forward:
            start, end = chart.boxes[arrow.start], chart.boxes[arrow.end]
            end.layer = max(end.layer, start.layer + 1)


def _without_circles(chart: Chart) -> Iterable[Arrow]:
    below: dict[str, set[str]] = {name: {name} for name in chart.boxes}
    for arrow in chart.arrows:
        if arrow.start in below[arrow.end]:
            continue
        yield arrow
        for reached in below.values():
            if arrow.start in reached:
                reached |= below[arrow.end]


def _make_room(chart: Chart) -> None:
    """An arrow that passes layers gets a place of its own in each, so it crosses no box."""
    for number, arrow in enumerate(chart.arrows):
        passed = range(chart.boxes[arrow.start].layer + 1, chart.boxes[arrow.end].layer)
        through = tuple(f"{number} at {layer}" for layer in passed)
        for name, layer in zip(through, passed, strict=True):
            chart.boxes[name] = Box((), layer)
        chart.arrows[number] = replace(arrow, through=through)


def _places(chart: Chart) -> tuple[float, float]:
    """Layers from the top, each in the middle; width and height of it all."""
    layers: dict[int, list[str]] = {}
    for name, box in chart.boxes.items():
        layers.setdefault(box.layer, []).append(name)
    widths = {
        layer: sum(chart.boxes[name].width for name in names) + BETWEEN_BOXES * (len(names) - 1)
        for layer, names in layers.items()
    }
    width = max(widths.values())
    top = 4.0
    for layer, names in sorted(layers.items()):
        names.sort(key=lambda name: _pull(chart, name))
        left = (width - widths[layer]) / 2 + MARGIN
        for name in names:
            box = chart.boxes[name]
            box.left, box.top = left, top
            left += box.width + BETWEEN_BOXES
        top += max(chart.boxes[name].height for name in names) + BETWEEN_LAYERS
    return width + 2 * MARGIN, top - BETWEEN_LAYERS + 4


def _pull(chart: Chart, name: str) -> float:
    """Where the boxes above would have a box: in the middle below them."""
    layer = chart.boxes[name].layer
    above = [
        chart.boxes[upper].middle
        for arrow in chart.arrows
        for upper, lower in pairwise((arrow.start, *arrow.through, arrow.end))
        if lower == name and chart.boxes[upper].layer < layer
    ]
    return sum(above) / len(above) if above else 0.0


def _box(box: Box) -> str:
    text = "".join(
        f'<text x="{box.middle:.1f}" y="{box.top + PADDING / 2 + LINE * (number + 0.72):.1f}"'
        f' text-anchor="middle"{"" if number == 0 else " opacity=" + chr(34) + ".75" + chr(34)}>'
        f"{escape(line)}</text>"
        for number, line in enumerate(box.lines)
    )
    return (
        f'<rect x="{box.left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="5"'
        f' fill="currentColor" fill-opacity=".06" stroke="currentColor" stroke-opacity=".5"/>{text}'
    )


def _arrow(chart: Chart, arrow: Arrow, width: float) -> str:
    """A curve: down to a lower layer, round the outside to one that is not lower."""
    start, end = chart.boxes[arrow.start], chart.boxes[arrow.end]
    anchor = "middle"
    if end.layer > start.layer:
        stops = [chart.boxes[name] for name in (arrow.start, *arrow.through, arrow.end)]
        path = f"M{start.middle:.1f} {start.top + start.height:.1f}"
        for upper, lower in pairwise(stops):
            x1, y1, x2, y2 = upper.middle, upper.top + upper.height, lower.middle, lower.top
            bend = (y2 - y1) / 2
            path += f"L{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
        first = stops[1]
        words = ((start.middle + first.middle) / 2, (start.top + start.height + first.top) / 2 + 4)
    else:
        x1, y1 = start.left + start.width, start.top + start.height / 2
        x2, y2 = end.left + end.width, end.top + end.height / 2
        out = min(max(x1, x2) + MARGIN, width - 2)
        path = f"M{x1:.1f} {y1:.1f}C{out:.1f} {y1:.1f} {out:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        anchor, words = "end", (width - 2, (y1 + y2) / 2 + 4)
    stroke = 'fill="none" stroke="currentColor" stroke-opacity=".7"'
    line = f'<path d="{path}" {stroke} marker-end="url(#{chart.tip})"/>'
    if not arrow.words:
        return line
    return (
        f'{line}<text x="{words[0]:.1f}" y="{words[1]:.1f}" text-anchor="{anchor}" font-size="11"'
        f' font-style="italic" class="words">{escape(arrow.words)}</text>'
    )
