"""`pump.start.*`: from exec until a pump with 4,000,000 records takes writes.

    pump.start.clean             after a clean stop
    pump.start.killed            after kill -9 under as many writes as it takes
    pump.start.killed.no_index   the same, and the directory of the index is gone

It takes writes when /readyz says 200 and a prewrite sent then is acknowledged. Compared with the same on an
empty directory, in turns with it: the ratio is what the stored records add. Go's pump has the same
records, and makes its own index first.
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
from tests.benchmarks.peer.programs import PUMP, READY_PATH, Programs, programs
from tests.benchmarks.pump.load_generator import WRITE_PATH, request
from tests.benchmarks.pump.nodes import PumpNodes, pump_nodes, until_ready
from tests.benchmarks.pump.prepared import CLUSTER_ID, FIRST_TS, PAYLOAD_BYTES, Store, prepared
from tests.benchmarks.pump.pull import full_peer
from tests.benchmarks.report import Result, Theirs
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


@dataclass(frozen=True, slots=True)
class Start:
    """`lag_mib`: log that was not in the index when the pump took writes."""

    seconds: float
    ready_s: float
    cpu_s: float
    peak_rss_mib: float
    lag_mib: float


async def timed_start(node: Node, timestamps: Iterator[int], path: str = "/readyz") -> Start:
    """Start it, wait until `path` answers, write. On the main thread, to which the process is bound."""
    start_ts = next(timestamps)
    key = b"t%020d" % start_ts
    client = rpc.Client(node.address)
    began_s = time.monotonic()
    node.process.start()
    until_ready(node, path)
    ready_s = time.monotonic() - began_s
    prewrite = binlog.prewrite(start_ts, key, bytes(PAYLOAD_BYTES))
    await client.unary(WRITE_PATH, request(CLUSTER_ID, prewrite), WRITE_TIMEOUT_S)
    took_s = time.monotonic() - began_s
    pid = node.process.pid
    spent_s, rss = cpu_s(pid), peak_rss_mib(pid)
    page = StatusPage(node.status_url)
    lag = page.document().get("pump", {}).get("index_lag_bytes", 0)
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


@dataclass(frozen=True, slots=True)
class Starts:
    """Of the full pump, an empty one, and Go's, taken in turns."""

    full: list[Start]
    empty: list[Start]
    theirs: list[Start]


async def rounds(nodes: PumpNodes, store: Store, name: str, go: Programs | None) -> Starts:
    full, empty = nodes.add("full"), nodes.add("empty")
    store.copy(nodes.directory / "full", finished=name == CLEAN)
    stretches = itertools.count(FIRST_TS + (1 << 28), TS_A_ROUND)
    timestamps = itertools.count(next(stretches), 2)
    starts = Starts([], [], [])
    await timed_start(full, timestamps)
    theirs = None
    if go is not None and name != NO_INDEX:
        theirs = await full_peer(go, store, finished=name == CLEAN)
    for _ in range(ROUNDS):
        await bring_down(full, name, next(stretches))
        if name == NO_INDEX:
            shutil.rmtree(nodes.directory / "full" / "kv")
        timestamps = itertools.count(next(stretches), 2)
        starts.full.append(await timed_start(full, timestamps))
        shutil.rmtree(nodes.directory / "empty", ignore_errors=True)
        starts.empty.append(await timed_start(empty, timestamps))
        empty.process.kill()
        if theirs is not None:
            await bring_down(theirs, name, next(stretches))
            timestamps = itertools.count(next(stretches), 2)
            starts.theirs.append(await timed_start(theirs, timestamps, READY_PATH))
    full.process.kill()
    return starts


async def bring_down(node: Node, name: str, first_ts: int) -> None:
    """As the benchmark wants it."""
    if name == CLEAN:
        node.process.stop()
    else:
        await under_load(node, first_ts, node.process.kill)


async def measure(name: str, settings: Settings) -> Result:
    store = prepared(PAIRS, segment_bytes=SEGMENT_BYTES_MAX)
    async with pump_nodes() as nodes:
        with programs(settings, PUMP, nodes.supervisor, nodes.etcd_endpoint) as go:
            starts = await rounds(nodes, store, name, go)
    found, fresh, theirs = starts.full, starts.empty, starts.theirs
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
            f" {max(one.lag_mib for one in found):,.0f} MiB were not in the index"
        ),
        theirs=Theirs.of([one.seconds for one in theirs], [one.cpu_s * 1e6 for one in theirs]),
    )


def clean(settings: Settings) -> Result:
    return asyncio.run(measure(CLEAN, settings))


async def measure_killed(settings: Settings) -> list[Result]:
    return [await measure(KILLED, settings), await measure(NO_INDEX, settings)]


def killed(settings: Settings) -> list[Result]:
    return asyncio.run(measure_killed(settings))
