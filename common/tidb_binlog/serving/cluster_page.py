"""Cluster page: `GET /cluster` of a node: the whole cluster, as this node sees it.

Drives  `tidb_binlog.serving.gather`, `tidb_binlog.cluster.overview`, `tidb_binlog.page.cluster_page`
Holds   all nodes are asked once in FRESH_S at most, however many browsers look; itself a node asks nothing.
        Another node lets it in by its certificate, as it does for every call
Never   changes anything, or shows more than the nodes' /status
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidb_binlog.clock import Clock
from tidb_binlog.cluster import overview
from tidb_binlog.cluster.registry import ClusterView
from tidb_binlog.door.http.routes import HTML_TYPE, Response, Routes
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.page.cluster_page import HEADERS, ShownCluster, html
from tidb_binlog.page.status_page import id_of
from tidb_binlog.serving.gather import gather
from tidb_binlog.status.codec import plain
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument

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
        self._shown: ShownCluster | None = None
        self._shown_s = 0.0
        self._asking = asyncio.Lock()
        routes.add("GET", "/cluster", self._answer)

    async def _answer(self, _: dict[str, str]) -> Response:
        async with self._asking:
            shown = self._shown
            if shown is None or self._clock.monotonic_s() - self._shown_s >= FRESH_S:
                shown = self._shown = await self._look()
                self._shown_s = self._clock.monotonic_s()
        body = html(shown).encode()
        return Response(503 if shown.seen is None else 200, body, HTML_TYPE, HEADERS)

    async def _look(self) -> ShownCluster:
        view, why = await self._view()
        document = self._document()
        node_id, now_s = id_of(document), self._clock.wall_s()
        if view is None:
            return ShownCluster(self._kind, node_id, None, why, now_s)
        own = {} if document is None else {(self._kind, node_id): plain(document)}
        seen = overview.build(await gather(view, self._tls, own), now_s)
        return ShownCluster(self._kind, node_id, seen, "", now_s)
