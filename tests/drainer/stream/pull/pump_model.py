"""Pump model: a life of pumps that join, leave and write, in any order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from drainer.stream.pull.collector import Collector, MergedBatch
from drainer.stream.pull.spill import SpillDirectory
from tests.drainer.stream.pull.collected import NEVER_S, MemoryHistory
from tests.drainer.support.scripted_pump import (
    Connection,
    MemoryRegistry,
    ScriptedClient,
    ScriptedPump,
    row_payload,
)
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import Unavailable

TURNS = 25


class ModelPump:
    """A log of commits, and up to where it has promised that nothing more will come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[int] = []
        self.watermark = 0
        self.moves = 0
        self.scripted = ScriptedPump(self.address)
        self.served: Connection | None = None

    @property
    def address(self) -> str:
        return f"{self.name}{self.moves}:1"

    def move(self) -> None:
        """Another process under another address; the old one is gone."""
        self.scripted.up = False
        self.cut()
        self.moves += 1
        self.scripted = ScriptedPump(self.address)

    def cut(self) -> None:
        if self.scripted.connections:
            self.scripted.connection.fail(Unavailable("connection reset"))

    def serve(self) -> None:
        """What a connection that was opened meanwhile asks for."""
        connections = self.scripted.connections
        if connections and connections[-1].requests and connections[-1] is not self.served:
            self.served = connections[-1]
            after_ts = self.served.batch_requests()[0].after_ts
            self.send([ts for ts in self.log if ts > after_ts])

    def send(self, stamps: Sequence[int]) -> None:
        if self.served is not None and self.served in self.scripted.connections[-1:]:
            self.served.send([row_payload(ts - 1, ts) for ts in stamps], self.watermark)


class Life:
    """A cluster and the collector on it. Time is a number that every event moves on."""

    def __init__(self) -> None:
        self.now = 10
        self.pumps = {name: ModelPump(name) for name in "ab"}
        self.members = {"a", "b"}
        self.registry = MemoryRegistry()
        for name, pump in self.pumps.items():
            self.registry.change(name, "online", pump.address)
        self.batches: list[MergedBatch] = []
        self.collector = Collector(
            self.registry,  # type: ignore[arg-type]
            MemoryHistory(),
            cluster_id=77,
            after_ts=0,
            clock=ManualClock(),
            queue_bytes_max=1 << 20,
            spill=SpillDirectory("never made"),
            connect=self._connect,
            idle_ask_s=NEVER_S,
        )

    def _connect(self, address: str) -> ScriptedClient:
        for pump in self.pumps.values():
            if pump.address == address:
                return pump.scripted.client(address)
        gone = ScriptedPump(address)
        gone.up = False
        return gone.client(address)

    async def read(self) -> None:
        async for batch in self.collector.batches():
            self.batches.append(batch)

    async def happen(self) -> None:
        """Let the loop turn until nothing moves; no pause before a new attempt is waited out."""
        for _ in range(3):
            for source in self.collector._sources.values():
                source.retry_now()
            for pump in self.pumps.values():
                pump.serve()
            for _ in range(TURNS):
                await asyncio.sleep(0)

    # -- events --------------------------------------------------------------------------------------

    def write(self, name: str) -> None:
        """A transaction, which takes two moments: others may promise the one between."""
        pump = self.pumps[name]
        if name in self.members:
            self.now += 2
            pump.log.append(self.now)
            pump.watermark = self.now
            pump.send([self.now])

    def tell(self, name: str) -> None:
        self.now += 1
        self.pumps[name].watermark = self.now
        self.pumps[name].send([])

    def cut(self, name: str) -> None:
        self.pumps[name].cut()

    def pause(self, name: str) -> None:
        if name in self.members:
            self.pumps[name].scripted.up = False
            self.pumps[name].cut()
            self.registry.change(name, "paused", self.pumps[name].address)

    def resume(self, name: str) -> None:
        pump = self.pumps[name]
        if (
            name not in self.members
        ):  # it told everybody before it takes a prewrite: what came out is below it
            pump.watermark = max(pump.watermark, self.told)
            self.members.add(name)
        pump.scripted.up = True
        self.registry.change(name, "online", pump.address)

    def move(self, name: str) -> None:
        self.pumps[name].move()
        if name in self.members:
            self.registry.change(name, "online", self.pumps[name].address)

    def move_first(self, name: str) -> None:
        """The registry hears of it later than the drainer loses the connection."""
        self.pumps[name].move()

    def leave(self, name: str) -> None:
        """Offline: everything it had was pulled before, as a pump makes sure of."""
        source = self.collector._sources.get(self.collector._streams.get(name, ""))
        if (
            name in self.members
            and source is not None
            and source.position >= max(self.pumps[name].log, default=0)
        ):
            self.members.discard(name)
            self.registry.change(name, "offline", self.pumps[name].address)

    def lose(self, name: str) -> None:
        """Its registry entry goes: no leave."""
        if name in self.members and name in self.registry.entries:
            self.registry.change(name, None)

    # -- what must hold --------------------------------------------------------------------------------

    @property
    def told(self) -> int:
        return self.batches[-1].watermark if self.batches else 0

    def check(self) -> None:
        stamps = [entry.commit_ts for batch in self.batches for entry in batch.entries]
        watermarks = [batch.watermark for batch in self.batches]
        written = sorted(ts for pump in self.pumps.values() for ts in pump.log)
        assert watermarks == sorted(watermarks)
        assert stamps == [ts for ts in written if ts <= self.told], "in order, once, nothing left out"
        if self.members:
            assert self.told <= min(self.pumps[name].watermark for name in self.members), (
                "no source is overtaken"
            )

    async def end(self) -> None:
        """Everything is well again: all that was written comes out."""
        for name in self.pumps:
            self.resume(name)
        await self.happen()
        self.check()
        for name in self.pumps:
            self.tell(name)
        await self.happen()
        self.check()
        assert self.told >= self.now - 1
        assert {name: state.connected for name, state in self.collector.states().items()} == {
            "a": True,
            "b": True,
        }


Event = Callable[[Life], None]


EVENTS: dict[str, Event] = {
    f"{name} {verb}": (lambda life, name=name, verb=verb: getattr(life, verb)(name))  # type: ignore[misc]
    for name, verbs in (
        ("a", ("write", "tell", "cut", "pause")),
        ("b", ("write", "tell", "cut", "pause", "resume", "move", "move_first", "leave", "lose")),
    )
    for verb in verbs
}


@contextlib.asynccontextmanager
async def life() -> AsyncIterator[Life]:
    found = Life()
    tasks = [asyncio.create_task(found.collector.run()), asyncio.create_task(found.read())]
    try:
        await found.happen()
        yield found
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
