"""Quiet clusters: whatever beats and tells of life meanwhile, the watermark follows the clock.

Half minutes of a cluster in virtual time: each pump answers a wait once its clock has reached it, tells of
life a second after it said something last, and beats into the registry, as drainers do. Either
nothing is written, or one pump gets a write now and then. The watermark must always be younger than the
longest pause between two questions, and a quiet stream never looks as if it was behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator

import pytest

from drainer.operate.status.lag import IDLE_S
from drainer.stream.pull.collector import (
    ASK_S,
    QUIET_AFTER_S,
    QUIET_ASK_S,
    Collector,
    IdleAsking,
    MergedBatch,
)
from drainer.stream.pull.spill import SpillDirectory
from tests.cases import case
from tests.drainer.stream.pull.collected import MemoryHistory
from tests.drainer.support.scripted_pump import (
    Connection,
    MemoryRegistry,
    ScriptedClient,
    ScriptedPump,
    row_payload,
)
from tests.fakes import virtual_time
from tests.fakes.virtual_time import LoopClock
from tidb_binlog import tso
from tidb_binlog.wire import pump_pb2

BEAT_S = 1.0
LIFE_S = 1.0
OLD_MARK_S = 3.0
WATCHED_S = 30.0
LATE_MAX_S = QUIET_ASK_S + 0.1


def now_ts() -> int:
    return tso.from_wall_s(LoopClock().wall_s())


class Oracle:
    """Which pumps ask, where they can, for what it has given last."""

    def __init__(self, *, is_readable: bool) -> None:
        self._is_readable = is_readable
        self._latest = 0
        self.draws = 0

    async def at_least(self, wanted: int) -> int:
        ts = self._latest if self._is_readable else 0
        await virtual_time.passes(0.001)
        if ts < wanted:
            self._latest = ts = max(now_ts(), self._latest + 1)
            self.draws += 1
        return ts


class QuietPump:
    """Answers what it is asked. `is_old`: it knows `PullBinlogs` alone, and stores time marks."""

    def __init__(self, number: int, oracle: Oracle, *, is_old: bool) -> None:
        self._oracle = oracle
        name = f"p{number}"
        self._number = number
        self.scripted = ScriptedPump(f"{name}:1", serves_batches=not is_old)
        self.is_old = is_old
        self.written: list[int] = []
        self._reply_s = 0.0
        self._told_ts = 0
        self._wanted_ts = self._read = 0

    def _send(self, connection: Connection, payloads: list[bytes]) -> None:
        connection.send(payloads, self._told_ts)
        self._reply_s = LoopClock().monotonic_s()

    def write(self) -> None:
        """A transaction, at the pump and at once on its way."""
        commit_ts = now_ts() + self._number
        if self.is_old or not self.scripted.connections or commit_ts <= self._told_ts:
            return
        self.written.append(commit_ts)
        self._told_ts = commit_ts
        self._send(self.scripted.connection, [row_payload(commit_ts - 1, commit_ts)])

    def _wanted(self, connection: Connection) -> int:
        for data in connection.requests[self._read :]:
            self._wanted_ts = max(self._wanted_ts, pump_pb2.PullBatchesReq.FromString(data).wait_watermark)
        self._read = len(connection.requests)
        return self._wanted_ts

    async def serve(self) -> None:
        clock = LoopClock()
        while True:
            await virtual_time.passes(OLD_MARK_S if self.is_old else 0.02)
            if not self.scripted.connections:
                continue
            connection = self.scripted.connection
            if self.is_old:
                ts = now_ts()
                connection.send_entity(row_payload(ts, ts))
                continue
            wanted = self._wanted(connection)
            if self._told_ts < wanted <= now_ts():
                self._told_ts = max(self._told_ts, await self._oracle.at_least(wanted))
                self._send(connection, [])
            elif clock.monotonic_s() - self._reply_s >= LIFE_S:
                self._send(connection, [])


class Quiet:
    """The cluster, and the collector on it."""

    def __init__(self, kinds: list[bool], rng: random.Random, *, is_readable: bool) -> None:
        self.rng = rng
        self.oracle = Oracle(is_readable=is_readable)
        self.pumps = {f"p{at}": QuietPump(at, self.oracle, is_old=is_old) for at, is_old in enumerate(kinds)}
        self.registry = MemoryRegistry(**dict.fromkeys(self.pumps, "online"))
        self.began_ts = now_ts()
        self.batches: list[MergedBatch] = []
        self.collector = Collector(
            self.registry,  # type: ignore[arg-type]
            MemoryHistory(),
            cluster_id=77,
            after_ts=self.began_ts,
            clock=LoopClock(),
            queue_bytes_max=1 << 20,
            spill=SpillDirectory("never made"),
            connect=self._connect,
        )

    def _connect(self, address: str) -> ScriptedClient:
        return self.pumps[address.removesuffix(":1")].scripted.client(address)

    async def beat(self, name: str) -> None:
        await virtual_time.passes(self.rng.random() * BEAT_S)
        while True:
            self.registry.change(name, "online")
            await virtual_time.passes(BEAT_S)

    async def read(self) -> None:
        async for batch in self.collector.batches():
            self.batches.append(batch)

    async def write(self, every_s: float) -> None:
        while every_s:
            await virtual_time.passes(self.rng.expovariate(1 / every_s))
            self.rng.choice(list(self.pumps.values())).write()

    @property
    def late_s(self) -> float:
        told = self.batches[-1].watermark if self.batches else self.began_ts
        return tso.age_s(told, LoopClock().wall_s())

    def tasks(self, write_every_s: float) -> Iterator[asyncio.Task[None]]:
        yield asyncio.create_task(self.collector.run())
        yield asyncio.create_task(self.read())
        yield asyncio.create_task(self.write(write_every_s))
        for name, pump in self.pumps.items():
            yield asyncio.create_task(pump.serve())
            yield asyncio.create_task(self.beat(name))


async def lateness(
    kinds: list[bool], seed: int, write_every_s: float, *, is_readable: bool = False
) -> tuple[float, Quiet]:
    """The largest age of the watermark over half a minute, s."""
    quiet = Quiet(kinds, random.Random(seed), is_readable=is_readable)
    tasks = list(quiet.tasks(write_every_s))
    latest = 0.0
    try:
        while LoopClock().monotonic_s() < WATCHED_S:
            await virtual_time.passes(0.1)
            latest = max(latest, quiet.late_s)
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
    return latest, quiet


def test_the_watermark_of_a_quiet_cluster_follows_the_clock() -> None:
    """Also where a pump may take what another has drawn: taken in turns, it is as old as two questions."""
    for is_readable in [False, True]:
        for seed in range(3):
            for count in [1, 2, 3, 6]:
                with case(is_readable, seed, count):
                    latest, quiet = virtual_time.run(
                        lateness([False] * count, seed, 0.0, is_readable=is_readable)
                    )
                    assert latest <= LATE_MAX_S
                    questions = len(asked_at(WATCHED_S))
                    assert quiet.oracle.draws <= (questions + 4) * count


@pytest.mark.parametrize("every_s", [0.05, 0.4, 2.0])
def test_it_does_where_now_and_then_something_is_written(every_s: float) -> None:
    latest, quiet = virtual_time.run(lateness([False] * 4, 7, every_s))
    assert latest <= LATE_MAX_S
    delivered = [entry.commit_ts for batch in quiet.batches for entry in batch.entries]
    told = quiet.batches[-1].watermark
    written = sorted(ts for pump in quiet.pumps.values() for ts in pump.written)
    assert delivered == [ts for ts in written if ts <= told] != []


def test_a_pump_that_stores_time_marks_is_the_only_one_that_is_waited_for() -> None:
    latest, _ = virtual_time.run(lateness([False, False, True], 1, 0.0))
    assert latest <= OLD_MARK_S + LATE_MAX_S


def asked_at(until_s: float, *events: tuple[float, str]) -> list[float]:
    """When the pumps were asked within so many seconds, while this happened."""
    found: list[float] = []

    async def live() -> None:
        loop = asyncio.get_running_loop()
        asking = IdleAsking(lambda: found.append(round(loop.time(), 3)), ASK_S)
        happens = {"busy": asking.busy, "hurry": asking.hurry, "closing": lambda: asking.close(True)}
        for at_s, event in events:
            loop.call_at(at_s, happens[event])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await asking.run()

    virtual_time.run(live())
    return found


def steps(first_s: float, until_s: float, pause_s: float) -> list[float]:
    return [first_s + pause_s * number for number in range(round((until_s - first_s) / pause_s) + 1)]


def test_a_quiet_stream_is_asked_for_less_often_and_is_not_shown_as_behind() -> None:
    assert QUIET_ASK_S + ASK_S <= IDLE_S
    assert asked_at(19.1) == [*steps(ASK_S, QUIET_AFTER_S, ASK_S), *steps(11.5, 19.0, QUIET_ASK_S)]


def test_binlogs_keep_the_pace_quick() -> None:
    assert asked_at(13.1, (4.9, "busy")) == steps(ASK_S, 13.0, ASK_S)
    again = [11.5, 13.0, 14.5, 15.0, 15.5, 16.0]
    assert asked_at(16.1, (13.1, "busy")) == [*steps(ASK_S, QUIET_AFTER_S, ASK_S), *again]


def test_who_waits_for_the_stream_is_not_kept_waiting() -> None:
    found = asked_at(14.2, (13.6, "hurry"))
    assert found == [*steps(ASK_S, QUIET_AFTER_S, ASK_S), 11.5, 13.0, 13.6, 14.0]


def test_a_pump_that_closes_keeps_the_pace_quick() -> None:
    found = asked_at(24.2, (13.1, "closing"), (13.3, "closing"))
    assert found == [*steps(ASK_S, QUIET_AFTER_S, ASK_S), 11.5, 13.0, 13.1, *steps(13.5, 24.0, ASK_S)]
