"""A fake cluster without the network: its snapshots, clock and holds on garbage, for `TidbHistory`."""

from __future__ import annotations

import bisect
from collections.abc import AsyncIterator

from tests.fakes.cluster import FakeCluster
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.tidb.meta.history import TidbHistory

NOW = 1 << 62


class Memory:
    """Snapshots of a fake cluster without the network."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.keys = sorted(cluster.mvcc.rows)
        self.cluster = cluster
        self.reads = 0
        self.floor_ts = 0
        self.held: list[tuple[int, int]] = []

    async def timestamp(self) -> Ts:
        return NOW

    async def hold(self, name: str, ts: int, ttl_s: int) -> int:
        self.held.append((ts, ttl_s))
        return max(0, self.floor_ts)

    def at(self, ts: int) -> MemorySnapshot:
        return MemorySnapshot(self, ts)

    def history(self) -> TidbHistory:
        return TidbHistory(self.at, self, self)


class MemorySnapshot:
    def __init__(self, memory: Memory, ts: int) -> None:
        self._memory = memory
        self._ts = ts

    async def get(self, key: bytes) -> bytes | None:
        self._memory.reads += 1
        if key not in self._memory.cluster.mvcc.rows:
            return None
        return self._memory.cluster.mvcc.get(key, self._ts)

    async def scan(
        self, start: bytes, end: bytes, *, page: int = 1024, key_only: bool = False
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        memory = self._memory
        keys = memory.keys[bisect.bisect_left(memory.keys, start) : bisect.bisect_left(memory.keys, end)]
        found = [(key, value) for key in keys if (value := memory.cluster.mvcc.get(key, self._ts))]
        for at in range(0, len(found), page):
            memory.reads += 1
            yield found[at : at + page]
