"""`pump.write.unary.64`: 64 writers on one connection, each write durable before its reply.

Compared with the same pump answering probes, which end before storage: the ratio of CPU says what storing
costs on top of the transport.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.measure import cpu_s, peak_rss_mib, percentile
from tests.benchmarks.pump.generator import load
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tidb_binlog import tso

WRITERS: Final = 64
PAYLOAD_BYTES: Final = 300
ROUNDS: Final = 3
FIRST_TS: Final = tso.compose(1_767_225_600_000)
TS_A_ROUND: Final = 1 << 24
SYNC_S: Final = 0.3
SYNC_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Round:
    requests_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float


async def measure_round(
    node: Node, cluster_id: int, first_ts: int, seconds: float, payload_bytes: int
) -> Round:
    pid = node.process.pid
    async with load(
        node.address,
        cluster_id,
        first_ts=first_ts,
        writers=WRITERS,
        seconds=seconds,
        payload_bytes=payload_bytes,
    ) as generator:
        await generator.said("begin")
        before_s = cpu_s(pid)
        seen = await generator.said("end")
        spent_s = cpu_s(pid) - before_s
        await generator.end()
    requests = seen["requests"]
    return Round(requests / seen["seconds"], spent_s / requests * 1e6, seen["p50_ms"], seen["p99_ms"])


def syncs_per_s(directory: Path) -> float:
    """How many appends of 400 bytes with fdatasync the file system does, one after the other."""
    path = directory / "fdatasync"
    with path.open("wb", buffering=0) as file:
        count = 0
        began_s = time.monotonic()
        while time.monotonic() < began_s + SYNC_S:
            file.write(bytes(SYNC_BYTES))
            os.fdatasync(file.fileno())
            count += 1
        took_s = time.monotonic() - began_s
    path.unlink()
    return count / took_s


async def measure(settings: Settings) -> Result:
    writes: list[Round] = []
    probes: list[Round] = []
    seconds = settings.seconds / ROUNDS
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(None)
        # The generator makes its own timestamps, so the cluster's clock must stand below them.
        await upstream.oracle.pin(FIRST_TS - 1)
        await cluster.start_pumps(1)
        (node,) = cluster.pumps
        syncs = syncs_per_s(cluster.directory)
        for number in range(ROUNDS):
            first_ts = FIRST_TS + number * TS_A_ROUND
            writes.append(await measure_round(node, upstream.cluster_id, first_ts, seconds, PAYLOAD_BYTES))
            probes.append(await measure_round(node, upstream.cluster_id, 0, seconds / 2, 0))
        rss = peak_rss_mib(node.process.pid)
    rate = percentile([one.requests_per_s for one in writes], 0.5)
    cost = percentile([one.cpu_us for one in writes], 0.5)
    probe_cost = percentile([one.cpu_us for one in probes], 0.5)
    probe_rate = percentile([one.requests_per_s for one in probes], 0.5)
    return Result(
        name="pump.write.unary.64",
        value=rate,
        unit="requests/s",
        cpu_us_per_unit=cost,
        p50_ms=percentile([one.p50_ms for one in writes], 0.5),
        p99_ms=percentile([one.p99_ms for one in writes], 0.5),
        peak_rss_mib=rss,
        compared_to=f"CPU of a probe to the same pump, {probe_cost:.0f} us",
        ratio=cost / probe_cost,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, median of {ROUNDS} rounds;"
            f" probes {probe_rate:,.0f}/s; this disk alone: {syncs:,.0f} fdatasync/s"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
