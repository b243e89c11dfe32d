"""The files that Grafana loads are whole, and have the panels that people look for."""

from __future__ import annotations

import pytest

from tests.deploy.prometheus.rules import DASHBOARDS, panels

NAMES = pytest.mark.parametrize("name", DASHBOARDS)
WIDTH = 24
COLOURS = ["green", "orange", "red"]
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


@NAMES
def test_every_panel_says_what_it_shows_and_of_which_source(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({panel["title"] for panel in panels(name)}) == len(panels(name))
    for panel in panels(name):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert target["instant"] is (panel["type"] == "table")
    sources = [var["query"] for var in dashboard["templating"]["list"] if var["type"] == "datasource"]
    assert sources == ["prometheus"]


@NAMES
def test_colours_follow_the_thresholds_up_or_down(name: str) -> None:
    for panel in panels(name):
        first, *steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert first["value"] is None
        values, colours = [step["value"] for step in steps], [step["color"] for step in (first, *steps)]
        assert values == sorted(set(values))
        rising = [colour for colour in COLOURS if colour in colours]
        assert colours in (rising, rising[::-1]), panel["title"]
        assert "green" in colours


@NAMES
def test_no_panel_lies_on_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
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
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids)


def test_people_who_come_from_the_go_dashboard_find_its_panels() -> None:
    for name, of_go in (("pump", OF_GO_PUMP), ("drainer", OF_GO_DRAINER)):
        types = [panel["type"] for panel in DASHBOARDS[name]["panels"]]
        assert types.index("row", 1) == len(of_go) + 1, "they have the first row for themselves"
        assert tuple(panel["title"] for panel in panels(name)[: len(of_go)]) == of_go
