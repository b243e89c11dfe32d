"""`tail.start`: from exec of `binlogctl tail` until its first line, where pumps have changes already.

Compared with a Python that imports what it needs and ends.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from typing import Final

from pumpclient import column, open_publisher
from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.rig import ROOT

ROUNDS: Final = 9
LIMIT_S: Final = 0.5
_IMPORTS: Final = (
    "import binlogctl.program, uvloop, tidb_binlog.process.daemon, binlogctl.commands.tail,"
    " drainer.reading.subscribe.subscription, binlogctl.cluster.change_line"
)


def import_s() -> float:
    """A Python that imports what the command does, and ends."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True, cwd=ROOT)
    return time.monotonic() - began_s


def first_line_s(endpoint: str) -> float:
    """One run, ended by its first row."""
    command = [sys.executable, "-m", "binlogctl", "tail", "-pd-urls", endpoint, "-from", "oldest"]
    began_s = time.monotonic()
    with subprocess.Popen(
        [*command, "-tables", "shop.orders", "-limit", "1"], cwd=ROOT, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        took_s = time.monotonic() - began_s
        running.stdout.read()
    assert line, "no line"
    return took_s


async def measure() -> tuple[list[float], list[float], float]:
    """Seconds to the first line, seconds of the imports alone, CPU seconds of a run."""
    async with private_cluster() as cluster:
        await cluster.start_base(None)
        await cluster.start_pumps(1)
        endpoint = cluster.etcd_endpoint.removeprefix("http://")
        async with await open_publisher(endpoint) as publisher:
            await publisher.create_database("shop")
            columns = [column("id", "bigint", nullable=False)]
            await publisher.create_table("shop.orders", columns, primary_key=["id"])
            async with publisher.transaction() as txn:
                txn.insert("shop.orders", {"id": 1})
        await asyncio.to_thread(first_line_s, endpoint)  # files are in memory from here on
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = [await asyncio.to_thread(first_line_s, endpoint) for _ in range(ROUNDS)]
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        alone = [await asyncio.to_thread(import_s) for _ in range(ROUNDS)]
    cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return lines, alone, cpu_s / ROUNDS


def run(settings: Settings) -> Result:
    lines, alone, cpu_s = asyncio.run(measure())
    value, alone_s = percentile(lines, 0.5), percentile(alone, 0.5)
    return Result(
        name="tail.start",
        value=value,
        unit="s",
        cpu_us_per_unit=cpu_s * 1e6,
        p50_ms=value * 1e3,
        p99_ms=max(lines) * 1e3,
        compared_to=f"its imports alone, {alone_s:.2f} s",
        ratio=value / alone_s,
        note=f"from exec to the first line, {ROUNDS} runs, at most {LIMIT_S:g} s wanted; CPU of a whole run",
    )
