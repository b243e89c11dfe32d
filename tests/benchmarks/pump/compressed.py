"""`pump.pull.compressed.zstd`, `.gzip`: what compression between pump and drainer costs and saves.

A pump full of transactions as sysbench makes them, pulled whole by `pull_client`, in turns as they are and
compressed. The value is what is left of the octets on the line; CPU is that of pump and client together, and
the comparison is the same pull without compression.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.door.children import Child, median
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.stored import fill
from tests.benchmarks.measure import cpu_s
from tests.benchmarks.pump.nodes import pump_nodes
from tests.benchmarks.pump.prepared import CLUSTER_ID
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.compression import NAMES

ROUNDS: Final = 3
TRANSACTIONS: Final = 15_000


@dataclass(frozen=True, slots=True)
class Pull:
    """CPU in us a transaction, octets on the line a transaction."""

    pump_us: float
    client_us: float
    wire_bytes: float
    per_s: float

    @property
    def cpu_us(self) -> float:
        return self.pump_us + self.client_us


def pull(node: Node, transactions: int, takes: str) -> Pull:
    options = ("--takes", takes) if takes else ()
    with Child("pump.pull_client", node.address, CLUSTER_ID, 0, transactions, *options) as client:
        client.said("begin")
        before_s = cpu_s(node.process.pid)
        seen = client.said("end")
        spent_s = cpu_s(node.process.pid) - before_s
        client.wait()
    count = seen["transactions"]
    return Pull(
        spent_s / count * 1e6, seen["client_cpu_us"], seen["wire_bytes"] / count, count / seen["seconds"]
    )


async def run_async() -> list[Result]:
    scenario = sysbench_like.make(transactions=TRANSACTIONS)
    (records,) = scenario.files
    transactions = sum(record.commit_ts > 0 for record in records)
    async with pump_nodes(clock_stands=False) as nodes:
        await nodes.upstream.oracle.pin(scenario.last_commit_ts + 1)
        await fill(nodes.directory / "pump", "pump", CLUSTER_ID, records)
        node = nodes.start("pump")
        found: dict[str, list[Pull]] = {name: [] for name in ("", *NAMES)}
        for _ in range(ROUNDS):
            for name, pulls in found.items():
                pulls.append(await asyncio.to_thread(pull, node, transactions, name))
    return [_result(name, found[""], found[name], transactions) for name in NAMES]


def _result(name: str, plain: list[Pull], packed: list[Pull], transactions: int) -> Result:
    cost = median([one.cpu_us for one in packed])
    before = median([one.cpu_us for one in plain])
    size, before_size = packed[-1].wire_bytes, plain[-1].wire_bytes
    return Result(
        name=f"pump.pull.compressed.{name}",
        value=100 * size / before_size,
        unit="% of the bytes",
        cpu_us_per_unit=cost,
        compared_to=f"CPU without compression, {before:.1f} us",
        ratio=cost / before,
        note=(
            f"a transaction: {size:,.0f} B of {before_size:,.0f}; pump"
            f" {median([one.pump_us for one in packed]):.1f} us of CPU, without"
            f" {median([one.pump_us for one in plain]):.1f}; client"
            f" {median([one.client_us for one in packed]):.1f}, without"
            f" {median([one.client_us for one in plain]):.1f};"
            f" {median([one.per_s for one in packed]):,.0f}/s, without"
            f" {median([one.per_s for one in plain]):,.0f}/s; {transactions:,} transactions of sysbench,"
            f" {ROUNDS} rounds in turns"
        ),
    )


def run(settings: Settings) -> list[Result]:
    return asyncio.run(run_async())
