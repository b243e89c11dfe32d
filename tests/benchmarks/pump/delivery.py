"""`pump.delivery.1`, `.3`: from a commit's acknowledgement until its transaction is at the puller.

200 transactions a second, each to one of the pumps. The puller is a drainer's collector, for which one has
come when the merged watermark has passed it: with three pumps the other two have to say that nothing comes
before it. The comparison is how long the write of the commit itself took. The way has two parts: until the
pump has sent it (older prewrites of that pump may hold it), and until the other pumps have said so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from binlog_playground.cluster.cluster import Node
from drainer.stream.pull.merged import MergedBatch
from tests.benchmarks.measure import cpu_s, peak_rss_mib, percentile
from tests.benchmarks.pump.following import following
from tests.benchmarks.pump.load_generator import WRITE_PATH, request
from tests.benchmarks.pump.nodes import PumpNodes, pump_nodes
from tests.benchmarks.pump.prepared import PAYLOAD_BYTES
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog import binlog, rpc

NAME: Final = "pump.delivery"
ASKED_MS: Final = 20
PEER: Final = "about 100 ms"
PER_S: Final = 200.0
WARM_UP_S: Final = 0.5
WRITE_TIMEOUT_S: Final = 10.0
LAST_S: Final = 5.0


@dataclass(slots=True)
class Times:
    """Monotonic seconds by commit_ts: sent, acknowledged, arrived from its pump, come in order."""

    sent_s: dict[int, float] = field(default_factory=dict)
    acknowledged_s: dict[int, float] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    come_s: dict[int, float] = field(default_factory=dict)
    all_came: asyncio.Event = field(default_factory=asyncio.Event)

    def took(self, batch: MergedBatch) -> None:
        now_s = time.monotonic()
        for entry in batch.entries:
            self.come_s[entry.commit_ts] = now_s
        if len(self.come_s) == len(self.sent_s):
            self.all_came.set()

    def arrived(self, stamps: Sequence[int]) -> None:
        self.arrived_s.update(dict.fromkeys(stamps, time.monotonic()))

    def parts_ms(self) -> tuple[list[float], list[float]]:
        """Until its pump had sent it, and from then until the others had promised."""
        sent, merged = [], []
        for ts, at_s in self.acknowledged_s.items():
            arrived_s = max(self.arrived_s[ts], at_s)
            sent.append((arrived_s - at_s) * 1000)
            merged.append(max(self.come_s[ts] - arrived_s, 0.0) * 1000)
        return sent, merged

    def delivery_ms(self) -> list[float]:
        """An entity may be there before the writer has read its acknowledgement: that is 0."""
        return [max(self.come_s[ts] - at_s, 0.0) * 1000 for ts, at_s in self.acknowledged_s.items()]

    def write_ms(self) -> list[float]:
        return [(at_s - self.sent_s[ts]) * 1000 for ts, at_s in self.acknowledged_s.items()]


async def transaction(nodes: PumpNodes, client: rpc.Client, times: Times) -> None:
    oracle, cluster_id = nodes.upstream.oracle, nodes.upstream.cluster_id
    start_ts = await oracle.timestamp()
    key = b"t%020d" % start_ts
    prewrite = binlog.prewrite(start_ts, key, bytes(PAYLOAD_BYTES))
    await client.unary(WRITE_PATH, request(cluster_id, prewrite), WRITE_TIMEOUT_S)
    commit_ts = await oracle.timestamp()
    times.sent_s[commit_ts] = time.monotonic()
    await client.unary(
        WRITE_PATH, request(cluster_id, binlog.commit(start_ts, commit_ts, key)), WRITE_TIMEOUT_S
    )
    times.acknowledged_s[commit_ts] = time.monotonic()


async def send(nodes: PumpNodes, clients: list[rpc.Client], times: Times, seconds: float) -> None:
    """An open loop: transactions begin at random moments, whatever became of those before."""
    chance = random.Random(1)
    end_s = time.monotonic() + seconds
    next_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        while (now_s := time.monotonic()) < end_s:
            if now_s >= next_s:
                group.create_task(transaction(nodes, chance.choice(clients), times))
                next_s += chance.expovariate(PER_S)
            else:
                await asyncio.sleep(next_s - now_s)


async def measured(nodes: PumpNodes, pumps: list[Node], seconds: float) -> tuple[Times, float]:
    """(times, seconds of CPU of all pumps)."""
    clients = [rpc.Client(pump.address) for pump in pumps]
    # Everything before is of no interest, and nothing was written before.
    warm_up, times = Times(), Times()
    current = warm_up
    after_ts = await nodes.upstream.oracle.timestamp()

    def note_arrived(stamps: Sequence[int]) -> None:
        current.arrived(stamps)

    async with following(nodes, len(pumps), after_ts, lambda batch: current.took(batch), note_arrived):
        for current, stretch_s in ((warm_up, WARM_UP_S), (times, seconds)):
            before_s = sum(cpu_s(pump.process.pid) for pump in pumps)
            await send(nodes, clients, current, stretch_s)
            async with asyncio.timeout(LAST_S):
                while len(current.come_s) < len(current.sent_s):
                    current.all_came.clear()
                    await current.all_came.wait()
            spent_s = sum(cpu_s(pump.process.pid) for pump in pumps) - before_s
    for client in clients:
        await client.close()
    return times, spent_s


async def measure(count: int, settings: Settings) -> Result:
    async with pump_nodes(clock_stands=False) as nodes:
        pumps = [nodes.start(f"pump-{number}") for number in range(1, count + 1)]
        times, spent_s = await measured(nodes, pumps, settings.seconds)
        rss = max(peak_rss_mib(pump.process.pid) for pump in pumps)
    delivered, written = times.delivery_ms(), times.write_ms()
    p99 = percentile(delivered, 0.99)
    write_p99 = percentile(written, 0.99)
    parts = [f"{percentile(part, 0.5):.1f} and {percentile(part, 0.99):.1f} ms" for part in times.parts_ms()]
    return Result(
        name=f"{NAME}.{count}",
        value=p99,
        unit="ms",
        cpu_us_per_unit=spent_s / len(delivered) * 1e6,
        p50_ms=percentile(delivered, 0.5),
        p99_ms=p99,
        peak_rss_mib=rss,
        compared_to=f"p99 of the commit's own write, {write_p99:.2f} ms",
        ratio=p99 / write_p99,
        note=(
            f"asked: p99 at most {ASKED_MS} ms; {len(delivered):,} transactions, {PER_S:.0f} a second, to"
            f" {count} pump{'s' if count > 1 else ''}; CPU of all pumps for one; largest"
            f" {max(delivered):.1f} ms; p50 and p99 until its pump has sent it {parts[0]}, from then"
            f" until the others have promised {parts[1]}; write p50 {percentile(written, 0.5):.2f} ms;"
            f" the Go pump {PEER}"
        ),
    )


async def measure_both(settings: Settings) -> list[Result]:
    return [await measure(count, settings) for count in (1, 3)]


def run(settings: Settings) -> list[Result]:
    return asyncio.run(measure_both(settings))
