"""The documentation as a whole: every page is in the navigation, every link leads somewhere.

`make docs` builds the site and says the same; here nothing has to be installed for it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.architecture.source import ROOT
from tests.cases import case
from tests.docs.pages import PAGES
from tools.site import links

TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in (*PAGES, "README.md")}
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
GROUP_ENTRIES_MAX = 8


def test_every_page_is_in_the_navigation_once() -> None:
    named = Counter(f"docs/{name}" for name in re.findall(r"^ +- (?:[^\n:]+: )?(\S+\.md)$", NAVIGATION, re.M))
    assert sorted(named) == PAGES
    assert set(named.values()) == {1}


def test_a_group_of_the_navigation_has_eight_entries_at_most() -> None:
    groups: Counter[str] = Counter()
    above: dict[int, str] = {}
    for indent, name in re.findall(r"^( +)- ([^\n:]+):", NAVIGATION, re.M):
        above[len(indent)] = name
        groups[above.get(len(indent) - 4, "the navigation itself")] += 1
    assert set(groups) > {"Run", "API"}
    assert {name: entries for name, entries in groups.items() if entries > GROUP_ENTRIES_MAX} == {}


def test_links_of_a_page_lead_somewhere() -> None:
    for page in TEXTS:
        with case(page):
            for target in links.targets(TEXTS[page]):
                path, heading = links.resolve(page, target)
                assert (ROOT / path).is_file(), f"{page} links to {target}"
                if heading:
                    assert path.endswith(".md"), f"{page} links to {target}"
                    anchors = links.headings((ROOT / path).read_text(encoding="utf-8"))
                    assert anchors.count(heading) == 1, f"{page} links to {target}"


def test_a_page_begins_with_its_title_and_needs_no_other_host() -> None:
    for page in PAGES:
        with case(page):
            text = links.FENCE.sub("", TEXTS[page])
            assert text.startswith("# ")
            assert len(re.findall(r"^# ", text, re.M)) == 1
            assert not re.search(r"!\[[^\]]*\]\(https?:|<(?:img|script|link)\b[^>]*https?:", text)


def test_the_site_names_no_other_host_and_its_flows_are_drawn() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^  font: false$", settings, re.M)
    assert not re.search(r"https?://", settings)
    assert "strict: true" in settings
    assert "class: mermaid\n          format: !!python/name:pymdownx.superfences.fence_code" in settings


def test_the_build_fails_at_a_warning() -> None:
    """Quiet, mkdocs would not count what it does not say."""
    (line,) = re.findall(r"^\t.* -m mkdocs build.*$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert "--strict" in line
    assert "quiet" not in line
    assert " -q" not in line


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "assets").glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_can_be_read_by_everybody(path: Path) -> None:
    """It is on a page with words for it, its text is text, and it has colours for a dark page."""
    assert any(re.search(rf"!\[[^\]]{{20,}}\]\([^)]*/?{path.name}\)", text) for text in TEXTS.values())
    namespace = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(path).getroot()
    assert root.attrib["role"] == "img"
    named = root.attrib["aria-labelledby"].split()
    assert [child.attrib.get("id") for child in root[:2]] == named
    assert [child.tag for child in root[:2]] == [f"{namespace}title", f"{namespace}desc"]
    assert len(list(root.iter(f"{namespace}text"))) > 5
    text = path.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|src)=|@import|url\((?!#)|<image|<script", text)
