"""docs/architecture.md: its drawings parse, what it names exists, its state tables are those of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType

import pytest

from drainer.checkpoint import resume, safe_mode
from drainer.checkpoint.resume import DrainerState, StarterInfo, StoredState
from drainer.checkpoint.value import Checkpoint
from drainer.ddl.quarantine import queue_state
from drainer.mysql.rows.change import Position
from pump.membership.close_conditions import Stage
from pumpclient.pumps import health
from tests.architecture.source import ROOT
from tidb_binlog.cluster import node

PAGE = ROOT / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
FLOWS = (
    *("Write", "Publish", "Pull", "Row", "Subscribe", "DDL", "Relay and recovery"),
    *("Load", "Verify", "Restore", "Archive to Spark"),
)
DRAWINGS = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
NODE = re.compile(r'  (\w+)\["([^"\[\]{}|]+)"\]')
EDGE = re.compile(r"  (\w+) -->(?:\|[^|\"]+\|)? (\w+)")
TOPS = ("common", "pump", "pumpclient", "drainer", "deploy", "tools")
PATH = re.compile(r"(?:common|pump|pumpclient|drainer|deploy|tests|tools|docs)/[\w./]*")


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


def test_every_folder_is_on_the_map() -> None:
    rows = re.findall(r"^\| `([\w/]+/)` \| ", TEXT.split("## Map\n")[1].split("\n## ")[0], re.MULTILINE)
    folders = {f"{path.parent.relative_to(ROOT)}/" for top in TOPS for path in (ROOT / top).rglob("*.py")}
    assert sorted(rows) == sorted(folders)


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
        (
            "Queue of a waiting DDL",
            {
                (state.name, event.name): after.name
                for (state, event), after in queue_state.TRANSITIONS.items()
            },
        ),
    ],
)
def test_state_tables_are_those_of_the_code(heading: str, code: Mapping[tuple[str, str], str]) -> None:
    assert transitions(heading) == dict(code)


def test_stages_of_a_close_are_those_of_the_code() -> None:
    assert [row[0] for row in table("Closing of a pump")[1:]] == [stage.value for stage in Stage]


@pytest.mark.parametrize(("heading", "module"), [("Resume", resume), ("Safe mode", safe_mode)])
def test_tables_of_cases_are_those_of_the_modules(heading: str, module: ModuleType) -> None:
    """The module's docstring has the same table, in columns that two blanks or more set apart."""
    assert module.__doc__
    lines = [line.strip() for line in module.__doc__.splitlines() if line.startswith("    ")]
    assert [re.split(r" {2,}", line) for line in lines if "  " in line] == table(heading)


INITIAL_TS, ROW_TS, OUR_TS, LANE_TS, NOW_TS = 2, 5, 6, 7, 9
OURS = DrainerState(2, "", Checkpoint(OUR_TS, False, 1, 2), None)
STORED = {
    ("none", "none"): StoredState(None),
    ("none", "any"): StoredState(None, OURS, (Position(LANE_TS),)),
    ("without `epoch`", "any"): StoredState(Checkpoint(ROW_TS, False, 1), OURS, (Position(LANE_TS),)),
    ("with `epoch`", "no checkpoint"): StoredState(
        Checkpoint(ROW_TS, False, 1, 2), DrainerState(2, "", None, None), (Position(LANE_TS),)
    ),
    ("of a newer epoch, or not what we stored", "any"): StoredState(
        Checkpoint(ROW_TS, False, 1, 3), OURS, (Position(LANE_TS),)
    ),
    ("the same, on a server of its own", "any"): StoredState(
        Checkpoint(ROW_TS, False, 1, 3), OURS, (Position(LANE_TS),), elsewhere=True
    ),
    ("what we stored", "any"): StoredState(Checkpoint(OUR_TS, False, 1, 2), OURS, (Position(LANE_TS),)),
}
BEGINS = {
    "`initial_ts`": (INITIAL_TS, INITIAL_TS, 0),
    "the lanes, our checkpoint": (LANE_TS, OUR_TS, 0),
    "the row, safe mode up to now": (ROW_TS, ROW_TS, NOW_TS),
}


def test_a_start_begins_where_the_page_says() -> None:
    _, *rows = table("Resume")
    assert [(row[0], row[1]) for row in rows] == list(STORED)
    for row, state, written_by, begins in rows:
        start = resume.resume_point(STORED[row, state], StarterInfo(1, 1, INITIAL_TS, NOW_TS))
        assert start.foreign is (written_by == "another program"), row
        found = start.positions[0].commit_ts, start.floor_ts, start.safe_mode.until_ts
        assert found == BEGINS[begins], row


def test_safe_mode_ends_where_the_page_says() -> None:
    """Each row of the page, in its order: the last timestamp that is covered, None if all are."""
    stored_ts, relay_end_ts = 7, 4
    by_us = safe_mode.SafeMode.at_start(stored_ts, NOW_TS, foreign=False)
    by_another = safe_mode.SafeMode.at_start(0, NOW_TS, foreign=True)
    cases = {
        "0: nothing is": (safe_mode.SafeMode(), 0),
        "`safe-until`": (by_us, stored_ts),
        "0: lanes know what they applied": (safe_mode.SafeMode.at_start(0, NOW_TS, foreign=False), 0),
        "the timestamp drawn at the start": (by_another, NOW_TS),
        "the end of the relay log at most": (by_another.until(relay_end_ts), relay_end_ts),
        "every commit_ts": (by_us.if_set(always=True), None),
    }
    assert [row[2] for row in table("Safe mode")[1:]] == list(cases)
    for case, (mode, last_ts) in cases.items():
        for commit_ts in range(1, 12):
            assert mode.covers(commit_ts) is (last_ts is None or commit_ts <= last_ts), case
