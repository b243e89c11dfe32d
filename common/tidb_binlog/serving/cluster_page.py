"""Cluster page: `GET /cluster` of a node: the whole cluster, as this node sees it.

Holds   all nodes are asked once in FRESH_S at most, and one page is made of it, however many browsers look
        or go away meanwhile; itself a node asks nothing. Answers may be large: they are looked through, and
        the page is made, beside the event loop. Another node lets it in by its certificate, as it does for
        every call
Why     what pages are made of is imported with the first one: a start is quicker without
Never   changes anything, or shows more than the nodes' /status
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidb_binlog.clock import Clock
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.door.http.routes import HTML_TYPE, Response, Routes
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument

if TYPE_CHECKING:
    from tidb_binlog.cluster.overview import NodeSnapshot

FRESH_S: Final = 3.0

Document = Callable[[], PumpDocument | DrainerDocument | None]
"""None: the node is not up yet."""
View = Callable[[], Awaitable[tuple[ClusterView | None, str]]]
"""The nodes, or why they are not known."""


class ClusterPage:
    """`kind`, `document`: of this node."""

    def __init__(
        self, kind: str, routes: Routes, clock: Clock, tls: TlsConfig | None, view: View, document: Document
    ) -> None:
        self._kind = kind
        self._clock = clock
        self._tls = tls
        self._view = view
        self._document = document
        self._looking: asyncio.Task[Response] | None = None
        self._shown_s = 0.0
        routes.add("GET", "/cluster", self._answer)

    async def _answer(self, _: dict[str, str]) -> Response:
        looking = self._looking
        if looking is None or (looking.done() and self._clock.monotonic_s() - self._shown_s >= FRESH_S):
            looking = self._looking = asyncio.create_task(self._look(), name="cluster page")
        return await asyncio.shield(looking)  # others may wait for it, too

    async def _look(self) -> Response:
        from tidb_binlog.page.status_page import id_of
        from tidb_binlog.serving.gather import gather

        try:
            view, why = await self._view()
            document = self._document()
            node_id = id_of(document)
            own = {} if document is None else {(self._kind, node_id): plain(document)}
            nodes = None if view is None else await gather(view, self._tls, own)
            return await asyncio.to_thread(self._made, node_id, nodes, why, self._clock.wall_s())
        finally:
            self._shown_s = self._clock.monotonic_s()

    def _made(self, node_id: str, nodes: Sequence[NodeSnapshot] | None, why: str, now_s: float) -> Response:
        from tidb_binlog.cluster import overview
        from tidb_binlog.page.cluster_page import HEADERS, ShownCluster, html

        seen = None if nodes is None else overview.build(nodes, now_s)
        body = html(ShownCluster(self._kind, node_id, seen, why, now_s)).encode()
        return Response(503 if seen is None else 200, body, HTML_TYPE, HEADERS)
