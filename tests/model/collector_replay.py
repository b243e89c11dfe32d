"""Replay: walks through a `World`, and the real `Collector` beside it: the same goes out at each step.

It is given the views of the registry that the model's Drainer sees, late ones late, and what Pumps send. It
asks each Pump from where the model's merger let it join, and emits what the model emits.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator

from drainer.stream.pull.collector import Collector
from drainer.stream.pull.spill import SpillDirectory
from tests.drainer.support.scripted_pump import Connection, ScriptedClient, ScriptedPump, row_payload
from tests.model.joining import NAMES, NOBODY, WATCH, State, View, World
from tests.waiting import settle
from tidb_binlog.clock import ManualClock
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry


class Registry:
    """What others see of a registry: `watched` by who watches, `coming` is the next answer to who asks."""

    def __init__(self) -> None:
        self.watched: asyncio.Queue[ClusterView] = asyncio.Queue()
        self.coming: deque[asyncio.Future[ClusterView]] = deque()

    async def view(self) -> ClusterView:
        return await self.coming.popleft()

    async def watch(self) -> AsyncIterator[ClusterView]:
        while True:
            yield await self.watched.get()


def view_of(view: View) -> ClusterView:
    entries = {name: entry for name, entry in zip(NAMES, view.entries, strict=False) if entry}
    pumps = {name: NodeEntry(NodeStatus(name, name, entry), 1, True) for name, entry in entries.items()}
    return ClusterView(view.revision, pumps, {})


class Replay:
    """One walk. `steps`: what was done."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, random.Random(seed)
        self._pumps = {name: ScriptedPump(name) for name in NAMES}
        self._registry = Registry()
        # By who asked, what he will be told; the future is the watch's own, and nobody awaits it.
        self._slow: dict[int, tuple[asyncio.Future[ClusterView], ClusterView]] = {}
        self._told: set[asyncio.Task[None]] = set()
        self.steps: list[str] = []
        self._emitted: list[int] = []
        self._reached = 0

    async def run(self, steps: int) -> None:
        """Raises `AssertionError` with the steps to where the two differ."""
        collector = Collector(
            self._registry,
            None,
            cluster_id=77,
            after_ts=0,
            clock=ManualClock(),
            queue_bytes_max=1 << 20,
            spill=SpillDirectory("never made"),
            connect=self._connect,
            idle_ask_s=3600.0,
        )
        tasks = [asyncio.create_task(collector.run()), asyncio.create_task(self._read(collector))]
        state = self._world.first()
        self._registry.watched.put_nowait(
            view_of(View(WATCH, 0, tuple(pump.entry for pump in state.pumps), 0))
        )
        emitted: list[int] = []
        try:
            for _ in range(steps):
                await settle()
                choices = list(self._world.steps(state))
                if not choices:
                    break
                going_out = [step for step in choices if step[0].startswith("emit")]
                name, after = going_out[0] if going_out else self._random.choice(choices)
                self.steps.append(name)
                if going_out:
                    stamps = sorted(txn.commit_ts for txn in state.txns)
                    emitted += [ts for ts in stamps if state.announced < ts <= after.announced]
                else:
                    self._happen(collector, name, state, after)
                    await settle()
                    if not any(step.startswith("emit") for step, _ in self._world.steps(after)):
                        ours, theirs = (emitted, after.announced), (self._emitted, self._reached)
                        assert ours == theirs, f"{ours} and {theirs}: {', '.join(self.steps)}"
                state = after
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, *self._told):
                task.cancel()
            await asyncio.gather(*tasks, *self._told, return_exceptions=True)

    def _connect(self, address: str) -> ScriptedClient:
        return self._pumps[address].client(address)

    async def _read(self, collector: Collector) -> None:
        async for batch in collector.batches():
            self._emitted += [entry.commit_ts for entry in batch.entries]
            self._reached = batch.watermark

    def _happen(self, collector: Collector, name: str, before: State, after: State) -> None:
        verb, *rest = name.split()
        if verb == "looks":
            self._asks(collector, before, int(rest[0]))
            self._answer(int(rest[0]))
        elif verb == "asks":
            self._asks(collector, before, int(rest[0]))
        elif verb == "sees":
            (seen,) = set(before.views) - set(after.views) or {before.views[0]}
            self._answer(seen.who)
        elif verb == "start":
            at = int(rest[0])
            if at in self._slow:  # nobody waits for that answer any more; it comes all the same
                self._slow[NOBODY] = self._slow.pop(at)
        elif verb == "pull":
            at = int(rest[0])
            position, upto = before.pumps[at].position, after.pumps[at].position
            txns = [txn for txn in before.txns if txn.pump == at and position < txn.commit_ts <= upto]
            payloads = [
                row_payload(txn.start_ts, txn.commit_ts)
                for txn in sorted(txns, key=lambda txn: txn.commit_ts)
            ]
            self._connection(at, position).send(payloads, upto)

    def _connection(self, at: int, position: int) -> Connection:
        connection = self._pumps[NAMES[at]].connection
        asked = connection.batch_requests()[0].after_ts
        assert asked <= position, (
            f"{NAMES[at]} is asked from {asked}, not {position}: {', '.join(self.steps)}"
        )
        return connection

    def _asks(self, collector: Collector, before: State, who: int) -> None:
        view = View(who, before.revision, tuple(pump.entry for pump in before.pumps), 0)
        answer: asyncio.Future[ClusterView] = asyncio.get_running_loop().create_future()
        self._slow[who] = answer, view_of(view)
        if who != WATCH:
            self._registry.coming.append(answer)
            self._told.add(asyncio.get_running_loop().create_task(collector.notify()))

    def _answer(self, who: int) -> None:
        answer, view = self._slow.pop(who)
        if who == WATCH:
            self._registry.watched.put_nowait(view)
        else:
            answer.set_result(view)
