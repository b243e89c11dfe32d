"""`pumpclient.write.*`: what a binlog costs the program that embeds the client. `pumpclient.failover`.

The program is a process of its own (`client.load`) beside a real pump; its CPU is what is measured, all
threads. In turns: the client with batches, the client with a call a binlog, the blocking client from threads,
and a grpc.aio stub without the client, which is the least that a call a binlog can cost.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.benchmarks.door.children import Child, median
from tests.benchmarks.door.pumps import FIRST_TS, TS_A_ROUND, Pump, Pumps, cluster
from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

ROUNDS: Final = 3
KINDS: Final = ("batched", "unary", "bare", "sync")
FAILOVER_IN_FLIGHT: Final = 64
FAILOVER_KILLS: Final = 3
FAILOVER_S: Final = 2.0
Seen = dict[str, Any]


class Loads:
    """Starts loads one after the other; timestamps never come again."""

    def __init__(self, pumps: Pumps, cluster_id: int) -> None:
        self._pumps = pumps
        self._cluster_id = cluster_id
        self._count = 0

    def child(self, kind: str, in_flight: int, seconds: float, pump: Pump) -> Child:
        self._count += 1
        first_ts = FIRST_TS + self._count * TS_A_ROUND
        known = (kind, self._pumps.endpoint, self._cluster_id, first_ts, in_flight, seconds, pump.address)
        return Child("client.load", *known)

    def run(self, kind: str, in_flight: int, seconds: float, pump: Pump) -> Seen:
        with self.child(kind, in_flight, seconds, pump) as load:
            load.said("begin")
            seen = load.said("end")
            load.wait()
        return seen


async def measure(name: str, in_flight: int, settings: Settings) -> Result:
    seconds = settings.seconds / ROUNDS / 2
    seen: dict[str, list[Seen]] = {kind: [] for kind in KINDS}
    async with cluster(tls=False) as (pumps, cluster_id):
        pump = await pumps.start()
        loads = Loads(pumps, cluster_id)
        for _ in range(ROUNDS):
            for kind in KINDS:
                seen[kind].append(await asyncio.to_thread(loads.run, kind, in_flight, seconds, pump))
    cost = {kind: median([one["cpu_us"] for one in rounds]) for kind, rounds in seen.items()}
    rate = {
        kind: median([one["binlogs"] / one["seconds"] for one in rounds]) for kind, rounds in seen.items()
    }
    batched = seen["batched"]
    return Result(
        name=name,
        value=rate["batched"],
        unit="binlogs/s",
        cpu_us_per_unit=cost["batched"],
        p50_ms=median([one["p50_ms"] for one in batched]),
        p99_ms=median([one["p99_ms"] for one in batched]),
        compared_to=f"CPU of a bare grpc.aio stub, {cost['bare']:.0f} us",
        ratio=cost["batched"] / cost["bare"],
        note=(
            f"CPU of the embedding program, 300-byte prewrites and their commits, {in_flight} in flight,"
            f" median of {ROUNDS} rounds in turns; a call a binlog {cost['unary']:.0f} us,"
            f" {cost['unary'] / cost['bare']:.2f} times the bare stub's; from {in_flight} threads"
            f" {cost['sync']:.0f} us; rates: bare {rate['bare']:,.0f}/s, a call a binlog"
            f" {rate['unary']:,.0f}/s, threads {rate['sync']:,.0f}/s"
        ),
    )


async def measure_failover() -> Result:
    """Two pumps; one is killed in the middle of each round, and replaced before the next."""
    seen: list[Seen] = []
    async with cluster(tls=False) as (pumps, cluster_id):
        loads = Loads(pumps, cluster_id)
        steady = await pumps.start("steady")
        for number in range(FAILOVER_KILLS):
            victim = await pumps.start(f"victim-{number}")
            with loads.child("failover", FAILOVER_IN_FLIGHT, FAILOVER_S, steady) as load:
                await asyncio.to_thread(load.said, "begin")
                await asyncio.sleep(FAILOVER_S / 2)
                victim.process.kill()
                seen.append(await asyncio.to_thread(load.said, "end"))
                load.wait()
    assert all(one["retried"] for one in seen), "nothing was under way at the pump that was killed"
    longest = [one["longest_ms"] for one in seen]
    return Result(
        name="pumpclient.failover",
        value=max(longest),
        unit="ms",
        p50_ms=median([one["p50_ms"] for one in seen]),
        p99_ms=median([one["p99_ms"] for one in seen]),
        compared_to="300 ms",
        ratio=max(longest) / 300,
        note=(
            f"longest prewrite while one of two pumps is kill -9ed, worst of {FAILOVER_KILLS} kills, median"
            f" {percentile(longest, 0.5):.0f} ms; {FAILOVER_IN_FLIGHT} in flight; no prewrite by any writer"
            f" for {max(one['silence_ms'] for one in seen):.0f} ms at most"
        ),
    )


def write_64(settings: Settings) -> Result:
    return asyncio.run(measure("pumpclient.write.64", 64, settings))


def write_256(settings: Settings) -> Result:
    return asyncio.run(measure("pumpclient.write.256", 256, settings))


def failover(settings: Settings) -> Result:
    return asyncio.run(measure_failover())
