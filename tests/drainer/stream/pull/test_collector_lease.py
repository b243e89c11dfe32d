"""A pump that joined while we had no lease did not wait for us: nothing may go out before it is found."""

from __future__ import annotations

import asyncio

from tests.drainer.stream.pull.collected import NEVER_S, World
from tests.drainer.support.scripted_pump import MemoryRegistry
from tests.waiting import settle, until


class Lease:
    """What the heartbeat would say."""

    def __init__(self) -> None:
        self.unbroken: int | None = 1

    def __call__(self) -> int | None:
        return self.unbroken


async def test_nothing_passes_a_pump_that_joined_while_the_lease_was_gone() -> None:
    registry, lease = MemoryRegistry(a="online"), Lease()
    w = World(registry, after_ts=0, queue_bytes=1 << 20, idle_ask_s=NEVER_S)
    w.collector._unbroken = lease
    tasks = [asyncio.create_task(w.collector.run()), asyncio.create_task(w.read())]
    try:
        await w.sends("a", [3], 8)
        await until(lambda: w.stamps == [3])
        lease.unbroken = None  # frozen for longer than the lease
        registry.change("b", "online", watched=False)  # it found us dead, and accepts writes
        await w.sends("a", [20], 30)
        await until(lambda: "hears from us" in w.collector.waits_for)
        await settle()
        assert w.stamps == [3], "b may have committed below 20"
        lease.unbroken = 2  # the heartbeat announced us anew
        await until(lambda: "b" in w.collector.positions())
        connection = await w.pump("b").connected()
        assert connection.batch_requests()[0].after_ts == 8
        await settle()
        assert w.stamps == [3]
        await w.sends("b", [10], 40)
        await until(lambda: w.stamps == [3, 10, 20])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_registry_that_is_away_is_waited_for() -> None:
    registry, lease = MemoryRegistry(a="online"), Lease()
    w = World(registry, after_ts=0, queue_bytes=1 << 20, idle_ask_s=NEVER_S)
    w.collector._unbroken = lease
    tasks = [asyncio.create_task(w.collector.run()), asyncio.create_task(w.read())]
    try:
        await w.sends("a", [3], 8)
        await until(lambda: w.stamps == [3])
        registry.down, lease.unbroken = True, 2
        await w.sends("a", [20], 30)
        await settle()
        assert w.stamps == [3]
        registry.down = False
        await until(lambda: w.stamps == [3, 20])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
