"""`pump.pull.batch`: a drainer that begins at zero, from a pump with 500,000 pairs on disk.

The client is `pull_client`, one stream. Beside it, from the same pump in the same run: the protocol of old
drainers, and transactions that were written a moment ago and are still in memory. The comparison is the CPU
of the old protocol, which is all that Go's pump speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.door.children import Child, load_round, median
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.peer.programs import PUMP, READY_PATH, Programs, programs
from tests.benchmarks.pump.nodes import pump_nodes, until_ready
from tests.benchmarks.pump.prepared import CLUSTER_ID, FIRST_TS, PAYLOAD_BYTES, Store, prepared
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings

NAME: Final = "pump.pull.batch"
PAIRS: Final = 500_000
SEGMENT_BYTES: Final = 64 << 20
ASKED: Final = "at most 6 us and at least 150,000/s, first entity within 5 ms"
ROUNDS: Final = 2
OLD_TRANSACTIONS: Final = 100_000
FIRSTS: Final = 10
MEMORY_FIRST_TS: Final = FIRST_TS + (1 << 28)
MEMORY_IN_FLIGHT: Final = 64
MEMORY_SECONDS: Final = 2.0
MEMORY_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Pull:
    """CPU of the pump for a transaction."""

    cpu_us: float
    transactions_per_s: float
    first_ms: float
    client_cpu_us: float


def pull(node: Node, after_ts: int, transactions: int, *options: str) -> Pull:
    with Child("pump.pull_client", node.address, CLUSTER_ID, after_ts, transactions, *options) as client:
        client.said("begin")
        before_s = cpu_s(node.process.pid)
        seen = client.said("end")
        spent_s = cpu_s(node.process.pid) - before_s
        client.wait()
    count = seen["transactions"]
    return Pull(spent_s / count * 1e6, count / seen["seconds"], seen["first_ms"], seen["client_cpu_us"])


def from_memory(node: Node, move_clock: Callable[[], None]) -> list[Pull]:
    """Write pairs for a while, then pull most of them again and again."""
    written = load_round(
        node.process.pid,
        node.address,
        *("--in-flight", MEMORY_IN_FLIGHT, "--seconds", MEMORY_SECONDS),
        *("--write", CLUSTER_ID, MEMORY_FIRST_TS, PAYLOAD_BYTES),
    )
    move_clock()
    # Those of the warm-up are there besides.
    transactions = int(written.requests_per_s * MEMORY_SECONDS / 2)
    return [pull(node, MEMORY_FIRST_TS - 1, transactions) for _ in range(MEMORY_ROUNDS)]


def measure(
    node: Node, peer: Node | None, move_clock: Callable[[], None]
) -> tuple[list[Pull], list[Pull], Pull, list[float], list[Pull], float]:
    """(whole pulls, Go's, one by the old protocol, times to the first entity, pulls from memory, MiB)."""
    # From a different place each time: what a place costs is seen once.
    step = 2 * (PAIRS // FIRSTS)
    firsts = [pull(node, FIRST_TS + step * number, 1).first_ms for number in range(FIRSTS)]
    whole, theirs = [], []
    for _ in range(ROUNDS):
        whole.append(pull(node, 0, PAIRS))
        if peer is not None:
            theirs.append(pull(peer, 0, PAIRS, "--old"))
    rss = peak_rss_mib(node.process.pid)
    old = pull(node, 0, OLD_TRANSACTIONS, "--old")
    return whole, theirs, old, firsts, from_memory(node, move_clock), rss


async def full_peer(go: Programs, store: Store, *, finished: bool = True) -> Node:
    """Go's pump that has made its index of the same records."""
    node = go.pump()
    store.copy(go.directory / node.name, index=False, finished=finished)
    node.process.start()
    until_ready(node, READY_PATH)
    await asyncio.to_thread(pull, node, 0, store.pairs, "--old")
    return node


async def run_async(settings: Settings) -> Result:
    store = prepared(PAIRS, segment_bytes=SEGMENT_BYTES)
    async with pump_nodes() as nodes:
        store.copy(nodes.directory / "pump")
        node = nodes.start("pump")
        with programs(settings, PUMP, nodes.supervisor, nodes.etcd_endpoint) as go:
            peer = None if go is None else await full_peer(go, store)
            # A client's wait must not hold up the loop that watches etcd.
            whole, theirs, old, firsts, memory, rss = await asyncio.to_thread(
                measure, node, peer, nodes.clock_mover()
            )
    cost = median([one.cpu_us for one in whole])
    recent = median([one.cpu_us for one in memory])
    return Result(
        name=NAME,
        value=median([one.transactions_per_s for one in whole]),
        unit="transactions/s",
        cpu_us_per_unit=cost,
        p50_ms=median(firsts),
        p99_ms=max(firsts),
        peak_rss_mib=rss,
        compared_to=f"CPU of the old protocol, {old.cpu_us:.1f} us",
        ratio=cost / old.cpu_us,
        note=(
            f"asked: {ASKED}; ms are to the first entity, {FIRSTS} times; {PAIRS:,} pairs of"
            f" {PAYLOAD_BYTES} B on disk, median of {ROUNDS}; old protocol"
            f" {old.transactions_per_s:,.0f}/s; from memory {recent:.1f} us,"
            f" {median([one.transactions_per_s for one in memory]):,.0f}/s; client"
            f" {median([one.client_cpu_us for one in whole]):.1f} us"
        ),
        theirs=Theirs.of([one.transactions_per_s for one in theirs], [one.cpu_us for one in theirs]),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(run_async(settings))
