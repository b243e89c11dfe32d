"""`pump.start.killed`: from exec until /status answers, after kill -9 under load with 100,000 pairs stored.

Compared with the same on an empty directory: the ratio is what recovery adds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from common import binlog, tso
from common.errors import Unavailable
from deploy.playground.cluster import Cluster, Node
from deploy.playground.scenario import Record
from tests.benchmarks.generator import load
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.benchmarks.stored import fill

PAIRS: Final = 100_000
ROUNDS: Final = 3
WRITERS: Final = 64
PAYLOAD_BYTES: Final = 300
LOAD_S: Final = 1.0
CLUSTER_ID: Final = 7_100_000_000_000_000_002
FIRST_TS: Final = tso.compose(1_767_225_600_000)
TS_A_ROUND: Final = 1 << 30
POLL_S: Final = 0.005
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    cpu_s: float
    peak_rss_mib: float


def pairs() -> Iterator[Record]:
    value = os.urandom(PAYLOAD_BYTES)
    for number in range(PAIRS):
        start_ts = FIRST_TS + 2 * number
        key = b"t%020d" % start_ts
        yield Record(binlog.PREWRITE, start_ts, 0, binlog.prewrite(start_ts, key, value))
        yield Record(binlog.COMMIT, start_ts, start_ts + 1, binlog.commit(start_ts, start_ts + 1, key))


def timed_start(node: Node) -> Start:
    """Start it and wait until it answers. From the main thread, to which the process is bound."""
    page = StatusPage(node.status_url)
    began_s = time.monotonic()
    node.process.start()
    while True:
        try:
            page.document()
            break
        except Unavailable:
            if node.process.died:
                raise node.process.death() from None
            if time.monotonic() > began_s + DEADLINE_S:
                raise
            time.sleep(POLL_S)
    took_s = time.monotonic() - began_s
    page.close()
    pid = node.process.pid
    return Start(took_s, cpu_s(pid), peak_rss_mib(pid))


async def kill_under_load(node: Node, first_ts: int) -> None:
    async with load(
        node.address,
        CLUSTER_ID,
        first_ts=first_ts,
        writers=WRITERS,
        seconds=LOAD_S * 10,
        payload_bytes=PAYLOAD_BYTES,
    ) as generator:
        await generator.said("begin")
        await asyncio.sleep(LOAD_S)
        node.process.kill()


async def measure_starts(cluster: Cluster) -> tuple[list[Start], list[Start]]:
    """(after a kill, empty), taken in turns."""
    full, empty = cluster.pumps
    killed, fresh = [], []
    for number in range(1, ROUNDS + 1):
        await kill_under_load(full, FIRST_TS + number * TS_A_ROUND)
        killed.append(timed_start(full))
        empty.process.kill()
        shutil.rmtree(cluster.directory / empty.name)
        fresh.append(timed_start(empty))
    return killed, fresh


async def measure(settings: Settings) -> Result:
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(CLUSTER_ID)
        await upstream.oracle.pin(FIRST_TS - 1)
        began_s = time.monotonic()
        await fill(cluster.directory / "pump-1", "pump-1", CLUSTER_ID, pairs())
        filled_s = time.monotonic() - began_s
        await cluster.start_pumps(2)
        killed, fresh = await measure_starts(cluster)
    seconds = [one.seconds for one in killed]
    median = percentile(seconds, 0.5)
    empty = percentile([one.seconds for one in fresh], 0.5)
    empty_cpu = percentile([one.cpu_s for one in fresh], 0.5)
    return Result(
        name="pump.start.killed",
        value=median,
        unit="s",
        cpu_us_per_unit=percentile([one.cpu_s for one in killed], 0.5) * 1e6,
        p50_ms=median * 1000,
        p99_ms=max(seconds) * 1000,
        peak_rss_mib=max(one.peak_rss_mib for one in killed),
        compared_to=f"start on an empty directory, {empty:.2f} s",
        ratio=median / empty,
        note=(
            f"{PAIRS:,} pairs stored (in {filled_s:.0f} s), killed {ROUNDS} times with {WRITERS} writers;"
            f" CPU of one start; an empty one takes {empty_cpu:.2f} s of CPU"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
