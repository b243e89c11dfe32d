"""`drain.start`: from exec of a drainer until its first row is downstream, all binlogs stored before.

A fresh downstream each time: the schema's DDL runs before the first row. Then the same with a stored
checkpoint, from exec until the status page answers that everything is applied. Where the time goes is read
from the times of the drainer's own log lines. Compared with a Python that only imports what a drainer does.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Final

from binlog_playground.cluster.cluster import Node
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.draining import PEER, Bench, Rounds, filled
from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings
from tests.rig import ROOT

ROUNDS: Final = 5
ASKED_S: Final = 1.5
TRANSACTIONS: Final = 100
_STAMP: Final = re.compile(r"^\[(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}) ([+-]\d\d:\d\d)\]")
_STEPS: Final = (("imports", "drainer starts"), ("checkpoint", "checkpoint"), ("schema", "schema"))


def import_s() -> float:
    """A Python that imports a drainer and ends."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import drainer.program"], check=True, cwd=ROOT)
    return time.monotonic() - began_s


def log_times(node: Node, began_at: float) -> dict[str, float]:
    """Seconds from exec to the last line with each message."""
    found: dict[str, float] = {}
    for line in node.process.log.read_text(encoding="utf-8", errors="replace").splitlines():
        stamp = _STAMP.match(line)
        if stamp is None:
            continue
        at = datetime.strptime(" ".join(stamp.groups()), "%Y/%m/%d %H:%M:%S.%f %z").timestamp()
        for name, message in _STEPS:
            if f"[{message}]" in line or f'["{message}"]' in line:
                found[name] = at - began_at
    return found


async def again(bench: Bench, node: Node) -> float:
    """Start on a checkpoint that has everything: until its status page answers."""
    began_s = time.monotonic()
    node.process.start()
    await bench.cluster.until_ready(node)
    took_s = time.monotonic() - began_s
    await asyncio.to_thread(node.process.stop)
    return took_s


async def measure(settings: Settings) -> Result:
    found = Rounds()
    steps: list[dict[str, float]] = []
    restarts, imports = [], []
    async with AsyncExitStack() as stack:
        bench = await stack.enter_async_context(filled(sysbench_like.make(transactions=TRANSACTIONS)))
        node = await bench.drainer()
        peer = stack.enter_context(bench.peer(settings))
        for _ in range(ROUNDS):
            began_at = time.time()
            found.drained.append(await bench.drain(node))
            steps.append(log_times(node, began_at))
            restarts.append(await again(bench, node))
            imports.append(await asyncio.to_thread(import_s))
            if peer is not None:
                found.theirs.append(await bench.drain(peer, PEER))
    took_s = found.median(lambda one: one.first_row_s)
    limit_s = percentile(imports, 0.5)
    phases = ", ".join(
        f"{name} {percentile([step[name] for step in steps], 0.5):.2f} s"
        for name, _ in _STEPS
        if all(name in step for step in steps)
    )
    return Result(
        name="drain.start",
        value=took_s,
        unit="s",
        p50_ms=took_s * 1000,
        p99_ms=percentile([one.first_row_s for one in found.drained], 0.99) * 1000,
        peak_rss_mib=found.peak_rss_mib,
        compared_to=f"importing alone, {limit_s:.2f} s",
        ratio=took_s / limit_s,
        note=(
            f"asked: at most {ASKED_S} s; from exec to the first row, {len(bench.scenario.jobs)} DDL before"
            f" it; rounds {', '.join(f'{one.first_row_s:.2f}' for one in found.drained)} s; done after exec:"
            f" {phases}; a restart answers after {percentile(restarts, 0.5):.2f} s; contents verified"
        ),
        theirs=Theirs.of([one.first_row_s for one in found.theirs]),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
