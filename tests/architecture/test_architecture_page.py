"""docs/architecture.md: its drawings parse, what it names exists, its state tables are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from common.cluster import node
from pump.membership.close_conditions import Stage
from pumpclient.pumps import health
from tests.architecture.source import ROOT

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
FLOWS = ("Write", "Pull", "Row", "DDL", "Relay and recovery", "Archive to Spark")
DRAWINGS = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
NODE = re.compile(r'  (\w+)\["([^"\[\]{}|]+)"\]')
EDGE = re.compile(r"  (\w+) -->(?:\|[^|\"]+\|)? (\w+)")
PATH = re.compile(r"(?:common|pump|pumpclient|drainer|deploy|tests|docs)/[\w./]*")


def test_each_flow_is_drawn() -> None:
    headings = re.findall(r"^### (.+?): .*\n\n```mermaid$", TEXT, re.MULTILINE)
    assert tuple(headings) == FLOWS
    assert len(DRAWINGS) == len(FLOWS)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=FLOWS)
def test_drawings_are_mermaid(drawing: str) -> None:
    """The part of Mermaid's grammar that is used: a flowchart, boxes with text, arrows between boxes."""
    first, *lines = drawing.splitlines()
    assert first == "flowchart LR"
    boxes, ends = set(), set()
    for line in lines:
        if box := NODE.fullmatch(line):
            assert box[1] not in boxes, f"{box[1]} is drawn twice"
            assert box[1] not in ("end", "graph", "subgraph"), "a word of the grammar"
            boxes.add(box[1])
        else:
            edge = EDGE.fullmatch(line)
            assert edge, f"not understood: {line}"
            ends |= {edge[1], edge[2]}
    assert ends == boxes, "every arrow joins boxes, and no box stands alone"


def test_what_is_named_exists() -> None:
    named = set(PATH.findall(TEXT))
    assert len(named) > 30
    for path in sorted(named):
        assert (ROOT / path).exists(), f"{PAGE.name} names {path}"
        assert path.endswith("/") == (ROOT / path).is_dir(), f"{path}: folders end with a slash, files do not"
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (PAGE.parent / link).exists(), f"{PAGE.name} links to {link}"


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading, the first one its names."""
    section = TEXT.split(f"### {heading}\n")[1].split("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:])]


def transitions(heading: str) -> dict[tuple[str, str], str]:
    """(state, event) -> state, as the page has it."""
    (_, *events), *rows = table(heading)
    return {
        (state, event): after
        for state, *cells in rows
        for event, after in zip(events, cells, strict=True)
        if after != "-"
    }


@pytest.mark.parametrize(
    ("heading", "code"),
    [
        ("Node lifecycle", node.LIFECYCLE),
        (
            "Pump health",
            {(state.value, event.value): after.value for (state, event), after in health.TABLE.items()},
        ),
    ],
)
def test_state_tables_are_those_of_the_code(heading: str, code: Mapping[tuple[str, str], str]) -> None:
    assert transitions(heading) == dict(code)


def test_stages_of_a_close_are_those_of_the_code() -> None:
    assert [row[0] for row in table("Closing of a pump")[1:]] == [stage.value for stage in Stage]
