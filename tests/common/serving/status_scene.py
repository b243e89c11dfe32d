"""A status page whose registry and nodes say what a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.common.page.support.reading import read
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import PUMPS, ClusterView, NodeEntry
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.serving.starting import Starting
from tidb_binlog.serving.status_page import StatusPage
from tidb_binlog.status.pump import PumpDocument, PumpStatus

UP = PumpDocument(pump=PumpStatus(node_id="p1", state=ONLINE))

VIEW = ClusterView(1, {"p2": NodeEntry(NodeStatus("p2", "h:8250", ONLINE, 7, 8), 1, True)}, {})


@dataclass
class ScriptedRegistry:
    asked: int = 0
    answer_s: float = 0.0
    error: Exception | None = None

    async def view(self) -> ClusterView:
        self.asked += 1
        if self.answer_s:
            await virtual_time.passes(self.answer_s)
        if self.error is not None:
            raise self.error
        return VIEW


@dataclass
class Scene:
    """A node that is up, unless `document` is taken away."""

    registry: Any = field(default_factory=ScriptedRegistry)
    document: PumpDocument | None = UP
    clock: Any = field(default_factory=LoopClock)
    routes: Routes = field(default_factory=Routes)
    recorder: Recorder = field(default_factory=Recorder)
    tls: TlsConfig | None = None

    def __post_init__(self) -> None:
        self.starting = Starting(600.0, self.clock, lambda _: None)
        self.starting.add_status(self.routes)
        self.page = StatusPage(PUMPS, self.routes, self.starting, self.clock, self.recorder, self.tls)
        self.page.show(lambda: self.document)
        if self.registry is not None:
            self.page.know(self.registry)

    async def ask(self, method: str = "GET", target: str = "/", origin: str | None = None) -> Response:
        stranger = Peer("192.0.2.7")
        return await self.routes.answer(Request(method, target, "h:1", origin, stranger), AdminGuard())

    async def text(self) -> str:
        return read((await self.ask()).body.decode()).text
