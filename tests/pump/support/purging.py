"""Garbage collection of a real storage: an upstream's time and drainers that are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pump.log.delivery import Delivery
from pump.retention.policy import Policy
from pump.retention.purger import Purger
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.pump.support.payloads import put_pair, wait_watermark
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import Unavailable
from tidb_binlog.tso import Ts

MINUTE = 60_000 << 18

HOUR = 60 * MINUTE

LIMITS = StorageLimits(segment_bytes_max=4000)

HOUR_OLD = Policy(3600.0)


@dataclass
class Oracle:
    now_ts: int = 10 * HOUR
    silent: bool = False

    async def timestamp(self) -> Ts:
        if self.silent:
            raise Unavailable("no oracle")
        return self.now_ts


@dataclass
class Drainers:
    """The part of a registry that retention asks."""

    entries: dict[str, NodeEntry] = field(default_factory=dict)
    silent: bool = False

    def seen(self, node_id: str, checkpoint: int, *, alive: bool | None = True, **more: Any) -> None:
        status = NodeStatus(
            node_id, "h:1", more.get("state", node.ONLINE), checkpoint, more.get("update_ts", 0)
        )
        self.entries[node_id] = NodeEntry(status, 1, alive)

    async def view(self) -> ClusterView:
        if self.silent:
            raise Unavailable("no registry")
        return ClusterView(1, {}, self.entries)


class World:
    """What surrounds a storage: time, drainers, disk."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.drainers = Drainers()
        self.clock = ManualClock()
        self.free = 1 << 40

    async def free_bytes(self) -> int:
        return self.free

    def purger(self, storage: Storage, policy: Policy = HOUR_OLD, **more: Any) -> Purger:
        registry: Any = more.pop("registry", self.drainers)
        return Purger(storage, self.oracle, registry, self.free_bytes, policy, self.clock, **more)


async def fill(storage: Storage, minutes: range, size: int = 500) -> list[Delivery]:
    """A transaction at each of these minutes."""
    written = []
    for minute in minutes:
        ts = minute * MINUTE
        written.append(Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, bytes(size))))
    await wait_watermark(storage, minutes[-1] * MINUTE + 1)
    return written
