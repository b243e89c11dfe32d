"""`pump.memory.peak`: memory of a pump with 256 writers of 4 KiB, 50 pullers that hardly read, and an index
that stalls under them.

Half of the pullers never read. The index stalls for two thirds of the time; when it goes on, it has to catch
up, and every commit that was acknowledged has to come out of a pull, in order: that is checked. Compared with
the same pump before anything was asked of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.door.children import Child, memory_mib
from tests.benchmarks.door.pullers import PULLERS, pullers
from tests.benchmarks.measure import StatusPage, cpu_s, peak_rss_mib
from tests.benchmarks.pump.nodes import pump_nodes
from tests.benchmarks.pump.prepared import CLUSTER_ID, FIRST_TS
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import Corruption, Unavailable

NAME: Final = "pump.memory.peak"
ASKED_MIB: Final = 300
PEER: Final = "236-530 MiB"
WRITERS: Final = 256
PAYLOAD_BYTES: Final = 4096
CATCH_UP_S: Final = 120.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """`seen` is of the measured time, `commits` all that were acknowledged."""

    seen: dict[str, Any]
    commits: int
    cpu_s: float
    lag_mib: float


def write_and_stall(node: Node, stall: Path, seconds: float) -> Load:
    arguments = ("--in-flight", WRITERS, "--seconds", seconds, "--write", CLUSTER_ID, FIRST_TS, PAYLOAD_BYTES)
    with Child("door.h2_load", node.address, *arguments) as load:
        load.said("begin")
        before_s = cpu_s(node.process.pid)
        time.sleep(seconds / 3)
        stall.touch()
        seen = load.said("end")
        spent_s = cpu_s(node.process.pid) - before_s
        commits = load.said("stopped")["commits"]
        load.wait()
    return Load(seen, commits, spent_s, lag_bytes(node) / (1 << 20))


def lag_bytes(node: Node) -> int:
    page = StatusPage(node.status_url)
    try:
        return int(page.document()["pump"]["index_lag_bytes"])
    finally:
        page.close()


def catch_up_s(node: Node) -> float:
    """How long the index takes until it knows everything."""
    began_s = time.monotonic()
    while lag_bytes(node):
        if time.monotonic() > began_s + CATCH_UP_S:
            raise Unavailable(f"the index has not caught up after {CATCH_UP_S:g} s")
        time.sleep(POLL_S)
    return time.monotonic() - began_s


def check_all_come(node: Node, commits: int) -> None:
    """Raises `Corruption` unless exactly the acknowledged commits come, each once and in order."""
    with Child("pump.pull_client", node.address, CLUSTER_ID, 0, commits, "--every") as client:
        client.said("begin")
        pulled = client.said("end")["transactions"]
        client.wait()
    if pulled != commits:
        raise Corruption(f"{commits} commits were acknowledged, {pulled} came")


def measure(
    node: Node, stall: Path, seconds: float, move_clock: Callable[[], None]
) -> tuple[Load, float, float, float]:
    """(load, peak MiB when it ended, peak MiB after all, seconds of catching up)."""
    with pullers(node.address, CLUSTER_ID):
        load = write_and_stall(node, stall, seconds)
        stalled_mib = peak_rss_mib(node.process.pid)
        stall.unlink()
        caught_up_s = catch_up_s(node)
        move_clock()
        check_all_come(node, load.commits)
        return load, stalled_mib, peak_rss_mib(node.process.pid), caught_up_s


async def run_async(settings: Settings) -> Result:
    async with pump_nodes() as nodes:
        stall = nodes.directory / "stall"
        node = nodes.start("pump", module=("tests.benchmarks.pump.stalled_pump", str(stall)))
        before_mib = memory_mib(node.process.pid, "VmRSS")
        load, stalled_mib, peak_mib, caught_up_s = await asyncio.to_thread(
            measure, node, stall, 2 * settings.seconds, nodes.clock_mover()
        )
    requests = load.seen["requests"]
    return Result(
        name=NAME,
        value=peak_mib,
        unit="MiB",
        cpu_us_per_unit=load.cpu_s / requests * 1e6,
        p50_ms=load.seen["p50_ms"],
        p99_ms=load.seen["p99_ms"],
        peak_rss_mib=peak_mib,
        compared_to=f"before the load, {before_mib:.0f} MiB",
        ratio=peak_mib / before_mib,
        note=(
            f"asked: at most {ASKED_MIB} MiB; {WRITERS} writers of {PAYLOAD_BYTES} B,"
            f" {requests / load.seen['seconds']:,.0f} writes/s (CPU and ms are theirs), {PULLERS} pullers,"
            f" the index stalled {load.lag_mib:,.0f} MiB behind ({stalled_mib:.0f} MiB then), caught up in"
            f" {caught_up_s:.1f} s; all {load.commits:,} acknowledged commits came, in order; the Go pump"
            f" {PEER}"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(run_async(settings))
