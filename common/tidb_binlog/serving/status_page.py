"""Status page: `GET /` of a node, from its first moment on, and `GET /cluster` beside it.

Keeps   the last hour of this node, for the page (`watch`)
In      what /status shows once the node is up, the registry, the recorder of events
Holds   the registry is asked once a second at most, however many browsers look, and for REGISTRY_S at most: a
        page without it has the node's own facts
Why     what pages are made of is imported with the first one: a start is quicker without
Never   shows what /status hides, nor changes anything: it answers GET and HEAD alone
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from tidb_binlog.clock import Clock, look_later
from tidb_binlog.cluster.registry import ClusterView, Registry
from tidb_binlog.door.http.routes import HTML_TYPE, Response, Routes
from tidb_binlog.errors import BinlogError
from tidb_binlog.net.abandonable_thread import in_abandonable_thread
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.observe.recent_events import Recorder
from tidb_binlog.serving.cluster_page import ClusterPage, Document
from tidb_binlog.serving.starting import STARTING, Starting
from tidb_binlog.status import history
from tidb_binlog.status.drainer import LoadStatus

REGISTRY_S: Final = 2.0
FRESH_S: Final = 1.0
DISK_S: Final = 2.0


class StatusPage:
    """`kind` as in the registry. `know` and `show` are called as soon as there is something to know."""

    def __init__(
        self,
        kind: str,
        routes: Routes,
        starting: Starting,
        clock: Clock,
        recorder: Recorder,
        tls: TlsConfig | None,
    ) -> None:
        self._kind = kind
        self._starting = starting
        self._clock = clock
        self._recorder = recorder
        self._registry: Registry | None = None
        self._document: Document = lambda: None
        self._seen: tuple[ClusterView | None, str] = (None, "it is not reached yet")
        self._seen_s = -FRESH_S
        self._history = history.History()
        self.load: Callable[[], LoadStatus | None] = lambda: None
        """Of the rows that a drainer copies before it can begin."""
        self._asking = asyncio.Lock()
        routes.add("GET", "/", self._answer)
        ClusterPage(kind, routes, clock, tls, self._cluster, lambda: self._document())

    def know(self, registry: Registry) -> None:
        self._registry = registry

    def show(self, document: Document) -> None:
        """From now on, in place of what is waited for."""
        self._document = document

    async def watch(self, directory: str) -> None:
        """Task of the daemon. `directory`: where the node keeps what may fill a disk."""
        while True:
            left = await free_bytes(directory)
            self._history.note(self._clock.monotonic_s(), history.look(self._document()), left)
            await look_later(history.EVERY_S)

    async def _answer(self, _: dict[str, str]) -> Response:
        from tidb_binlog.page.status_page import HEADERS, Shown, html

        view, why = await self._cluster()
        document = self._document()
        reason = self._starting.reason
        shown = Shown(
            self._kind,
            document,
            "" if reason == STARTING else reason,
            view,
            why,
            self._recorder.newest_first(),
            self._clock.wall_s(),
            self._history,
            self.load(),
        )
        body = html(shown).encode()
        return Response(503 if document is None else 200, body, HTML_TYPE, HEADERS)

    async def _cluster(self) -> tuple[ClusterView | None, str]:
        """The nodes, or why they are not known."""
        registry = self._registry
        if registry is None:
            return self._seen
        async with self._asking:
            if self._clock.monotonic_s() - self._seen_s >= FRESH_S:
                self._seen = await _look(registry)
                self._seen_s = self._clock.monotonic_s()
            return self._seen


async def _look(registry: Registry) -> tuple[ClusterView | None, str]:
    try:
        async with asyncio.timeout(REGISTRY_S):
            return await registry.view(), ""
    except TimeoutError:
        return None, f"it does not answer within {REGISTRY_S:g} s"
    except BinlogError as error:
        return None, str(error)


async def free_bytes(directory: str) -> int | None:
    """None where the file system does not answer."""
    try:
        space = await in_abandonable_thread(os.statvfs, directory, timeout_s=DISK_S)
    except OSError:  # a timeout too
        return None
    return space.f_bavail * space.f_frsize
