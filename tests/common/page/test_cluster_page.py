"""Cluster page: every node with what it says, the worst first; nothing that a node says is more than text."""

from __future__ import annotations

import pytest

from tests.common.page.support.cluster import NOW_S, drainer, overview_of, pump
from tests.common.page.support.hostile import ATTACK, filled
from tests.common.page.support.reading import Element, read
from tidb_binlog.cluster.overview import NodeSnapshot
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.page.cluster_page import ShownCluster, html
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument

SIZE_MAX = 1 << 20


def page(*nodes: NodeSnapshot, why_none: str = "") -> Element:
    seen = None if why_none else overview_of(*nodes)
    return read(html(ShownCluster(PUMPS, "p1", seen, why_none, NOW_S)))


def cards(top: Element, part: str) -> list[Element]:
    return top.part(part).named("article")


def test_all_is_well_and_every_node_is_linked() -> None:
    top = page(pump("p1"), pump("p2"), drainer("d1"), drainer("cdc", reader=True))
    assert top.part("verdict").attributes["class"] == "verdict good"
    assert top.part("verdict").text == "All is well"
    links = {one.text: one.attributes["href"] for one in top.named("a")}
    assert links == {"pump p1": "/", "p1": "/", "p2": "//p2:8250/", "d1": "//d1:8249/"}
    assert [one.named("h3")[0].text for one in cards(top, "readers")] == ["onlinecdc"]
    assert "up to date" in cards(top, "drainers")[0].text


def test_who_has_a_trouble_comes_first_and_says_what_to_do() -> None:
    top = page(pump("p1"), pump("p9", alive=False, document=None, error="refused"), drainer("d1"))
    assert top.part("verdict").attributes["class"] == "verdict bad"
    assert top.part("verdict").text.startswith("Pump p9 is dead: drainers wait for what it holds (start it")
    both = page(pump("p1"), pump("p9", alive=False, document=None), drainer("d1", behind_s=4000.0))
    assert both.part("verdict").text.startswith("Pump p9 is dead"), "the cause comes first"
    assert "Drainer d1 has waited" in both.part("verdict").text
    assert "2 pumps, 1 drainer" in top.part("verdict").text
    first, second = cards(top, "pumps")
    assert (first.attributes["class"], second.attributes["class"]) == ("card wrong", "card ok")
    assert first.named("span")[0].text == "online, dead"
    assert "Is dead: drainers wait" in first.text
    assert "binlogctl forget p9" in {one.text for one in first.named("code")}


def test_a_node_that_cannot_be_reached_is_said_with_the_reason() -> None:
    top = page(pump("p1"), drainer("d1", document=None, error="no route to host"))
    (card,) = cards(top, "drainers")
    assert "online, no answer" in card.text
    assert "Is online but does not answer at d1:8249: no route to host" in card.text
    away = page(why_none="etcd does not answer")
    assert away.part("verdict").text == "The registry cannot be read: etcd does not answer"
    assert away.part("verdict").attributes["class"] == "verdict part"


def test_where_the_lag_comes_from_and_what_a_purge_is_near_to() -> None:
    top = page(pump("p1", left_s=7200.0), drainer("d1", behind_s=40.0))
    (card,) = cards(top, "drainers")
    (bar,) = card.named("svg")
    assert bar.attributes["aria-label"].startswith("Where the lag comes from: write 4.0 s, sort wait 4.0 s")
    widths = [float(one.attributes["width"]) for one in bar.named("rect")]
    assert widths == [10.0, 10.0, 10.0, 30.0, 40.0]
    (kept,) = cards(top, "pumps")[0].named("svg")
    assert kept.attributes["aria-label"].startswith("From what is purged to now, d1: 2.0 h until a purge")


@pytest.mark.parametrize("alive", [True, False, None])
def test_nothing_that_a_node_says_becomes_an_element(alive: bool | None) -> None:
    def nodes(text: str) -> list[NodeSnapshot]:
        documents = (PUMPS, PumpDocument), (DRAINERS, DrainerDocument)
        return [
            NodeSnapshot(kind, text, text, text, alive, 7, 8, document, text, reader=reader)
            for kind, form in documents
            for document in (plain(filled(form, text=text)), None)
            for reader in (False, True)
        ]

    hostile, harmless = page(*nodes(ATTACK)), page(*nodes("a"))
    assert {one.name for one in hostile.all()} <= {one.name for one in harmless.all()} | {"code"}
    assert len(hostile.named("script")) == 1
    assert "<script>alert(1)</script>" in hostile.text
    for one in hostile.all():
        assert not [name for name in one.attributes if name.startswith("on") or name == "style"]
        assert one.attributes.get("href", "/") == "/"


def test_a_page_is_bounded_however_many_nodes_there_are() -> None:
    nodes = [pump(f"p{number}", document=None, error="<&>" * 3000) for number in range(2000)]
    top = html(ShownCluster(PUMPS, "p1", overview_of(*nodes), "", NOW_S))
    assert len(top.encode()) < SIZE_MAX
    assert "more; binlogctl status has all." in top
