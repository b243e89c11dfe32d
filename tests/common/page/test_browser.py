"""The page in a real browser: all facts without scripts, no request to anywhere else, and it refreshes.

Needs Chromium, which `apt-get install chromium` brings; a machine without it says so and goes on.
"""

from __future__ import annotations

import http.server
import importlib.util
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.common.page.support.cluster import NOW_S, drainer, overview_of, pump
from tests.common.page.support.hostile import ATTACK, events, filled, view
from tidb_binlog.cluster.registry import DRAINERS, PUMPS
from tidb_binlog.page import cluster_page
from tidb_binlog.page.cluster_page import ShownCluster
from tidb_binlog.page.status_page import HEADERS, Shown, html
from tidb_binlog.status.drainer import DrainerDocument, LagStatus
from tidb_binlog.status.history import EVERY_S, PLACES, History, Look
from tidb_binlog.status.pump import PumpDocument
from tools.screenshots import chromium

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="no Chromium here: apt-get install chromium has the page tried in it"
)
FORMS = {PUMPS: PumpDocument, DRAINERS: DrainerDocument}
AGAIN = "document.getElementById('refresh').textContent.includes('Refreshed at')"


A_CLUSTER = overview_of(
    pump("p1", left_s=360_000.0),
    pump("p2", alive=False, document=None, error="no route to host"),
    drainer("d1", behind_s=40.0),
    drainer(ATTACK, document=None, error=ATTACK),
    drainer("cdc", reader=True),
)


def an_hour() -> History:
    history = History()
    for number in range(PLACES):
        history.note(number * EVERY_S, Look(float(number % 60), number * 10_000), (900 - number) << 30)
    return history


@dataclass
class Node:
    """A node's door as far as a browser sees it: the pages, with their headers, as of now."""

    shown: Shown
    cluster: ShownCluster
    status: int = 200
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    with chromium.running() as made:
        yield made


@pytest.fixture
def node() -> Iterator[Node]:
    shown = Shown(DRAINERS, filled(DrainerDocument), "", view(), "", events(), NOW_S, an_hour())
    made = Node(shown, ShownCluster(PUMPS, "p1", A_CLUSTER, "", NOW_S))

    class Door(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(f"{self.command} {self.path}")
            is_cluster = self.path == "/cluster"
            text = cluster_page.html(made.cluster) if is_cluster else html(made.shown)
            body = text.encode() if made.status == 200 else b"gone"
            self.send_response(made.status)
            headers = cluster_page.HEADERS if is_cluster else HEADERS
            for name, value in headers if made.status == 200 else ():
                self.send_header(name, value)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    made.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def hasten(page: chromium.Page) -> None:
    """Its timers are due in no time."""
    source = "const later = setTimeout; window.setTimeout = (what) => later(what, 1);"
    page.ask("Page.addScriptToEvaluateOnNewDocument", source=source)


def test_all_facts_are_there_without_scripts(browser: chromium.Browser, node: Node) -> None:
    page = browser.page()
    page.open(node.url, scripts=False)
    text = page.evaluate("document.body.innerText")
    for words in (
        "Cluster",
        "Way of the stream",
        "Waiting for a decision",
        "Lanes",
        "Retention",
        "Last verify",
    ):
        assert words in text
    assert "<script>alert(1)</script>" in text
    assert "Load the page again" in text
    assert "Stop refreshing" not in text
    assert page.requests == [node.url]
    assert page.complaints == []


def test_it_refreshes_asks_nobody_else_and_runs_nothing_of_what_nodes_say(
    browser: chromium.Browser, node: Node
) -> None:
    page = browser.page()
    hasten(page)
    page.open(node.url)
    lag = DrainerDocument(state="online", lag=LagStatus(total_s=1234.0))
    node.shown = replace(node.shown, document=lag, view=None, why_no_view=ATTACK)
    page.until("document.getElementById('verdict').textContent.includes('21 min behind')")
    page.until("document.getElementById('cluster').textContent.includes('cannot be read: <script>')")
    page.until(AGAIN)
    assert "Lanes" not in page.evaluate("document.querySelector('main').textContent")
    assert page.evaluate(
        "document.querySelectorAll('main > [id]').length === new Set("
        "[...document.querySelectorAll('main > [id]')].map((one) => one.id)).size"
    )
    assert set(node.asked) == {"GET /"}
    assert set(page.requests) == {node.url}
    assert page.complaints == []
    assert page.evaluate("document.querySelectorAll('img, main script').length") == 0


def test_who_copies_a_command_keeps_his_selection_and_may_stop_it(
    browser: chromium.Browser, node: Node
) -> None:
    page = browser.page()
    hasten(page)
    page.open(node.url)
    page.evaluate("window.getSelection().selectAllChildren(document.querySelector('.command'))")
    said = page.evaluate("String(window.getSelection())")
    assert said.startswith("binlogctl ddl ")
    document = filled(DrainerDocument, text="other")
    node.shown = replace(node.shown, document=document, view=None, events=events(text="other"))
    page.until("document.getElementById('events').textContent.includes('other')")
    assert page.evaluate("String(window.getSelection())") == said
    page.evaluate("window.getSelection().removeAllRanges()")
    page.until(f"!document.querySelector('main').textContent.includes({ATTACK[:8]!r})")
    page.evaluate("document.querySelector('#refresh button').click()")
    assert "Not refreshed since" in page.evaluate("document.getElementById('refresh').textContent")


def test_an_answer_that_comes_after_refreshing_was_stopped_is_not_shown(
    browser: chromium.Browser, node: Node
) -> None:
    page = browser.page()
    hasten(page)
    keeps_answers = """const ask = fetch; window.fetch = async (...what) => {
        const answer = await ask(...what);
        await new Promise((give) => { window.give = give; });
        return answer; };"""
    page.ask("Page.addScriptToEvaluateOnNewDocument", source=keeps_answers)
    page.open(node.url)
    page.until("Boolean(window.give)")
    said = page.evaluate(
        "(async () => { document.querySelector('#refresh button').click(); window.give();"
        " for (let turn = 0; turn < 50; turn++) await new Promise((go) => setTimeout(go));"
        " return document.getElementById('refresh').textContent; })()"
    )
    assert "Not refreshed since" in said


def test_a_node_that_is_gone_is_told_and_what_was_shown_stays(browser: chromium.Browser, node: Node) -> None:
    page = browser.page()
    hasten(page)
    page.open(node.url)
    node.status = 500
    page.until("document.getElementById('refresh').textContent.includes('does not answer since')")
    assert "Lanes" in page.evaluate("document.querySelector('main').textContent")
    node.status = 200
    page.until(AGAIN)


@pytest.mark.parametrize("width", [390, 1200])
def test_the_last_hour_is_drawn_as_wide_as_its_place(
    browser: chromium.Browser, node: Node, width: int
) -> None:
    page = browser.page()
    page.look(width=width)
    page.open(node.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        "[...document.querySelectorAll('.hour figure')].map((one) => ['svg', '.area'].map("
        "(name) => { const box = one.querySelector(name).getBoundingClientRect();"
        " return [box.width, box.height]; }))"
    )
    assert len(boxes) == 3
    for (svg_width, svg_height), (area_width, area_height) in boxes:
        assert svg_width > 200
        assert abs(area_width - svg_width) < 0.05 * svg_width
        assert svg_height * 0.8 < area_height <= svg_height
    assert page.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1200, False)])
def test_the_whole_cluster_fits_and_leads_to_its_nodes(
    browser: chromium.Browser, node: Node, width: int, dark: bool
) -> None:
    page = browser.page()
    hasten(page)
    page.look(dark=dark, width=width)
    page.open(node.url)
    page.evaluate("document.querySelector('#cluster a[href=\"/cluster\"]').click()")
    page.until("document.title === 'Cluster' && document.readyState === 'complete'")
    page.until(AGAIN)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "[...document.querySelectorAll('article')].filter((one) => !one.checkVisibility()).length"
    assert page.evaluate(f"[document.querySelectorAll('article').length, {hidden}]") == [5, 0]
    first_of_pumps = page.evaluate("document.querySelector('#pumps article').textContent")
    assert first_of_pumps.startswith("online, deadp2")
    bar = "document.querySelector('#drainers .ok svg, #drainers svg').getBoundingClientRect()"
    assert page.evaluate(f"[{bar}.width > 200, {bar}.height]") == [True, 8]
    page.evaluate("document.querySelector('#about a').click()")
    page.until("document.title.startsWith('drainer')")
    assert {url.removeprefix(node.url) for url in page.requests} == {"", "cluster"}
    assert page.complaints == []


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_telephone_and_the_dark(
    browser: chromium.Browser, node: Node, width: int, dark: bool
) -> None:
    page = browser.page()
    page.look(dark=dark, width=width)
    page.open(node.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.evaluate("getComputedStyle(document.querySelector('svg.tall')).display")
    assert shown == ("block" if width < 700 else "none")
    back = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(back) < 60) is dark


AXE = importlib.util.find_spec("axe_core_python")


@pytest.mark.skipif(AXE is None, reason="axe-core-python, of the extra dev, is not installed")
@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
@pytest.mark.parametrize("kind", [*FORMS, "cluster"])
def test_axe_finds_nothing_that_keeps_anyone_from_reading_it(
    browser: chromium.Browser, node: Node, kind: str, width: int, dark: bool
) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    if kind in FORMS:
        node.shown = replace(node.shown, kind=kind, document=filled(FORMS[kind]))
    page = browser.page()
    page.look(dark=dark, width=width)
    page.open(node.url + ("cluster" if kind == "cluster" else ""))
    page.evaluate((Path(AXE.origin).parent / "axe.min.js").read_text() + "; 0")
    wrong = "all.violations.map((one) => one.id + one.nodes[0].html)"
    found, passed = page.evaluate(f"axe.run().then((all) => [{wrong}, all.passes.length])")
    assert found == []
    assert passed > 20
