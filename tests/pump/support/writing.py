"""Streams of WriteBinlogs on a storage whose log is in memory, and a client of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pump.pull.puller import Pullers
from pump.server import PumpServer
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from pump.watermark.idle import IdleWatermark
from pump.write.admission import Disk
from pump.write.batch_stream import BatchWrites
from pump.write.disk_guard import DiskGuard
from tests.pump.support.memory_log import MemoryDirectory, MemoryFile
from tests.pump.support.payloads import opened
from tests.pump.support.scripted import ScriptedOracle
from tests.waiting import PATIENCE_S
from tidb_binlog import rpc
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

CLUSTER = 77

Failures = list[tuple[int, int, str]]

Reason = pump_pb2.WriteFailure


class Syncs:
    """Holds the syncs of a log file in memory until each is let go, or fails it."""

    def __init__(self, file: MemoryFile) -> None:
        self._turns = threading.Semaphore(0)
        self._sync = file.sync
        self.error: OSError | None = None
        file.sync = self._held  # type: ignore[method-assign]

    def _held(self) -> None:
        assert self._turns.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            raise self.error
        self._sync()

    def let(self, count: int = 1) -> None:
        self._turns.release(count)


@dataclass
class Pump:
    storage: Storage
    directory: MemoryDirectory
    guard: DiskGuard
    batches: BatchWrites
    server: PumpServer
    time: UpstreamTime
    state: str = node.ONLINE

    async def write(self, payload: bytes) -> str:
        """The text with which a single write fails; "" if it is stored."""
        request = pump_pb2.WriteBinlogReq(clusterID=CLUSTER, payload=payload)
        try:
            await self.server.write_binlog(request.SerializeToString())
        except rpc.RpcStatus as error:
            return str(error)
        return ""

    def held(self) -> Syncs:
        return Syncs(self.directory.files["000000.vlog"])

    @property
    def log(self) -> bytes:
        return b"".join(bytes(file.data) for _, file in sorted(self.directory.files.items()))


@asynccontextmanager
async def pump(
    path: Path, *, in_flight: int = 4 << 20, clients_know: bool = True, **limits: Any
) -> AsyncIterator[Pump]:
    directory = MemoryDirectory()
    options = {"limits": StorageLimits(**limits), "clients_know": clients_know}
    async with opened(path, directory=directory, **options) as storage:
        guard = DiskGuard(str(path), 0)
        guard.disk = Disk(1 << 30, 1 << 20)
        made: list[Pump] = []
        oracle, clock = ScriptedOracle(), SystemClock()
        idle, time = (
            IdleWatermark(oracle, lambda: storage.watermark, storage.mark),
            UpstreamTime(oracle, clock),
        )
        pullers = Pullers(storage, idle, CLUSTER)
        server = PumpServer(storage, pullers, guard, CLUSTER, lambda: made[0].state, clock, time)
        batches = BatchWrites(
            storage, guard, CLUSTER, lambda: made[0].state, clock, time, in_flight_bytes_max=in_flight
        )
        made.append(Pump(storage, directory, guard, batches, server, time))
        async with asyncio.timeout(PATIENCE_S):
            yield made[0]


class Writing:
    """A client of one stream."""

    def __init__(self, batches: BatchWrites) -> None:
        self.read = 0  # messages that the stream has taken
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers = batches.write_binlogs(self._sent())
        self._first = True

    def send(self, *payloads: bytes, cluster: int = CLUSTER) -> None:
        request = pump_pb2.WriteBinlogsReq(cluster_id=cluster if self._first else 0, payloads=payloads)
        self._first = False
        self.send_octets(request.SerializeToString())

    def send_octets(self, data: bytes) -> None:
        self._requests.put_nowait(data)

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    async def _sent(self) -> AsyncIterator[bytes]:
        while (data := await self._requests.get()) is not None:
            self.read += 1
            yield data

    async def next(self) -> tuple[int, Failures]:
        return told(await anext(self.answers))

    async def to(self, answered: int) -> Failures:
        """All failures until so many are answered."""
        failures: Failures = []
        seen = 0
        while seen < answered:
            before = seen
            seen, more = await self.next()
            assert seen > before
            assert all(before < number <= seen for number, _, _ in more)
            failures += more
        assert seen == answered
        return failures

    async def ended(self) -> None:
        """It ends without another answer. Raises what it ends with."""
        assert await anext(self.answers, None) is None

    async def is_quiet(self) -> bool:
        """Whether no answer comes, however often the loop turns; one that comes later is `pending`."""
        self.pending = asyncio.ensure_future(anext(self.answers))
        for _ in range(50):
            await asyncio.sleep(0)
        return not self.pending.done()

    async def later(self) -> tuple[int, Failures]:
        return told(await self.pending)


def told(data: bytes) -> tuple[int, Failures]:
    answer = pump_pb2.WriteBinlogsResp.FromString(data)
    return answer.answered, [(one.number, one.reason, one.text) for one in answer.failures]


class Calls:
    """What each of some calls was answered with."""

    def __init__(self, count: int, cancelled: int = 0) -> None:
        self.count = count
        self._waiting = count - cancelled
        self.end: bytes | BaseException | None = None

    def _ended(self, end: bytes | BaseException) -> int:
        assert self.end is None, "ended once"
        self.end = end
        return self._waiting

    def succeed(self, reply: bytes) -> int:
        return self._ended(reply)

    def fail(self, error: BaseException) -> int:
        return self._ended(error)
