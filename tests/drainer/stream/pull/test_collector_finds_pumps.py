"""A reader that no pump tells finds pumps itself: nothing passes one that joined, nor one that left early."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from drainer.stream.pull.collector import Collector
from drainer.stream.pull.pump_source import BinlogsGone
from tests.drainer.stream.pull.collected import NEVER_S, World
from tests.drainer.stream.pull.pump_model import EVENTS, Life, ModelPump
from tests.drainer.support.scripted_pump import MemoryRegistry
from tests.waiting import PATIENCE_S, settle, until
from tidb_binlog.cluster.registry import ClusterView


class SlowRegistry(MemoryRegistry):
    """Its watch says nothing of what happens, and a listing waits until it is let through."""

    def __init__(self, **pumps: str) -> None:
        super().__init__(**pumps)
        self.begun = 0
        self.let = asyncio.Event()
        self.let.set()

    async def view(self) -> ClusterView:
        found = await super().view()  # as it is when the listing begins
        self.begun += 1
        await self.let.wait()
        return found


@contextlib.asynccontextmanager
async def world(
    registry: MemoryRegistry, *, after_ts: int = 0
) -> AsyncIterator[tuple[World, asyncio.Task[None]]]:
    w = World(registry, after_ts=after_ts, queue_bytes=1 << 20, idle_ask_s=NEVER_S)
    w.collector = Collector(
        registry,  # type: ignore[arg-type]
        w.history,  # type: ignore[arg-type]
        cluster_id=77,
        after_ts=after_ts,
        clock=w.collector._clock,
        queue_bytes_max=1 << 20,
        spill=w.collector._spill,
        connect=w.connect,
        idle_ask_s=NEVER_S,
        finds_pumps=True,
    )
    run = asyncio.create_task(w.collector.run())
    read = asyncio.create_task(w.read())
    try:
        yield w, run
    finally:
        run.cancel()
        read.cancel()
        await asyncio.gather(run, read, return_exceptions=True)


async def test_nothing_goes_out_before_a_listing_that_is_later_than_the_watermark() -> None:
    registry = SlowRegistry(a="online")
    async with world(registry) as (w, _):
        registry.let.clear()
        await w.sends("a", [3], 8)
        await settle()
        assert w.stamps == []
        registry.let.set()
        await until(lambda: w.stamps == [3])
        assert w.watermark == 8


async def test_a_pump_that_joins_between_watermark_and_emission_is_waited_for() -> None:
    registry = SlowRegistry(a="online")
    async with world(registry) as (w, _):
        await w.sends("a", [3], 8)
        await until(lambda: w.stamps == [3])
        registry.change("b", "online", watched=False)  # nobody tells us
        await w.sends("a", [20], 30)  # known before the next listing, which finds b
        await until(lambda: "b" in w.collector.positions())
        await settle()
        assert w.stamps == [3], "b may have committed below 20"
        connection = await w.pump("b").connected()
        assert connection.batch_requests()[0].after_ts == 8
        await w.sends("b", [10], 40)
        await until(lambda: w.stamps == [3, 10, 20])


async def test_what_arrives_while_a_listing_is_under_way_waits_for_the_next_one() -> None:
    """A pump that registers after that listing may commit below it."""
    registry = SlowRegistry(a="online")
    async with world(registry) as (w, _):
        registry.let.clear()
        await w.sends("a", [3], 8)
        await until(lambda: registry.begun)
        registry.change("b", "online", watched=False)  # too late for that listing
        await w.sends("a", [20], 30)
        registry.let.set()
        await until(lambda: "b" in w.collector.positions())
        assert w.stamps == [3]
        assert w.watermark == 8
        await w.sends("b", [10], 40)
        await until(lambda: w.stamps == [3, 10, 20])


async def test_a_registry_that_is_away_holds_the_stream_and_says_so() -> None:
    registry = MemoryRegistry(a="online")
    async with world(registry) as (w, _):
        await w.pump("a").connected()
        registry.down = True
        await w.sends("a", [3], 8)
        await until(lambda: "pumps that may have joined" in w.collector.waits_for)
        assert w.stamps == []
        registry.down = False
        await until(lambda: w.stamps == [3])


async def test_a_pump_that_left_before_all_of_it_was_read_stops_the_stream() -> None:
    registry = MemoryRegistry(a="online", b="online")
    async with world(registry) as (w, run):
        for name in "ab":
            await w.sends(name, [], 8)
        await until(lambda: w.collector.positions() == {"a": 8, "b": 8})
        registry.change("b", "offline", last_ts=9)
        with pytest.raises(BinlogsGone, match="up to commit_ts 9; of it only those up to 8") as caught:
            await asyncio.wait_for(run, PATIENCE_S)
        assert caught.value.lowest == 9


async def test_a_pump_that_left_after_all_of_it_was_read_is_forgotten() -> None:
    registry = MemoryRegistry(a="online", b="online")
    async with world(registry) as (w, _):
        for name in "ab":
            await w.sends(name, [], 8)
        await until(lambda: w.collector.positions() == {"a": 8, "b": 8})
        registry.change("b", "offline", last_ts=8)
        await w.sends("a", [9], 12)
        await until(lambda: w.stamps == [9])
        await w.sends("a", [13], 14)
        await until(lambda: w.watermark == 14)


async def test_a_pump_that_was_there_only_between_two_listings_stops_the_stream() -> None:
    registry = SlowRegistry(a="online")
    async with world(registry) as (w, run):
        await w.sends("a", [3], 8)
        await until(lambda: w.stamps == [3])
        registry.change("b", "offline", last_ts=20, watched=False)
        await w.sends("a", [30], 31)
        with pytest.raises(BinlogsGone, match="pump b has left the cluster with binlogs up to commit_ts 20"):
            await asyncio.wait_for(run, PATIENCE_S)
        assert w.stamps == [3]


async def test_a_pump_that_left_long_ago_is_of_no_interest() -> None:
    registry = MemoryRegistry(a="online")
    registry.change("b", "offline", last_ts=7)
    async with world(registry, after_ts=7) as (w, _):
        await w.sends("a", [8], 8)
        await until(lambda: w.stamps == [8])


class UntoldLife(Life):
    """The same for a reader that nobody tells: pumps take prewrites as soon as they are registered."""

    def __init__(self) -> None:
        super().__init__()
        old = self.collector
        self.collector = Collector(
            self.registry,  # type: ignore[arg-type]
            old._jobs._history,
            cluster_id=77,
            after_ts=0,
            clock=old._clock,
            queue_bytes_max=1 << 20,
            spill=old._spill,
            connect=self._connect,
            idle_ask_s=NEVER_S,
            finds_pumps=True,
        )

    def resume(self, name: str) -> None:
        """What it commits from now on is later than what anybody knows; its watermark is old."""
        pump: ModelPump = self.pumps[name]
        self.members.add(name)
        pump.scripted.up = True
        self.registry.change(name, "online", pump.address, watched=False)

    def check(self) -> None:
        stamps = [entry.commit_ts for batch in self.batches for entry in batch.entries]
        written = sorted(ts for pump in self.pumps.values() for ts in pump.log)
        assert stamps == [ts for ts in written if ts <= self.told], "in order, once, nothing left out"


@pytest.mark.parametrize("seed", range(20))
async def test_in_no_life_of_a_cluster_something_is_passed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drainer.stream.pull.collector.LIST_GAP_S", 0.0)
    rng = random.Random(seed)
    names = [name for name in EVENTS if name not in ("b lose", "b move_first")]
    schedule = [rng.choice(names) for _ in range(25)]
    found = UntoldLife()
    tasks = [asyncio.create_task(found.collector.run()), asyncio.create_task(found.read())]
    try:
        await found.happen()
        for name in schedule:
            EVENTS[name](found)
            if rng.random() < 0.7:
                await found.happen()
            found.check()
        await found.happen()
        await found.end()
    except AssertionError as error:
        raise AssertionError(f"{schedule}: {error}") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
