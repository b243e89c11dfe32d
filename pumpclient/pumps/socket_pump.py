"""Socket pump: a directory of one pump, the one that listens on a unix socket of this host.

Drives  nothing
Holds   the pump has the node id `localPump` and is online: its state in the registry is not followed, its
        answers say enough
Stops   `close`: watches wait no longer
Tests   tests/pumpclient/send/test_transport_ways.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import MappingProxyType
from typing import Final

from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.net.port import socket_path

LOCAL_PUMP: Final = "localPump"


class LocalPump:
    """A `PumpDirectory`. `socket` is unix:///path; raises `ConfigError` when it is none."""

    def __init__(self, socket: str) -> None:
        self.address = f"unix://{socket_path('socket', socket)}"
        self._closed = asyncio.Event()

    async def view(self) -> ClusterView:
        status = NodeStatus(LOCAL_PUMP, self.address, ONLINE)
        return ClusterView(
            1, MappingProxyType({LOCAL_PUMP: NodeEntry(status, 1, None)}), MappingProxyType({})
        )

    async def watch(self) -> AsyncGenerator[ClusterView, None]:
        yield await self.view()
        await self._closed.wait()

    async def close(self) -> None:
        self._closed.set()
