"""`pump.start.*`: from exec until a pump with 4,000,000 records takes writes.

    pump.start.clean             after a clean stop
    pump.start.killed            after kill -9 under as many writes as it takes
    pump.start.killed.no_index   the same, and the directory of the index is gone

It takes writes when /readyz says 200 and a prewrite sent then is acknowledged. Compared with the same on an
empty directory, in turns with it: the ratio is what the stored records add.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from binlog_playground.cluster.cluster import Node
from pump.log.value_log import SEGMENT_BYTES_MAX
from tests.benchmarks.door.children import Child, median
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib
from tests.benchmarks.pump.load_generator import WRITE_PATH, request
from tests.benchmarks.pump.nodes import PumpNodes, pump_nodes, until_ready
from tests.benchmarks.pump.prepared import CLUSTER_ID, FIRST_TS, PAYLOAD_BYTES, Store, prepared
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog import binlog, rpc

PAIRS: Final = 2_000_000
ROUNDS: Final = 3
IN_FLIGHT: Final = 256
LOAD_S: Final = 1.0
WRITE_TIMEOUT_S: Final = 30.0
TS_A_ROUND: Final = 1 << 24
CLEAN: Final = "pump.start.clean"
KILLED: Final = "pump.start.killed"
NO_INDEX: Final = "pump.start.killed.no_index"
ASKED: Final = {CLEAN: "at most 1 s", KILLED: "at most 2 s", NO_INDEX: "at most 2 s"}
PEER: Final = {CLEAN: "0.16 s", KILLED: "0.3-2.4 s", NO_INDEX: "does not begin before the index is there"}


@dataclass(frozen=True, slots=True)
class Start:
    """`lag_mib`: log that was not in the index when the pump took writes."""

    seconds: float
    ready_s: float
    cpu_s: float
    peak_rss_mib: float
    lag_mib: float


async def timed_start(node: Node, timestamps: Iterator[int]) -> Start:
    """Start it, wait until it is ready, write. On the main thread, to which the process is bound."""
    start_ts = next(timestamps)
    key = b"t%020d" % start_ts
    client = rpc.Client(node.address)
    began_s = time.monotonic()
    node.process.start()
    until_ready(node)
    ready_s = time.monotonic() - began_s
    prewrite = binlog.prewrite(start_ts, key, bytes(PAYLOAD_BYTES))
    await client.unary(WRITE_PATH, request(CLUSTER_ID, prewrite), WRITE_TIMEOUT_S)
    took_s = time.monotonic() - began_s
    pid = node.process.pid
    spent_s, rss = cpu_s(pid), peak_rss_mib(pid)
    page = StatusPage(node.status_url)
    lag = page.document()["pump"]["index_lag_bytes"]
    page.close()
    commit = binlog.commit(start_ts, start_ts + 1, key)
    await client.unary(WRITE_PATH, request(CLUSTER_ID, commit), WRITE_TIMEOUT_S)
    await client.close()
    return Start(took_s, ready_s, spent_s, rss, lag / (1 << 20))


async def under_load(node: Node, first_ts: int, end: Callable[[], object]) -> None:
    """End the pump in the middle of writes."""
    options = ("--in-flight", IN_FLIGHT, "--seconds", LOAD_S * 100)
    with Child(
        "door.h2_load", node.address, *options, "--write", CLUSTER_ID, first_ts, PAYLOAD_BYTES
    ) as load:
        await asyncio.to_thread(load.said, "begin")
        await asyncio.sleep(LOAD_S)
        end()


async def rounds(nodes: PumpNodes, store: Store, name: str) -> tuple[list[Start], list[Start]]:
    """(starts of the full pump, starts of an empty one), taken in turns."""
    full, empty = nodes.add("full"), nodes.add("empty")
    store.copy(nodes.directory / "full", finished=name == CLEAN)
    stretches = itertools.count(FIRST_TS + (1 << 28), TS_A_ROUND)
    timestamps = itertools.count(next(stretches), 2)
    found: list[Start] = []
    fresh: list[Start] = []
    await timed_start(full, timestamps)
    for _ in range(ROUNDS):
        if name == CLEAN:
            full.process.stop()
        else:
            await under_load(full, next(stretches), full.process.kill)
        if name == NO_INDEX:
            shutil.rmtree(nodes.directory / "full" / "kv")
        timestamps = itertools.count(next(stretches), 2)
        found.append(await timed_start(full, timestamps))
        shutil.rmtree(nodes.directory / "empty", ignore_errors=True)
        fresh.append(await timed_start(empty, timestamps))
        empty.process.kill()
    full.process.kill()
    return found, fresh


async def measure(name: str) -> Result:
    store = prepared(PAIRS, segment_bytes=SEGMENT_BYTES_MAX)
    async with pump_nodes() as nodes:
        found, fresh = await rounds(nodes, store, name)
    seconds = [one.seconds for one in found]
    empty = median([one.seconds for one in fresh])
    return Result(
        name=name,
        value=median(seconds),
        unit="s",
        cpu_us_per_unit=median([one.cpu_s for one in found]) * 1e6,
        p50_ms=median(seconds) * 1000,
        p99_ms=max(seconds) * 1000,
        peak_rss_mib=max(one.peak_rss_mib for one in found),
        compared_to=f"start on an empty directory, {empty:.2f} s",
        ratio=median(seconds) / empty,
        note=(
            f"asked: {ASKED[name]}; {2 * PAIRS:,} records stored, {ROUNDS} times"
            + ("" if name == CLEAN else f" with {IN_FLIGHT} writes in flight")
            + f"; ready after {median([one.ready_s for one in found]):.2f} s; CPU of one start, an empty one"
            f" takes {median([one.cpu_s for one in fresh]):.2f} s of it; then"
            f" {max(one.lag_mib for one in found):,.0f} MiB were not in the index; the Go pump: {PEER[name]}"
        ),
    )


def clean(settings: Settings) -> Result:
    return asyncio.run(measure(CLEAN))


async def measure_killed() -> list[Result]:
    return [await measure(KILLED), await measure(NO_INDEX)]


def killed(settings: Settings) -> list[Result]:
    return asyncio.run(measure_killed())
