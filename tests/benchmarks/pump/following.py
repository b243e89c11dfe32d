"""A drainer's collector without a drainer: it pulls from all pumps of the registry and merges.

What comes is handed to a function in the order of commit timestamps, as soon as it is certain that nothing
comes before it. Another one is told when a pump has sent it: from then on it waits for the other pumps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merged import MergedBatch
from drainer.stream.pull.spill import SpillDirectory
from tests.benchmarks.pump.nodes import PumpNodes
from tidb_binlog import rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.wire import pump_pb2

QUEUE_BYTES: Final = 64 << 20
POLL_S: Final = 0.01
Arrived = Callable[[Sequence[int]], None]


class WatchedClient:
    """A connection to a pump. `arrived` gets the commit_ts of each message's transactions."""

    def __init__(self, address: str, arrived: Arrived) -> None:
        self._client = rpc.Client(address)
        self._arrived = arrived

    def server_stream(self, path: str, request: bytes, *, gzip: bool) -> AsyncIterator[bytes]:
        return self._client.server_stream(path, request, gzip=gzip)

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        replies = self._client.bidi(path, requests)
        try:
            async for data in replies:
                self._arrived(pump_pb2.PullBatchesResp.FromString(data).commit_ts)
                yield data
        finally:
            await replies.aclose()

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def following(
    nodes: PumpNodes,
    pumps: int,
    after_ts: int,
    took: Callable[[MergedBatch], None],
    arrived: Arrived = lambda _: None,
) -> AsyncIterator[None]:
    """From when all `pumps` send until the end of the block."""
    registry = await connect_registry(nodes.etcd_endpoint)
    collector = Collector(
        registry,
        nodes.upstream.history,
        cluster_id=nodes.upstream.cluster_id,
        after_ts=after_ts,
        clock=SystemClock(),
        queue_bytes_max=QUEUE_BYTES,
        spill=SpillDirectory(str(nodes.directory / "spill")),
        connect=lambda address: WatchedClient(address, arrived),
    )

    async def take() -> None:
        async for batch in collector.batches():
            took(batch)

    tasks = [asyncio.create_task(collector.run()), asyncio.create_task(take())]
    try:
        await _until_connected(collector, pumps, tasks)
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await registry.close()


async def _until_connected(collector: Collector, pumps: int, tasks: list[asyncio.Task[None]]) -> None:
    while sum(state.connected for state in collector.states().values()) < pumps:
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(POLL_S)
