"""Cluster page at the door: whom it asks, with which certificate, how often, and what it says of silence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import certificates
from tests.common.page.support.reading import Element, read
from tests.common.serving.status_scene import Scene, ScriptedRegistry
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.cluster import overview
from tidb_binlog.cluster.node import OFFLINE, ONLINE, NodeStatus
from tidb_binlog.cluster.overview import NodeSnapshot, Overview
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.door.http.routes import Response, Routes, json_response
from tidb_binlog.door.server.listener import serve
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.permission import Permission
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.page.cluster_page import HEADERS
from tidb_binlog.serving import gather
from tidb_binlog.serving.cluster_page import FRESH_S
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument, LagStatus


@dataclass
class Peers:
    """Drainers that answer at ports of this host."""

    asked: int = 0

    @asynccontextmanager
    async def listening(self, tls: TlsConfig | None, names: frozenset[str]) -> AsyncIterator[int]:
        routes = Routes()

        async def status(_: dict[str, str]) -> Response:
            self.asked += 1
            return json_response(plain(DrainerDocument(state=ONLINE, lag=LagStatus(total_s=1.0), doing="x")))

        routes.add("GET", "/status", status)
        server_tls = tls.server_tls() if tls else None
        if server_tls is not None:
            server_tls.restrict({Permission.READ: names})
        server = await serve([], routes, "127.0.0.1", 0, tls=server_tls)
        try:
            yield server.port
        finally:
            await server.stop(0.1)


@dataclass
class Nodes(ScriptedRegistry):
    """This node, p1, and drainers at these ports."""

    ports: tuple[int, ...] = ()

    async def view(self) -> ClusterView:
        await super().view()
        own = NodeEntry(NodeStatus("p1", "localhost:1", ONLINE, 7, 8), 1, True)
        left = NodeEntry(NodeStatus("p0", "localhost:1", OFFLINE, 7, 8), 1, None)
        drainers = {
            f"d{number}": NodeEntry(NodeStatus(f"d{number}", f"localhost:{port}", ONLINE, 7, 8), 1, True)
            for number, port in enumerate(self.ports)
        }
        return ClusterView(1, {"p1": own, "p0": left}, drainers)


async def shown(scene: Scene) -> tuple[int, Element]:
    answer = await scene.ask(target="/cluster")
    assert answer.headers == HEADERS
    return answer.status, read(answer.body.decode())


async def test_every_node_is_asked_but_the_node_itself_and_one_that_is_away_is_said() -> None:
    peers = Peers()
    async with peers.listening(None, frozenset()) as port:
        scene = Scene(registry=Nodes(ports=(port, 1)), clock=SystemClock())
        status, page = await shown(scene)
    assert status == 200
    pumps, drainers = page.part("pumps"), page.part("drainers").named("article")
    assert "p1" in pumps.text
    assert "no answer" not in pumps.text, "of itself it has a document"
    assert "p0" not in page.text, "who is offline is not asked"
    silent, heard = drainers
    assert "d1" in silent.text
    assert "Is online but does not answer at localhost:1: " in silent.text
    assert "rows/s" not in silent.text
    assert "rows/s, x" in heard.text
    assert peers.asked == 1


async def test_who_is_dead_by_the_registry_is_waited_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: dict[str, float] = {}

    async def ask(who: str, *_: object, deadline_s: float, **__: object) -> object:
        waited[who] = deadline_s
        raise Unavailable(f"{who} does not answer: nothing came")

    monkeypatch.setattr(gather.node_http, "ask", ask)
    entries = {
        f"{alive}": NodeEntry(NodeStatus(f"{alive}", "host:1", ONLINE, 7, 8), 1, alive)
        for alive in (True, False, None)
    }
    assert len(await gather.gather(ClusterView(1, {}, entries), None)) == 3
    assert waited["drainer False"] < waited["drainer True"] == waited["drainer None"]


async def test_nodes_are_asked_once_in_a_while_however_many_look() -> None:
    peers = Peers()
    async with peers.listening(None, frozenset()) as port:
        scene = Scene(registry=Nodes(ports=(port,)), clock=SystemClock())
        await asyncio.gather(*(shown(scene) for _ in range(50)))
        assert peers.asked == 1


async def test_a_browser_that_goes_away_neither_ends_the_look_nor_makes_another() -> None:
    answers = asyncio.Event()

    class Late(Nodes):
        async def view(self) -> ClusterView:
            view = await super().view()
            await answers.wait()
            return view

    registry = Late()
    scene = Scene(registry=registry, clock=SystemClock())
    for _ in range(5):
        left = asyncio.create_task(scene.ask(target="/cluster"))
        while not registry.asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
    answers.set()
    assert (await shown(scene))[0] == 200
    assert registry.asked == 1


async def test_large_answers_are_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made_by = set()

    def build(nodes: Sequence[NodeSnapshot], now_s: float) -> Overview:
        made_by.add(threading.current_thread())
        return real(nodes, now_s)

    real = overview.build
    monkeypatch.setattr(overview, "build", build)
    assert (await shown(Scene(registry=Nodes(), clock=SystemClock())))[0] == 200
    assert made_by
    assert threading.main_thread() not in made_by


async def test_after_that_while_they_are_asked_again() -> None:
    registry, clock = Nodes(), ManualClock()
    scene = Scene(registry=registry, clock=clock)
    for passed_s, asked in ((0.0, 1), (FRESH_S - 0.1, 1), (0.2, 2)):
        clock.advance(passed_s)
        assert (await shown(scene))[0] == 200
        assert registry.asked == asked


async def test_without_a_registry_nobody_can_be_asked() -> None:
    starting = Scene(registry=None, document=None, clock=SystemClock())
    status, page = await shown(starting)
    assert (status, page.part("verdict").text) == (
        503,
        "The registry cannot be read: it is not reached yet",
    )
    registry = ScriptedRegistry(error=Unavailable("etcd does not answer"))
    away = Scene(registry=registry, clock=SystemClock())
    assert "etcd does not answer" in (await shown(away))[1].part("verdict").text


async def test_nodes_are_asked_with_the_certificate_of_the_node(tmp_path: Path) -> None:
    ca = certificates.authority()
    tls = certificates.write(tmp_path, ca=[ca], node=certificates.leaf("node", ca=ca))
    allowing, refusing = Peers(), Peers()
    async with (
        allowing.listening(tls, frozenset({"node"})) as open_port,
        refusing.listening(tls, frozenset({"operator"})) as closed_port,
    ):
        registry = Nodes(ports=(open_port, closed_port, 1))
        scene = Scene(registry=registry, clock=SystemClock(), tls=tls)
        _, page = await shown(scene)
    said = {article.named("a")[0].text: article.text for article in page.part("drainers").named("article")}
    assert "rows/s, x" in said["d0"]
    assert (
        "its /status is refused: the certificate's common name is not in security.cert-read-cn" in said["d1"]
    )
    assert "does not answer at localhost:1: " in said["d2"]
    assert "over TLS" not in said["d2"], "that it is this node which asks is said once"
    assert (allowing.asked, refusing.asked) == (1, 0)


async def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "BYTES_MAX", 100)
    async with Peers().listening(None, frozenset()) as port:
        _, page = await shown(Scene(registry=Nodes(ports=(port,)), clock=SystemClock()))
    assert "does not answer" in page.part("drainers").text
    assert "answers more than 0 MiB" in page.part("drainers").text
