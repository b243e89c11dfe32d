"""Way: the stages that a change passes, as a picture, with how far behind each of them is.

In     stages in their order
Out    inline SVG, one lying for a screen and one standing for a phone; the style shows one of them
Holds  all that is drawn is said in words too, for who cannot see it
Tests  tests/common/page/test_way.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.page.markup import Markup, clipped, element
from tidb_binlog.quantities import span

STYLE: Final = """
.way .tall{display:none}.way svg{display:block}
.way rect{fill:var(--back);stroke:var(--line);stroke-width:1.5}
.way .held rect{stroke:var(--bad);stroke-width:3}
.way .bar{stroke:none;fill:var(--link)}.way .held .bar{stroke:none;fill:var(--bad)}
.way text{fill:var(--ink);font-size:14px}.way .name{font-weight:600}
.way .note{fill:var(--soft);font-size:12px}.way .held .lag{fill:var(--bad);font-weight:600}
.way path{stroke:var(--soft);stroke-width:2;fill:none}
@media (max-width:720px){.way .tall{display:block}.way .flat{display:none}}
"""
WORTH_S: Final = 2.0
"""A stage that holds less is not marked: an idle stream has a little of everything."""
_NOTE_CHARS_MAX: Final = 24
_WIDTH: Final = 172
_HEIGHT: Final = 84
_GAP: Final = 30
_TALL_WIDTH: Final = 320
_TALL_GAP: Final = 22
_EDGE: Final = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """`lag_s`: what the stage adds to the lag, None where nobody says. `note`: a few words."""

    name: str
    lag_s: float | None
    note: str

    @property
    def lag_text(self) -> str:
        return "unknown" if self.lag_s is None else span(self.lag_s)


def picture(stages: Sequence[Stage], caption: str) -> Markup:
    """`caption`: what the seconds are."""
    said = ", ".join(f"{stage.name} {stage.lag_text} ({stage.note})" for stage in stages)
    held = _held(stages)
    if held is not None:
        said += f"; most of it in {stages[held].name}"
    return element(
        "figure",
        element("figcaption", caption),
        _svg("flat", stages, held, f"{caption}: {said}"),
        _svg("tall", stages, held, f"{caption}: {said}"),
        class_="way",
    )


def _held(stages: Sequence[Stage]) -> int | None:
    """The stage that holds the most, where that is worth a mark."""
    lags = [stage.lag_s or 0.0 for stage in stages]
    largest = max(lags, default=0.0)
    return lags.index(largest) if largest >= WORTH_S else None


def _svg(kind: str, stages: Sequence[Stage], held: int | None, label: str) -> Markup:
    tall = kind == "tall"
    width, gap = (_TALL_WIDTH, _TALL_GAP) if tall else (_WIDTH, _GAP)
    step = (_HEIGHT if tall else width) + gap
    length = step * len(stages) - gap + 2 * _EDGE
    across = (width if tall else _HEIGHT) + 2 * _EDGE
    box = f"0 0 {across} {length}" if tall else f"0 0 {length} {across}"
    return element(
        "svg",
        *_stages(stages, held, tall=tall, width=width, step=step),
        viewBox=box,
        class_=kind,
        role="img",
        aria_label=label,
    )


def _stages(
    stages: Sequence[Stage], held: int | None, *, tall: bool, width: int, step: int
) -> Iterator[Markup]:
    total_s = sum(stage.lag_s or 0.0 for stage in stages)
    for number, stage in enumerate(stages):
        x, y = (_EDGE, _EDGE + number * step) if tall else (_EDGE + number * step, _EDGE)
        share = (stage.lag_s or 0.0) / total_s if total_s else 0.0
        yield element(
            "g",
            element("rect", x=x, y=y, width=width, height=_HEIGHT, rx=8),
            _words(x + 12, y + 24, stage.name, "name"),
            _words(x + 12, y + 44, stage.lag_text, "lag"),
            _words(x + 12, y + 62, clipped(stage.note, _NOTE_CHARS_MAX), "note"),
            element(
                "rect", x=x + 12, y=y + 71, width=round((width - 24) * share, 1), height=5, rx=2, class_="bar"
            ),
            class_="held" if number == held else None,
        )
        if number + 1 < len(stages):
            yield element("path", d=_arrow(x, y, tall=tall, width=width))


def _words(x: int, y: int, words: str, kind: str) -> Markup:
    return element("text", words, x=x, y=y, class_=kind)


def _arrow(x: int, y: int, *, tall: bool, width: int) -> str:
    """From a stage to the next one."""
    if tall:
        middle, begin = x + width // 2, y + _HEIGHT + 3
        end = begin + _TALL_GAP - 6
        return f"M{middle} {begin}V{end}M{middle - 5} {end - 6}L{middle} {end}L{middle + 5} {end - 6}"
    middle, begin = y + _HEIGHT // 2, x + width + 4
    end = begin + _GAP - 8
    return f"M{begin} {middle}H{end}M{end - 6} {middle - 5}L{end} {middle}L{end - 6} {middle + 5}"
