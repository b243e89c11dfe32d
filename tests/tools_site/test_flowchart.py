"""Drawings: every box and arrow of a flowchart is in its SVG, within its frame, and says what it is."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.architecture.test_architecture_page import DRAWINGS, FLOWS
from tidb_binlog.errors import ConfigError
from tools.site import flowchart

SVG = "{http://www.w3.org/2000/svg}"
CIRCLE = """\
flowchart LR
  a["First<br/>folder/"]
  b["Second"]
  c["Third & last"]
  a -->|asks| b
  b --> c
  a --> c
  c -->|answers| a
"""


def test_a_drawing_has_all_boxes_arrows_and_words() -> None:
    root = ElementTree.fromstring(flowchart.svg(CIRCLE, "A <title>"))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert texts == ["First", "folder/", "Second", "Third & last", "asks", "answers"]
    assert len(root.findall(f"{SVG}rect")) == 3
    assert len(root.findall(f"{SVG}path")) == 4
    assert root.findtext(f"{SVG}title") == "A <title>"
    assert root.findtext(f"{SVG}desc", "").count(" to ") == 4


def test_what_leads_on_is_below_and_a_circle_does_not_matter() -> None:
    root = ElementTree.fromstring(flowchart.svg(CIRCLE, "t"))
    tops = [float(box.attrib["y"]) for box in root.findall(f"{SVG}rect")]
    assert tops == sorted(set(tops))


@pytest.mark.parametrize("source", DRAWINGS, ids=FLOWS)
def test_the_pages_drawings_lie_within_their_frames_and_boxes_apart(source: str) -> None:
    root = ElementTree.fromstring(flowchart.svg(source, "t"))
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    places = []
    for box in root.findall(f"{SVG}rect"):
        x, y, wide, high = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= width
        assert y + high <= height
        assert all(
            x + wide <= left or left + w <= x or y + high <= top or top + h <= y for left, top, w, h in places
        )
        places.append((x, y, wide, high))


def test_two_drawings_of_a_page_have_no_id_in_common() -> None:
    ids = [set(re.findall(r' id="([^"]+)"', flowchart.svg(source, "t"))) for source in DRAWINGS]
    assert len(set().union(*ids)) == len(DRAWINGS)


@pytest.mark.parametrize(
    "source", ["sequenceDiagram\n", "flowchart LR\n  a --- b\n", 'flowchart LR\n  a["A"]\n  a --> b\n']
)
def test_what_is_not_understood_is_said(source: str) -> None:
    with pytest.raises(ConfigError, match=r"drawing|arrow"):
        flowchart.svg(source, "t")
