"""Drawing: boxes, balls, lines and words as one SVG, for light and dark pages.

Out   text of an SVG without anything from outside; its words are text
Holds what does not fit into its box or the drawing is an error

Tests  tests/architecture/test_generated_pages.py, tests/docs/test_site.py
"""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

_STYLE: Final = """  <style>
    svg { color: #1f2328; }
    text { fill: currentColor; }
    .small { font-size: 12px; opacity: .85; }
    .bold { font-weight: 600; }
    .code { font: 12px ui-monospace, monospace; }
    .box { fill: currentColor; fill-opacity: .05; stroke: currentColor; stroke-opacity: .55; }
    .ours { fill: #3f51b5; fill-opacity: .14; stroke: #3f51b5; }
    .done { fill: #43a047; fill-opacity: .25; stroke: #43a047; }
    .wait { fill: #fb8c00; fill-opacity: .16; stroke: #fb8c00; stroke-dasharray: 4 3; }
    .gone { fill: #e53935; fill-opacity: .14; stroke: #e53935; }
    .way { fill: none; stroke: currentColor; stroke-opacity: .75; stroke-width: 1.5; }
    .faint { fill: none; stroke: currentColor; stroke-opacity: .3; }
    .mark { stroke: #3f51b5; stroke-width: 3; }
    .tip { fill: currentColor; }
    @media (prefers-color-scheme: dark) {
      svg { color: #e6edf3; }
      .ours { fill: #8c9eff; }
      .ours, .mark { stroke: #8c9eff; }
    }
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">\
<path class="tip" d="M0 0 8 4 0 8Z"/></marker></defs>"""
_LETTER: Final = {"": 7.4, "bold": 8.0, "small": 6.4, "code": 7.3}
_LINE: Final = 18


class Drawing:
    """`says`: the title, and below it the description, which a screen reader reads out."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self._size = (width, height)
        title, _, description = says.partition("\n\n")
        self._head = (title.removesuffix("."), " ".join(description.split()))
        self._parts: list[str] = []

    def words(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text; `kind` is "", "small", "bold" or "code"."""
        wide = len(text) * _LETTER[kind]
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        if left < 0 or left + wide > self._size[0] or not 0 < y < self._size[1]:
            raise ValueError(f"{text!r} leaves the drawing: {left:.0f} to {left + wide:.0f}")
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{kind}" {place}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """A box with lines in its middle: the first one larger, but for those of code."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
        )
        top = y + height / 2 - _LINE * len(lines) / 2 + 13.5
        for number, line in enumerate(lines):
            size = "small" if number else ""
            if len(line) * _LETTER[size] > width:
                raise ValueError(f"{line!r} is wider than its box")
            self.words(x + width / 2, top + number * _LINE, line, size, "middle")

    def ball(self, x: float, y: float, text: str, kind: str) -> None:
        self._parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="12"/>')
        self.words(x, y + 4, text, "small", "middle")

    def line(self, *points: tuple[float, float], kind: str = "faint") -> None:
        """Through the points; of kind "way" it is an arrow."""
        tip = ' marker-end="url(#tip)"' if kind == "way" else ""
        path = "M" + " ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="{kind}"{tip} d="{path}"/>')

    def svg(self) -> str:
        """The whole file."""
        width, height = self._size
        title, description = map(escape, self._head)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            ' role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="14">\n'
            f'  <title id="t">{title}</title>\n  <desc id="d">{description}</desc>\n'
        )
        return head + _STYLE + "\n  " + "\n  ".join(self._parts) + "\n</svg>\n"
