"""The files that Grafana loads are what the definitions say, and have the panels that people look for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.grafana import __main__ as dashboards
from tools.grafana.drainer import DRAINER
from tools.grafana.panels import TABLE, WIDTH, Dashboard, Panel, Row, document
from tools.grafana.pump import PUMP

NAMES = pytest.mark.parametrize("name", dashboards.DASHBOARDS)
OF_GO_PUMP = (
    "Storage Size",
    "Metadata",
    "Write Binlog QPS by Instance",
    "Write Binlog Latency",
    "Storage Write Binlog Size",
    "Storage Write Binlog Latency",
    "Pump Storage Error By Type",
    "Query Tikv",
    "TiDB Server Skip Binlog Count",
)
OF_GO_DRAINER = (
    "Checkpoint TSO",
    "Pump Handle TSO",
    "Pull Binlog QPS by Pump NodeID",
    "95% Binlog Reach Duration By Pump",
    "Error By Type",
    "Drainer Event",
    "99% Execute Time",
    "99% sql query Time",
    "95% Binlog Size",
    "DDL Job Count",
    "queue size",
)


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dashboards.DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    return found


@NAMES
def test_the_file_is_what_the_definitions_say(name: str) -> None:
    """`python -m tools.grafana` writes them."""
    expected = dashboards.text(dashboards.DASHBOARDS[name])
    assert (dashboards.DIRECTORY / f"{name}.json").read_text(encoding="utf-8") == expected


def test_there_is_no_other_file() -> None:
    assert {path.name for path in dashboards.DIRECTORY.iterdir()} == {
        f"{name}.json" for name in dashboards.DASHBOARDS
    }


@NAMES
def test_every_panel_says_what_it_shows_and_of_which_source(name: str) -> None:
    found = loaded(name)
    panels = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert target["instant"] is (panel["type"] == TABLE)
    sources = [one for one in found["templating"]["list"] if one["type"] == "datasource"]
    assert [one["query"] for one in sources] == ["prometheus"]


@NAMES
def test_no_panel_lies_on_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in loaded(name)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < WIDTH
        taken |= cells


def test_ids_of_dashboards_are_their_own_so_that_each_is_found_again() -> None:
    uids = [loaded(name)["uid"] for name in dashboards.DASHBOARDS]
    assert len(set(uids)) == len(uids)


def test_people_who_come_from_the_go_dashboard_find_its_panels() -> None:
    assert [panel.title for panel in PUMP.rows[0].panels] == list(OF_GO_PUMP)
    assert [panel.title for panel in DRAINER.rows[0].panels] == list(OF_GO_DRAINER)


def test_colours_follow_the_thresholds_up_or_down() -> None:
    up = Panel("x", "x.", "s", (), orange=10, red=60)
    down = Panel("x", "x.", "s", (), orange=60, red=10, falls=True)
    alone = Panel("x", "x.", "s", (), red=10, falls=True)

    def steps(panel: Panel) -> list[tuple[float | None, str]]:
        found = document(Dashboard("u", "t", "d", [Row("r", [panel])]))
        given = found["panels"][1]["fieldConfig"]["defaults"]["thresholds"]["steps"]
        return [(step["value"], step["color"]) for step in given]

    assert steps(up) == [(None, "green"), (10, "orange"), (60, "red")]
    assert steps(down) == [(None, "red"), (10, "orange"), (60, "green")]
    assert steps(alone) == [(None, "red"), (10, "green")]
