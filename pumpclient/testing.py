"""For the host's own tests: pumps, registry, upstream and time in memory. No process, no socket, no wait.

    from pumpclient.testing import MemoryCluster

    async def test_my_program():
        cluster = MemoryCluster(["a", "b"])
        async with cluster.client() as client:
            await client.write_prewrite(1, b"key", b"value")
        assert len(cluster.pumps["a"].payloads) == 1

The doubles keep the contracts of what they stand for; the library's own tests run on them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from types import MappingProxyType

from common import binlog, node
from common.clock import ManualClock
from common.errors import BinlogError, Conflict
from common.registry import ClusterView, NodeEntry
from common.upstream import Committed, Outcome, RolledBack, Undecided
from pumpclient.client import PumpClient
from pumpclient.options import Options
from pumpclient.publisher import Publisher
from pumpclient.transport import TransportFailure
from pumpclient.write_policy import Failure


class ManualTime(ManualClock):
    """A clock with a `sleep` that returns when the clock has been moved far enough."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        super().__init__(start_s)
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
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
        """Let `seconds` pass: sleepers wake in order, each at its own moment."""
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


@dataclass(slots=True)
class MemoryPump:
    """A pump that keeps what it acknowledged. Change `cluster_id`, `failures` and `hanging` at will."""

    address: str
    cluster_id: int
    payloads: list[bytes] = field(default_factory=list)
    attempts: int = 0
    probes: int = 0
    connections: int = 0
    """How many times a client has connected."""
    failures: deque[Failure] = field(default_factory=deque)
    """Answers to the next calls, one each; then it works again."""
    broken: Failure | None = None
    """Answer to every call while set."""
    hanging: bool = False
    """While set, calls are not answered; the deadline ends them."""

    def transactions(self) -> list[tuple[int, int, int]]:
        """(tp, start_ts, commit_ts) of each stored payload."""
        headers = [binlog.header(binlog.parse(payload)) for payload in self.payloads]
        return [(header.tp, header.start_ts, header.commit_ts) for header in headers]


class MemoryTransport:
    """A `PumpTransport` to `MemoryPump`s. An address without a pump is unreachable."""

    def __init__(self, time: ManualTime) -> None:
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
        failure = pump.failures.popleft() if pump.failures else pump.broken
        if failure is not None:
            if failure is Failure.UNREACHABLE:
                self._connected.discard(address)
            raise TransportFailure(failure, f"pump at {address}: {failure.value}")
        if cluster_id != pump.cluster_id:
            text = f"cluster ID are mismatch, {cluster_id} vs {pump.cluster_id}"
            raise TransportFailure(Failure.FAILED, text)
        if payload:
            pump.payloads.append(payload)
        else:
            pump.probes += 1

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
        self._changed: set[asyncio.Event] = set()
        self._break: BinlogError | None = None

    def set(
        self, node_id: str, *, host: str = "", state: str = node.ONLINE, alive: bool | None = None
    ) -> None:
        """Write one pump's entry."""
        self._revision += 1
        status = node.NodeStatus(node_id, host or node_id, state)
        self._pumps[node_id] = NodeEntry(status, self._revision, alive)
        self._tell()

    def remove(self, node_id: str) -> None:
        """Delete one pump's entry."""
        self._revision += 1
        del self._pumps[node_id]
        self._tell()

    def break_watch(self, error: BinlogError) -> None:
        """End every watch with this error. Changes until the next one begins are not told."""
        self._break = error
        self._tell()

    async def view(self) -> ClusterView:
        return ClusterView(self._revision, MappingProxyType(dict(self._pumps)), MappingProxyType({}))

    async def watch(self) -> AsyncGenerator[ClusterView, None]:
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            while True:
                yield await self.view()
                await changed.wait()
                changed.clear()
                if self._break is not None:
                    error, self._break = self._break, None
                    raise error
        finally:
            self._changed.discard(changed)

    async def close(self) -> None:
        """Nothing to end."""

    def _tell(self) -> None:
        for changed in self._changed:
            changed.set()


class MemoryUpstream:
    """Timestamps, outcomes and DDL history, as the standalone upstream keeps them. `log` has every step."""

    def __init__(self, time: ManualTime, cluster_id: int = 1) -> None:
        self.cluster_id = cluster_id
        self.log: list[tuple[str, int]] = []
        self.entries: dict[int, Outcome] = {}
        self.deadlines: dict[int, float] = {}
        self.job_list: list[bytes] = []
        self.failing: dict[str, BinlogError] = {}
        """Step (`commit`, `forget`, ...) to the error it raises."""
        self._time = time
        self._last_ts = 0

    @property
    def oracle(self) -> MemoryUpstream:
        return self

    @property
    def transactions(self) -> MemoryUpstream:
        return self

    @property
    def history(self) -> MemoryUpstream:
        return self

    async def close(self) -> None:
        """Nothing to end."""

    async def timestamp(self) -> int:
        self._last_ts += 1
        return self._last_ts

    async def begin(self, ttl_s: float = 3.0) -> int:
        start_ts = await self.timestamp()
        self._step("begin", start_ts)
        self.entries[start_ts] = Undecided(ttl_s)
        self.deadlines[start_ts] = self._time.monotonic_s() + ttl_s
        return start_ts

    async def commit(self, start_ts: int) -> int:
        self._step("commit", start_ts)
        self._require_open(start_ts)
        commit_ts = await self.timestamp()
        self.entries[start_ts] = Committed(commit_ts)
        return commit_ts

    async def roll_back(self, start_ts: int) -> None:
        self._step("roll_back", start_ts)
        if isinstance(self.entries.get(start_ts), Committed):
            raise Conflict(f"transaction {start_ts} is committed")
        self.entries[start_ts] = RolledBack()

    async def keep_alive(self, start_ts: int, ttl_s: float) -> None:
        self._step("keep_alive", start_ts)
        self._require_open(start_ts)
        self.deadlines[start_ts] = self._time.monotonic_s() + ttl_s

    async def forget(self, start_ts: int) -> None:
        self._step("forget", start_ts)
        del self.entries[start_ts]

    async def outcomes(self, transactions: list[tuple[int, bytes]]) -> list[Outcome]:
        """As pumps ask it: an expired lease is rolled back by the question."""
        for start_ts, _ in transactions:
            expired = self.deadlines.get(start_ts, 0.0) <= self._time.monotonic_s()
            if expired and isinstance(self.entries.get(start_ts, Undecided(0.0)), Undecided):
                self.entries[start_ts] = RolledBack()
        return [self.entries[start_ts] for start_ts, _ in transactions]

    async def add(self, job_json: bytes) -> int:
        self._step("add", 0)
        self.job_list.append(job_json)
        return len(self.job_list)

    async def pages(self) -> AsyncGenerator[list[bytes], None]:
        yield list(self.job_list)

    def _step(self, name: str, start_ts: int) -> None:
        self.log.append((name, start_ts))
        if name in self.failing:
            raise self.failing[name]

    def _require_open(self, start_ts: int) -> None:
        if not isinstance(self.entries.get(start_ts), Undecided):
            raise Conflict(f"transaction {start_ts} is no longer open")


class MemoryCluster:
    """Registered pumps, an upstream and a clock. `pumps` by node id, which is also the address."""

    def __init__(self, pump_ids: Iterable[str] = ("a", "b"), *, cluster_id: int = 1) -> None:
        self.time = ManualTime()
        self.registry = MemoryRegistry()
        self.transport = MemoryTransport(self.time)
        self.upstream = MemoryUpstream(self.time, cluster_id)
        self.cluster_id = cluster_id
        self.pumps = self.transport.pumps
        for pump_id in pump_ids:
            self.add_pump(pump_id)

    def add_pump(self, pump_id: str) -> MemoryPump:
        """Register one more pump, online."""
        self.pumps[pump_id] = MemoryPump(pump_id, self.cluster_id)
        self.registry.set(pump_id)
        return self.pumps[pump_id]

    def client(self, strategy: str = "range", options: Options | None = None) -> PumpClient:
        """A client of these pumps; enter it to start it."""
        return PumpClient(
            self.registry,
            self.transport,
            cluster_id=self.cluster_id,
            strategy=strategy,
            options=options,
            clock=self.time,
            sleep=self.time.sleep,
        )

    async def publisher(self) -> Publisher:
        """A started publisher on these pumps and this upstream."""
        client = self.client()
        await client.start()
        publisher = Publisher(client, self.upstream, clock=self.time, sleep=self.time.sleep)
        await publisher.start()
        return publisher
