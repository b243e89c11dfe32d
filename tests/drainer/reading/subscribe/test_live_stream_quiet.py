"""A day without a write, in virtual time: the position follows the clock, the lease holds, nothing grows."""

from __future__ import annotations

import asyncio
import gc

import pytest

from drainer.reading.subscribe.live_stream import LiveStream
from drainer.reading.subscribe.named_reader import NamedReader
from drainer.stream.pull.spill import SpillDirectory
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.reading.subscribe.streams import Upstream
from tests.drainer.support.scripted_pump import MemoryRegistry, ScriptedClient, ScriptedPump
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog import tso
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, ClusterView, NodeEntry

DAY_S = 24 * 3600.0
ASK_S = 20.0


def now_ts() -> int:
    return tso.from_wall_s(LoopClock().wall_s())


class Lease:
    """Of the one reader; `gaps_s` are the times between two extensions."""

    def __init__(self, ttl_s: int) -> None:
        self.ttl_s = ttl_s
        self.last_s = LoopClock().monotonic_s()
        self.longest_gap_s = 0.0
        self.withdrawn = False

    async def keep_alive(self) -> None:
        now_s = LoopClock().monotonic_s()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_s)
        self.last_s = now_s

    async def withdraw(self) -> None:
        self.withdrawn = True


class QuietRegistry(MemoryRegistry):
    """With an entry for a reader."""

    def __init__(self, **pumps: str) -> None:
        super().__init__(**pumps)
        self.reader: NodeEntry | None = None
        self.lease: Lease | None = None
        self.listings = 0

    async def view(self) -> ClusterView:
        self.listings += 1
        found = await super().view()
        drainers = {} if self.reader is None else {self.reader.status.node_id: self.reader}
        return ClusterView(found.revision, found.pumps, drainers)

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        assert kind == DRAINERS
        assert (expected or 0) == (0 if self.reader is None else self.reader.mod_revision)
        self.reader = NodeEntry(status, (expected or 0) + 1, True)
        return self.reader.mod_revision

    async def announce(self, kind: str, node_id: str, ttl_s: int) -> Lease:
        self.lease = Lease(ttl_s)
        return self.lease


async def serve(pump: ScriptedPump) -> None:
    """Its watermark is the time, whenever it is asked for a later one."""
    told = 0
    while True:
        await asyncio.sleep(5.0)
        if pump.connections and pump.connection.requests:
            wanted = max(one.wait_watermark for one in pump.connection.batch_requests()[-2:])
            del pump.connection.requests[:-2]
            if wanted > told:
                told = now_ts()
            pump.connection.send([], told)


async def day(*, named: bool) -> None:
    registry = QuietRegistry(a="online", b="online")
    pumps = {f"{name}:1": ScriptedPump(f"{name}:1") for name in "ab"}
    start_ts = now_ts()
    reader: NamedReader | None = None
    if named:
        reader = NamedReader("cache", registry, now_ts, LoopClock(), lambda: "")  # type: ignore[arg-type]
        await reader.register()

    def connect(address: str) -> ScriptedClient:
        return pumps[address].client(address)

    stream = LiveStream(
        Upstream([]),  # type: ignore[arg-type]
        registry,  # type: ignore[arg-type]
        Translator(SchemaTracker(), TableFilter()),
        after_ts=start_ts,
        clock=LoopClock(),
        connect=connect,
        spill=SpillDirectory("never made"),
        presence=reader,
        idle_ask_s=ASK_S,
    )
    stream.start()
    tasks = [asyncio.create_task(serve(pump)) for pump in pumps.values()]
    tasks.append(asyncio.create_task(stream.next()))  # type: ignore[arg-type]
    sizes = []
    for _ in range(24):
        await asyncio.sleep(DAY_S / 24)
        assert not tasks[-1].done(), "nothing was written"
        assert tso.age_s(stream.position, LoopClock().wall_s()) < ASK_S + 12, "the position follows the clock"
        if reader is not None:
            assert registry.reader is not None
            assert tso.age_s(registry.reader.status.max_commit_ts, LoopClock().wall_s()) < ASK_S + 15
        gc.collect()
        sizes.append(len(gc.get_objects()))
    if registry.lease is not None:
        assert registry.lease.longest_gap_s < registry.lease.ttl_s / 2, "the lease never came near its end"
    assert registry.listings < 3 * DAY_S / ASK_S
    assert sizes[-1] - sizes[2] < 500, f"objects pile up: {sizes}"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await stream.close()
    if reader is not None:
        await reader.close()
        assert registry.lease is not None
        assert registry.lease.withdrawn


@pytest.mark.parametrize("named", [False, True])
def test_a_day_of_silence(named: bool) -> None:
    virtual_time.run(day(named=named))
