"""Collector against real pumps (processes), a real etcd and real gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from drainer.stream.pull.collector import Collector
from drainer.stream.pull.merged import Merged
from drainer.stream.pull.pump_source import PULL_BATCHES, PullClient
from drainer.stream.pull.spill import SpillDirectory
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog, rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.port import free_ports
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.wire import binlog_pb2, pump_pb2

pytestmark = pytest.mark.integration


class PumpProcess:
    """One process for all tests here; each test has its own client."""

    def __init__(self, name: str, port: int, directory: Path, endpoint: str) -> None:
        self.name = name
        self.address = f"127.0.0.1:{port}"
        self._arguments = [
            f"--node-id={name}",
            f"--addr={self.address}",
            f"--advertise-addr={self.address}",
            f"--data-dir={directory / name}",
            f"--pd-urls={endpoint}",
            f"--log-file={directory / name}.log",
        ]
        self._process: Forked | None = None
        self._client: rpc.Client | None = None

    def start(self) -> None:
        self._process = Forked("pump", self._arguments)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def state(self) -> str:
        """As it says itself; "" while it does not answer."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.address}/status", timeout=PATIENCE_S) as page,
        ):
            return str(json.load(page)["pump"]["state"])
        return ""

    async def disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()
        self._client = None

    async def write(self, cluster_id: int, payload: bytes) -> None:
        self._client = self._client or rpc.Client(self.address)
        request = pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload).SerializeToString()
        reply = await self._client.unary("/binlog.Pump/WriteBinlog", request, 10.0)
        assert pump_pb2.WriteBinlogResp.FromString(reply).errmsg == ""


class Cluster:
    """What one test sees of upstream and pumps: what was written before `after_ts` was other tests'."""

    def __init__(
        self, endpoint: str, upstream: StandaloneUpstream, pumps: list[PumpProcess], after_ts: int
    ) -> None:
        self.after_ts = after_ts
        self.endpoint = endpoint
        self.upstream = upstream
        self.pumps = pumps
        self.committed: list[int] = []
        self.rows: dict[int, bytes] = {}
        self.taken: dict[int, Merged] = {}
        self.rng = random.Random(4)

    async def transaction(self, pump: PumpProcess, size: int = 10) -> int:
        """One row of at least `size` bytes, which compress to half, through one pump; its commit_ts."""
        transactions = self.upstream.transactions
        start_ts = await transactions.begin(30.0)
        row = b"row of %d" % start_ts + self.rng.randbytes((size + 1) // 2).hex().encode()
        self.rows[start_ts] = row
        mutation = binlog_pb2.TableMutation(table_id=1, inserted_rows=[row], sequence=[binlog_pb2.Insert])
        value = binlog_pb2.PrewriteValue(schema_version=1, mutations=[mutation]).SerializeToString()
        await pump.write(self.upstream.cluster_id, binlog.prewrite(start_ts, b"k", value))
        commit_ts = await transactions.commit(start_ts)
        await pump.write(self.upstream.cluster_id, binlog.commit(start_ts, commit_ts, b"k"))
        self.committed.append(commit_ts)
        return commit_ts

    @contextlib.asynccontextmanager
    async def collected(
        self,
        connect: Callable[[str], PullClient] = rpc.Client,
        spill: SpillDirectory | None = None,
        compressor: str = "",
    ) -> AsyncIterator[tuple[Collector, dict[int, float]]]:
        """A running collector, and when (monotonic seconds) each commit_ts came out."""
        registry = await connect_registry(self.endpoint)
        collector = Collector(
            registry,
            self.upstream.history,
            cluster_id=self.upstream.cluster_id,
            after_ts=self.after_ts,
            clock=SystemClock(),
            queue_bytes_max=16 << 20,
            spill=spill or SpillDirectory("never made"),
            connect=connect,
            compressor=compressor,
        )
        seen: dict[int, float] = {}

        async def read() -> None:
            async for batch in collector.batches():
                for entry in batch.entries:
                    assert entry.commit_ts > max(seen, default=0)
                    assert entry.commit_ts <= batch.watermark
                    self.taken[entry.commit_ts] = entry
                    seen[entry.commit_ts] = time.monotonic()

        tasks = [asyncio.create_task(collector.run()), asyncio.create_task(read())]
        try:
            yield collector, seen
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await registry.close()

    async def online(self) -> None:
        """Both pumps take writes."""
        async with asyncio.timeout(PATIENCE_S):
            for pump in self.pumps:
                while await asyncio.to_thread(pump.state) != "online":
                    await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def pumps(etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PumpProcess]]:
    """Two, of a cluster of their own."""

    async def prepare() -> None:
        await (await StandaloneUpstream.connect(etcd)).close()

    asyncio.run(prepare())
    directory = tmp_path_factory.mktemp("pumps")
    made = [
        PumpProcess(name, port, directory, etcd)
        for name, port in zip(("p1", "p2"), free_ports(2), strict=True)
    ]
    try:
        for pump in made:
            pump.start()
        yield made
    finally:
        for pump in made:
            pump.kill()


@pytest.fixture
async def cluster(etcd: str, pumps: list[PumpProcess]) -> AsyncIterator[Cluster]:
    upstream = await StandaloneUpstream.connect(etcd)
    found = Cluster(etcd, upstream, pumps, await upstream.oracle.timestamp())
    try:
        await found.online()
        yield found
    finally:
        for pump in pumps:
            await pump.disconnect()
        await upstream.close()


async def arrived(seen: dict[int, float], wanted: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < len(wanted):
            await asyncio.sleep(0.01)
    assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("compressor", ["zstd", "gzip"])
async def test_compressed_pulls_bring_the_same(cluster: Cluster, tmp_path: Path, compressor: str) -> None:
    """Small ones and one that comes in parts."""
    for pump in cluster.pumps:
        await cluster.transaction(pump, 3000)
        await cluster.transaction(pump, 3000)
    await cluster.transaction(cluster.pumps[0], 200_000)
    spill = SpillDirectory(str(tmp_path / "spill"), above_bytes=100_000)
    async with cluster.collected(spill=spill, compressor=compressor) as (collector, seen):
        await arrived(seen, cluster.committed)
        assert {state.compression for state in collector.states().values()} == {compressor}
    for entry in cluster.taken.values():
        held = entry.spilled.read(0, entry.spilled.size) if entry.spilled else entry.payload
        assert cluster.rows[binlog.parse(held).start_ts] in held


async def test_everything_written_comes_out_once_in_order_and_soon(cluster: Cluster) -> None:
    async with cluster.collected() as (collector, seen):
        waits = []
        for _ in range(40):
            commit_ts = await cluster.transaction(cluster.rng.choice(cluster.pumps))
            written = time.monotonic()
            await arrived(seen, cluster.committed)
            waits.append(seen[commit_ts] - written)
        assert set(collector.positions()) == {"p1", "p2"}
        assert all(state.protocol == "PullBatches" for state in collector.states().values())
        assert sorted(waits)[len(waits) // 2] < 0.5, "an idle second pump must not hold the first one back"
        await asyncio.gather(*(cluster.transaction(cluster.rng.choice(cluster.pumps)) for _ in range(200)))
        await arrived(seen, cluster.committed)


async def test_a_killed_pump_holds_the_stream_and_comes_back(cluster: Cluster) -> None:
    async with cluster.collected() as (collector, seen):
        for _ in range(10):
            await cluster.transaction(cluster.rng.choice(cluster.pumps))
        await arrived(seen, cluster.committed)
        cluster.pumps[1].kill()
        await cluster.pumps[1].disconnect()
        held = await cluster.transaction(cluster.pumps[0])
        async with asyncio.timeout(PATIENCE_S):
            while not collector.waits_for.startswith("pump p2, not reachable"):
                await asyncio.sleep(0.01)
        assert collector.states()["p2"].error
        assert held not in seen
        cluster.pumps[1].start()
        await arrived(seen, cluster.committed)
        await cluster.online()
        await asyncio.gather(*(cluster.transaction(cluster.rng.choice(cluster.pumps)) for _ in range(50)))
        await arrived(seen, cluster.committed)


async def test_an_open_transaction_that_holds_the_stream_is_named(cluster: Cluster) -> None:
    transactions = cluster.upstream.transactions
    async with cluster.collected() as (collector, seen):
        start_ts = await transactions.begin(30.0)
        value = binlog_pb2.PrewriteValue(schema_version=1).SerializeToString()
        await cluster.pumps[1].write(cluster.upstream.cluster_id, binlog.prewrite(start_ts, b"k", value))
        held = await cluster.transaction(cluster.pumps[0])
        async with asyncio.timeout(PATIENCE_S):
            while (
                collector.waits_for != f"the watermark of pump p2 (open transaction with start_ts {start_ts})"
            ):
                await asyncio.sleep(0.01)
        assert held not in seen
        commit_ts = await transactions.commit(start_ts)
        await cluster.pumps[1].write(cluster.upstream.cluster_id, binlog.commit(start_ts, commit_ts, b"k"))
        await arrived(seen, [*cluster.committed, commit_ts])
        assert collector.states()["p2"].waits_for_start_ts == 0


class OldClient(rpc.Client):
    """Sees a pump as an old drainer does."""

    async def bidi(self, path: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        assert path == PULL_BATCHES
        raise rpc.RpcStatus(rpc.UNIMPLEMENTED, "unknown service binlog.PumpBatch")
        yield b""


async def test_the_old_protocol_gives_the_same_stream(cluster: Cluster) -> None:
    """Slower while idle: the only watermark are time marks, stored every 3 s. gRPC compresses what comes."""
    async with cluster.collected(OldClient, compressor="zstd") as (collector, seen):
        await asyncio.gather(*(cluster.transaction(cluster.rng.choice(cluster.pumps)) for _ in range(50)))
        await arrived(seen, cluster.committed)
        found = [(state.protocol, state.compression) for state in collector.states().values()]
        assert found == [("PullBinlogs", "gzip")] * 2


@pytest.mark.parametrize("connect", [rpc.Client, OldClient])
async def test_large_transactions_come_by_way_of_the_disk(
    cluster: Cluster, tmp_path: Path, connect: Callable[[str], PullClient]
) -> None:
    """In parts from a pump of ours, in one message over the old protocol, among small ones."""
    sizes = [10, 300_000, 5_000_000, 10, 3_000_000, 20_000, 10]
    spill = SpillDirectory(str(tmp_path / "spill"), above_bytes=100_000)
    async with cluster.collected(connect, spill) as (collector, seen):
        for number, size in enumerate(sizes):
            await cluster.transaction(cluster.pumps[number % 2], size)
        await arrived(seen, cluster.committed)
        for size, commit_ts in zip(sizes, cluster.committed, strict=True):
            entry = cluster.taken[commit_ts]
            assert (entry.spilled is not None) == (size > 100_000)
            payload = entry.spilled.read(0, 1 << 30) if entry.spilled else entry.payload
            message = binlog.parse(payload)
            value = binlog_pb2.PrewriteValue.FromString(message.prewrite_value)
            assert list(value.mutations[0].inserted_rows) == [cluster.rows[message.start_ts]]
            assert message.commit_ts == commit_ts
        assert list((tmp_path / "spill").iterdir()) == []
        assert collector.waits_for == "" or collector.waits_for.startswith("the watermark")
