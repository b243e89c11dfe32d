"""A pump's services in this process: a real storage, a scripted upstream, and a client of PullBatches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pump.pull.puller import Pullers
from pump.pull.session import MESSAGE_BYTES_MAX
from pump.server import PumpServer
from pump.storage.storage import Storage
from pump.watermark.idle import IdleWatermark
from pump.watermark.resolve_schedule import ResolveSchedule
from pump.watermark.resolver import Resolver
from pump.write.disk_guard import DiskGuard
from tests.pump.support.payloads import opened
from tests.pump.support.scripted import ScriptedOracle, ScriptedTransactions
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.wire import pump_pb2

CLUSTER = 77


@dataclass
class Pump:
    storage: Storage
    server: PumpServer
    pullers: Pullers
    idle: IdleWatermark
    oracle: ScriptedOracle
    transactions: ScriptedTransactions
    guard: DiskGuard
    time: UpstreamTime
    clock: ManualClock
    state: str = node.ONLINE

    async def write(self, payload: bytes, cluster: int = CLUSTER) -> bytes:
        request = pump_pb2.WriteBinlogReq(clusterID=cluster, payload=payload)
        return await self.server.write_binlog(request.SerializeToString())


@asynccontextmanager
async def pump(path: Path, *, oracle: ScriptedOracle | None = None, **options: Any) -> AsyncIterator[Pump]:
    draws = oracle is not None
    async with opened(path, draws=draws, **options) as storage:
        oracle, transactions = oracle or ScriptedOracle(), ScriptedTransactions()
        idle = IdleWatermark(oracle, lambda: storage.watermark, storage.mark)
        if draws:
            storage.on_committed = idle.given
        clock = ManualClock()
        time = UpstreamTime(oracle, clock)
        pullers = Pullers(storage, idle, CLUSTER, time=time)
        guard = DiskGuard(str(path), 0)
        await guard.refresh()
        made: list[Pump] = []
        server = PumpServer(storage, pullers, guard, CLUSTER, lambda: made[0].state, SystemClock(), time)
        made.append(Pump(storage, server, pullers, idle, oracle, transactions, guard, time, clock))
        resolver = Resolver(
            storage,
            transactions,
            ResolveSchedule(waited_after_s=0.02, idle_after_s=0.05),
            SystemClock(),
            lambda: idle.is_awaited,
        )
        tasks = [asyncio.create_task(idle.run()), asyncio.create_task(resolver.run())]
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield made[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


class Puller:
    """A client of PullBatches."""

    def __init__(self, pump: Pump, after: int = 0, *, credit: int = 1 << 20, wait: int = 0) -> None:
        self.requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ask(credit=credit, wait=wait, cluster=CLUSTER, after=after)
        self.replies = pump.pullers.pull_batches(self._sent())

    def ask(
        self, *, credit: int = 0, wait: int = 0, cluster: int = 0, after: int = 0, given: int = 0
    ) -> None:
        request = pump_pb2.PullBatchesReq(
            cluster_id=cluster, after_ts=after, credit_bytes=credit, wait_watermark=wait, given_ts=given
        )
        self.requests.put_nowait(request.SerializeToString())

    async def _sent(self) -> AsyncIterator[bytes]:
        while (data := await self.requests.get()) is not None:
            yield data

    async def next(self) -> tuple[list[bytes], int]:
        reply = pump_pb2.PullBatchesResp.FromString(await anext(self.replies))
        return list(reply.payloads), reply.watermark

    async def is_quiet(self, seconds: float = 0.05) -> bool:
        """Whether nothing comes for a moment; a message that does come is lost."""
        task = asyncio.ensure_future(anext(self.replies))
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if done:
            return False
        self._pending = task
        return True

    async def is_quiet_until(self, condition: Callable[[], Any]) -> bool:
        """Whether nothing comes before that is so."""
        self._pending = asyncio.ensure_future(anext(self.replies))
        await until(condition)
        return not self._pending.done()

    async def later(self) -> tuple[list[bytes], int]:
        """The message after a quiet time."""
        reply = pump_pb2.PullBatchesResp.FromString(await self._pending)
        return list(reply.payloads), reply.watermark

    async def close(self) -> None:
        self.requests.put_nowait(None)
        async for _ in self.replies:
            pass


class PartPuller:
    """A client that takes parts; puts them together as they must come."""

    def __init__(self, pump: Pump, after: int = 0, *, credit: int, parts_above: int, **fields: Any) -> None:
        self.requests: asyncio.Queue[bytes] = asyncio.Queue()
        opening = pump_pb2.PullBatchesReq(
            cluster_id=CLUSTER, after_ts=after, credit_bytes=credit, parts_above=parts_above, **fields
        )
        self.requests.put_nowait(opening.SerializeToString())
        self.replies = pump.pullers.pull_batches(self._sent())
        self.credit = credit
        self.told = after
        self.part_sizes: list[int] = []

    def add(self, credit: int) -> None:
        self.credit += credit
        self.requests.put_nowait(pump_pb2.PullBatchesReq(credit_bytes=credit).SerializeToString())

    async def _sent(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.requests.get()

    async def message(self) -> pump_pb2.PullBatchesResp:
        async with asyncio.timeout(PATIENCE_S):
            return pump_pb2.PullBatchesResp.FromString(await anext(self.replies))

    async def payloads(self, count: int, credit: int) -> list[bytes]:
        """The next binlogs, `credit` being added whenever there is none."""
        found: list[bytes] = []
        begun = bytearray()
        while len(found) < count:
            if self.credit <= 0:
                self.add(credit)
            reply = await self.message()
            assert reply.watermark >= self.told
            if reply.HasField("part"):
                part = reply.part
                assert not reply.payloads
                assert part.offset == len(begun)
                assert reply.watermark == part.commit_ts - (part.offset + len(part.data) < part.size)
                assert len(part.data) <= max(self.credit, 40)
                assert len(part.data) <= MESSAGE_BYTES_MAX
                if not begun:
                    assert binlog.contents_offset(part.data) < len(part.data)
                begun += part.data
                self.credit -= len(part.data)
                self.part_sizes.append(len(part.data))
                if len(begun) == part.size:
                    found.append(bytes(begun))
                    begun.clear()
            else:
                assert not begun
                self.credit -= sum(map(len, reply.payloads))
                found += reply.payloads
            stamps = [binlog.parse(payload).commit_ts for payload in found[-1:]]
            assert not stamps or stamps[-1] <= reply.watermark
            self.told = reply.watermark
        return found
