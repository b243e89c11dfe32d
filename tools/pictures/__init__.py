"""Pictures of the documentation. Each function's docstring is its picture's title and description.

    python -m tools.pictures    after a change of what they show; the test says when it was forgotten

Tests  tests/architecture/test_generated_pages.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.pictures import by_code, plain
from tools.pictures.drawing import Drawing

ROOT: Final = Path(__file__).parents[2]
_DRAWN: Final[dict[str, tuple[Callable[[Drawing], None], int, int]]] = {
    "merging": (by_code.merging, 820, 596),
    "lanes": (by_code.lanes, 880, 354),
    "marks": (by_code.marks, 880, 348),
    "ddl-waits": (plain.ddl_waits, 880, 236),
    "one-moment": (plain.one_moment, 880, 302),
    "relay-log": (plain.relay_log, 880, 286),
    "failover": (plain.failover, 880, 262),
}


def files() -> dict[str, str]:
    """Texts by path below the root of the project."""
    texts = {}
    for name, (draw, width, height) in _DRAWN.items():
        drawing = Drawing(width, height, draw.__doc__ or "")
        draw(drawing)
        texts[f"docs/assets/{name}.svg"] = drawing.svg()
    return texts
