"""Rival: does a node without a lease still live under the name that this process wants?

Go nodes keep no lease, and do not check whether their name is taken: two of them with one name write over
each other's entry, and clients and drainers follow the last writer. An entry that says a node runs, at
another address than ours, may be such a node, or what it left when it was killed. A node that was stopped,
ran at our address, or whose port does not answer, is gone, and its place is free at once; otherwise the entry
is watched for two of its heartbeats.

Tests  tests/common/cluster/test_heartbeat.py
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import NodeEntry, Registry
from tidb_binlog.errors import Conflict
from tidb_binlog.observe import log

WATCH_S: Final = 5.0  # Go pumps beat every 2 s, Go drainers every second
_LOOK_S: Final = 0.2
_CONNECT_S: Final = 1.0

_logger = log.get("rival")


def may_live(entry: NodeEntry, own: NodeStatus) -> bool:
    """Whether the entry alone leaves it open."""
    if entry.alive is not None or entry.status.host == own.host:
        return False
    return entry.status.state in (node.ONLINE, node.PAUSING, node.CLOSING)


async def check_gone(registry: Registry, kind: str, entry: NodeEntry, *, watch_s: float = WATCH_S) -> None:
    """Raise `Conflict` if the node of this entry is seen to live; `Unavailable`."""
    left = entry.status
    if not await answers(left.host):
        return
    _logger.warning(
        "the address of this node's entry answers, watching whether it beats",
        node_id=left.node_id,
        found=left.host,
        seconds=watch_s,
    )
    deadline_s = asyncio.get_running_loop().time() + watch_s
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(_LOOK_S)
        now = (await registry.view()).of(kind).get(left.node_id)
        if now is not None and now.mod_revision != entry.mod_revision and now.status.host == left.host:
            raise Conflict(
                f"{kind[:-1]} {left.node_id} is already running: a node at {left.host} beats under this name",
                hint="stop it, or start this one with another --node-id",
            )
    _logger.warning("taking over from a node that does not beat", node_id=left.node_id, found=left.host)


async def answers(address: str) -> bool:
    """Whether a process listens at `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return False
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
    return False
