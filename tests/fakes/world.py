"""The client of TiKV over the fake cluster, in one process: pauses let the cluster's clock pass."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.fakes.cluster import FakeCluster
from tests.fakes.tikv import FakeTikv, LocalPd
from tidb_binlog.upstream.tidb.tikv.locks import LockResolver
from tidb_binlog.upstream.tidb.tikv.snapshot import Snapshot
from tidb_binlog.upstream.tidb.tikv.tikv import TikvClient
from tidb_binlog.upstream.tidb.tikv.transactions import TikvTransactions


class TikvWorld:
    """A cluster, its stores, and who asks them."""

    def __init__(self, *, stores: int = 3) -> None:
        self.cluster = FakeCluster(stores=stores)
        self.tikv = FakeTikv(self.cluster)
        self.pd = LocalPd(self.cluster)
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self.client = TikvClient(
            self.pd,
            clock=self.cluster.clock,
            dial=self.tikv.dial,
            sleep=self.sleep,
            rng=random.Random(0),
        )
        self.locks = LockResolver(self.client, self.pd)

    def snapshot(self, ts: int | None = None, **options: Any) -> Snapshot:
        """Now, unless a timestamp is given."""
        return Snapshot(self.client, self.locks, self.cluster.ts() if ts is None else ts, **options)

    def transactions(self, **options: Any) -> TikvTransactions:
        return TikvTransactions(self.client, self.locks, self.pd, self.pd, **options)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.cluster.clock.advance(seconds)
        self.on_sleep()
        await asyncio.sleep(0)


async def scanned(
    snapshot: Snapshot, start: bytes = b"", end: bytes = b"", **options: Any
) -> dict[bytes, bytes]:
    found: list[tuple[bytes, bytes]] = []
    async for page in snapshot.scan(start, end, **options):
        assert page
        found += page
    assert found == sorted(set(found))
    return dict(found)
