"""Screenshots: the pages of an example's nodes, as a browser shows them, into docs/assets/screenshots.

    python -m tools.screenshots [DIRECTORY]

Needs Chromium (`apt-get install chromium`). The pages are made by what nodes make them with, from
`tools.screenshots.scenes`; a font of another machine makes other files, so they are not compared.

Tests   tests/docs/test_screenshots.py
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tools.screenshots import chromium
from tools.screenshots.scenes import PICTURES, Picture

COLOURS = 256
ASSETS = Path(__file__).parents[2] / "docs" / "assets" / "screenshots"


def shoot(browser: chromium.Browser, picture: Picture, directory: Path) -> Path:
    page = browser.page()
    page.look(width=picture.width, height=picture.height, dark=picture.dark)
    page.ask("Emulation.setScrollbarsHidden", hidden=True)
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(picture.html())
        file.flush()
        page.open(Path(file.name).as_uri())
        shown = page.picture(height=picture.height, top=picture.top)
    made = directory / f"{picture.name}.png"
    # A page has few colours: with a palette of them the file is a third of what the browser makes.
    Image.open(io.BytesIO(shown)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        made, optimize=True
    )
    return made


def main(directory: Path) -> int:
    if chromium.found() is None:
        print("no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    with chromium.running() as browser:
        for picture in PICTURES:
            made = shoot(browser, picture, directory)
            print(f"{made}: {made.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS))
