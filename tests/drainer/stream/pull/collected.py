"""Collected: a Collector among pumps and a registry in memory."""

from __future__ import annotations

import json

from drainer.stream.pull.collector import Collector, MergedBatch
from drainer.stream.pull.spill import SpillDirectory
from tests.drainer.support.scripted_pump import (
    MemoryRegistry,
    ScriptedClient,
    ScriptedPump,
    row_payload,
)
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable

NEVER_S = 3600.0


class MemoryHistory:
    """DDL history of an upstream that writes jobs when told to."""

    def __init__(self) -> None:
        self.finished: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.down = False

    def finish(self, job_id: int) -> None:
        self.finished[job_id] = json.dumps({"id": job_id, "type": 5}).encode()

    async def job(self, job_id: int) -> bytes | None:
        self.asked.append(job_id)
        if self.down:
            raise Unavailable("history is down")
        return self.finished.get(job_id)

    async def jobs(self, after_id: int = 0) -> list[bytes]:
        return [job for job_id, job in self.finished.items() if job_id > after_id]


class World:
    """A collector over a registry in memory and scripted pumps."""

    def __init__(
        self,
        registry: MemoryRegistry,
        *,
        after_ts: int,
        queue_bytes: int,
        idle_ask_s: float,
        spill: SpillDirectory | None = None,
    ) -> None:
        self.registry = registry
        self.history = MemoryHistory()
        self.pumps: dict[str, ScriptedPump] = {}
        self.collector = Collector(
            registry,  # type: ignore[arg-type]
            self.history,
            cluster_id=77,
            after_ts=after_ts,
            clock=ManualClock(),
            queue_bytes_max=queue_bytes,
            spill=spill or SpillDirectory("never made"),
            connect=self.connect,
            idle_ask_s=idle_ask_s,
        )
        self.batches: list[MergedBatch] = []

    def pump(self, name: str) -> ScriptedPump:
        return self.pumps.setdefault(f"{name}:1", ScriptedPump(f"{name}:1"))

    def connect(self, address: str) -> ScriptedClient:
        return self.pump(address.removesuffix(":1")).client(address)

    @property
    def stamps(self) -> list[int]:
        return [entry.commit_ts for batch in self.batches for entry in batch.entries]

    @property
    def watermark(self) -> int:
        return self.batches[-1].watermark if self.batches else 0

    async def read(self) -> None:
        async for batch in self.collector.batches():
            self.batches.append(batch)

    async def sends(self, name: str, stamps: list[int], watermark: int, size: int = 10) -> None:
        connection = await self.pump(name).connected()
        connection.send([row_payload(ts - 1, ts, size=size) for ts in stamps], watermark)
