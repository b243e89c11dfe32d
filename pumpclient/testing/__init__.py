"""For the host's own tests: pumps, registry, upstream and time in memory. No process, no socket, no wait.

    from pumpclient.testing import MemoryCluster

    async def test_my_program():
        cluster = MemoryCluster(["a", "b"])
        async with cluster.client() as client:
            await client.write_prewrite(1, b"key", b"value")
        assert len(cluster.pumps["a"].payloads) == 1

`binlog_testing` has a cluster that can be read, too. The doubles keep the contracts of what they stand for;
the library's own tests run on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from pumpclient.client import PumpClient
from pumpclient.opening import opening
from pumpclient.options import Options
from pumpclient.publish.outcome_table import Outcomes
from pumpclient.publish.publisher import Publisher
from pumpclient.send.transport import RpcTransport, TransportFailure
from pumpclient.send.write_policy import Failure
from pumpclient.testing.memory_pump import MemoryPump, MemoryRpc, Waiters
from pumpclient.testing.memory_upstream import MemoryUpstream
from tidb_binlog.clock import Clock, ManualClock, SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.errors import BinlogError
from tidb_binlog.tso import Ts


class ManualTime(ManualClock):
    """A clock with a `sleep` that returns when the clock has been moved far enough."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        super().__init__(start_s)
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        """Until the clock has been moved so far."""
        sleeper = (self.now_s + seconds, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self._sleepers.remove(sleeper)

    def sleeping(self) -> int:
        """How many tasks are in `sleep` now."""
        return len(self._sleepers)

    async def run(self, seconds: float) -> None:
        """Let `seconds` pass: sleepers wake in order, each at its own time."""
        end_s = self.now_s + seconds
        await settle()
        while True:
            due = [sleeper for sleeper in self._sleepers if sleeper[0] <= end_s and not sleeper[1].done()]
            if not due:
                break
            at_s, future = min(due, key=lambda sleeper: sleeper[0])
            self.now_s = max(self.now_s, at_s)
            future.set_result(None)
            await settle()
        self.now_s = end_s


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(50):
        await asyncio.sleep(0)


class Time(Clock, Protocol):
    """What a cluster takes for the time."""

    async def sleep(self, seconds: float) -> None: ...


class RealTime(SystemClock):
    """This host's."""

    sleep = staticmethod(asyncio.sleep)


class MemoryTransport:
    """A `PumpTransport` to `MemoryPump`s. An address without a pump is unreachable."""

    def __init__(self, time: Time) -> None:
        self.pumps: dict[str, MemoryPump] = {}
        self._time = time
        self._connected: set[str] = set()

    async def write(self, address: str, cluster_id: int, payload: bytes, timeout_s: float) -> None:
        await asyncio.sleep(0)
        pump = self.pumps.get(address)
        if pump is None:
            raise TransportFailure(Failure.UNREACHABLE, f"pump at {address} does not answer")
        pump.attempts += 1
        if address not in self._connected:
            self._connected.add(address)
            pump.connections += 1
        if pump.hanging:
            await self._time.sleep(timeout_s)
            self._connected.discard(address)
            raise TransportFailure(Failure.UNREACHABLE, f"pump at {address} did not answer in time")
        refused = pump.receive(cluster_id, payload)
        if refused is None:
            return
        failure, text = refused
        if failure is Failure.UNREACHABLE:
            self._connected.discard(address)
        raise TransportFailure(failure, text)

    def connected(self, address: str) -> bool:
        """Whether a connection to this address is open."""
        return address in self._connected

    async def drop(self, address: str) -> None:
        self._connected.discard(address)

    async def close(self) -> None:
        self._connected.clear()


class MemoryRegistry:
    """A registry of pumps that tests change by hand."""

    def __init__(self) -> None:
        self._pumps: dict[str, NodeEntry] = {}
        self._revision = 1
        self._waiters = Waiters()
        self._break: BinlogError | None = None

    def set(
        self,
        node_id: str,
        *,
        host: str = "",
        state: str = node.ONLINE,
        alive: bool | None = None,
        max_commit_ts: Ts = 0,
        labels: Mapping[str, str] | None = None,
        score: int = 0,
    ) -> None:
        """Write one pump's entry."""
        self._revision += 1
        label = node.label_of(labels or {})
        status = node.NodeStatus(node_id, host or node_id, state, max_commit_ts, score=score, label=label)
        self._pumps[node_id] = NodeEntry(status, self._revision, alive)
        self._tell()

    def remove(self, node_id: str) -> None:
        """Delete one pump's entry."""
        self._revision += 1
        del self._pumps[node_id]
        self._tell()

    def break_watch(self, error: BinlogError) -> None:
        """End every watch with this error. Changes until the next one begins are not delivered."""
        self._break = error
        self._tell()

    async def view(self) -> ClusterView:
        return ClusterView(self._revision, MappingProxyType(dict(self._pumps)), MappingProxyType({}))

    async def watch(self) -> AsyncGenerator[ClusterView, None]:
        with self._waiters.waiting() as changed:
            while True:
                yield await self.view()
                await changed.wait()
                changed.clear()
                if self._break is not None:
                    error, self._break = self._break, None
                    raise error

    async def close(self) -> None:
        """Nothing to end."""

    def _tell(self) -> None:
        self._waiters.wake()


class MemoryCluster:
    """Registered pumps, an upstream and a clock. `pumps` by node id, which is also the address. `time`: a
    `ManualTime`, or the host's (`RealTime`); timestamps of the latter say when they were drawn."""

    def __init__(
        self, pump_ids: Iterable[str] = ("a", "b"), *, cluster_id: int = 1, time: Time | None = None
    ) -> None:
        self._time = time or ManualTime()
        self.registry = MemoryRegistry()

        self.transport = MemoryTransport(self._time)
        self.upstream = MemoryUpstream(self._time, cluster_id, dated=isinstance(self._time, RealTime))
        self.cluster_id = cluster_id
        self.pumps = self.transport.pumps
        for pump_id in pump_ids:
            self.add_pump(pump_id)

    @property
    def time(self) -> ManualTime:
        """The clock to move by hand."""
        assert isinstance(self._time, ManualTime), "this cluster's time is the host's"
        return self._time

    def add_pump(self, pump_id: str) -> MemoryPump:
        """Register one more pump, online."""
        self.pumps[pump_id] = MemoryPump(pump_id, self.cluster_id)
        self.registry.set(pump_id)
        return self.pumps[pump_id]

    def client(
        self,
        strategy: str = "range",
        options: Options | None = None,
        *,
        batches: bool = False,
        label: Mapping[str, str] | None = None,
    ) -> PumpClient:
        """A client of these pumps; enter it to start it. `batches`: with the real transport on connections
        that end in memory, so that what real pumps get as one message is one here (`MemoryPump.messages`).
        """
        return PumpClient(
            self.registry,
            self.rpc_transport() if batches else self.transport,
            cluster_id=self.cluster_id,
            strategy=strategy,
            options=options,
            clock=self._time,
            sleep=self._time.sleep,
            label=label,
        )

    def rpc_transport(self) -> RpcTransport:
        """The transport of `connect`, to these pumps."""

        def dial(address: str) -> MemoryRpc:
            return MemoryRpc(address, lambda: self.pumps.get(address), self._time.sleep)

        return RpcTransport(dial=dial, clock=self._time, sleep=self._time.sleep)

    @opening
    async def publisher(self, outcomes: Outcomes | None = None) -> Publisher:
        """A started publisher on these pumps and this upstream; awaited, or entered with `async with`."""
        client = self.client()
        await client.start()
        publisher = Publisher(
            client, self.upstream, outcomes=outcomes, clock=self._time, sleep=self._time.sleep
        )
        await publisher.start()
        return publisher
