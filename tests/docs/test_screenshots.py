"""Screenshots: docs show the files that the command makes, all of them, and they are small."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.common.page.support.reading import read
from tools.screenshots import chromium
from tools.screenshots.__main__ import ASSETS, main
from tools.screenshots.scenes import PICTURES

BYTES_MAX = 300 * 1024
SHOWN = re.compile(r"!\[([^\]]*)\]\((?:docs/)?assets/screenshots/([\w-]+)\.png\)")


def width(path: Path) -> int:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n"), path
    found: int = struct.unpack(">I", data[16:20])[0]
    return found


def test_docs_show_what_the_command_makes_and_say_what_is_seen() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = [found for page in pages for found in SHOWN.findall(page.read_text(encoding="utf-8"))]
    names = {picture.name for picture in PICTURES}
    assert {name for _, name in shown} == names
    assert {path.name for path in ASSETS.iterdir()} == {f"{name}.png" for name in names}
    assert all(len(said) > 40 for said, _ in shown), "who cannot see it reads what is seen"
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < BYTES_MAX
    assert "make screenshots" in (ROOT / "docs" / "status-page.md").read_text(encoding="utf-8")
    assert "\nscreenshots: setup\n\t$(PY) -m tools.screenshots\n" in (ROOT / "Makefile").read_text()


def test_a_picture_is_of_a_page_that_has_what_it_is_for() -> None:
    for made in PICTURES:
        headings = [one.text for one in read(made.html()).named("h2")]
        assert not made.top or made.top in headings
    drainer, progress, cluster, phone = (read(made.html()) for made in PICTURES)
    assert len(drainer.part("hour").named("svg")) == 3
    assert {"Load", "Last verify"} <= {one.text for one in progress.named("h2")}
    assert len(cluster.named("article")) == len(phone.named("article")) == 5


@pytest.mark.skipif(chromium.found() is None, reason="no Chromium here: apt-get install chromium")
def test_the_command_makes_them(tmp_path: Path) -> None:
    assert main(tmp_path / "made") == 0
    made = sorted((tmp_path / "made").iterdir())
    assert [path.name for path in made] == sorted(path.name for path in ASSETS.iterdir())
    for path in made:
        assert width(path) == width(ASSETS / path.name)
        assert 5_000 < path.stat().st_size < BYTES_MAX / 2
