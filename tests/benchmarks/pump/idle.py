"""`pump.idle`: CPU of a pump that nobody writes to while a drainer waits, in percent of a core.

The puller is a drainer's collector; measured once it asks for newer watermarks at the pace of a quiet stream.
Compared with the same pump without it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from binlog_playground.cluster.cluster import Node
from drainer.stream.pull.collector import QUIET_AFTER_S, QUIET_ASK_S
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.pump.following import following
from tests.benchmarks.pump.nodes import pump_nodes
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

NAME: Final = "pump.idle"
ASKED_PERCENT: Final = 0.3
SETTLE_S: Final = QUIET_AFTER_S + 2.0


async def spent_s(node: Node, seconds: float) -> float:
    """CPU within so many seconds, begun when what start and connections cost is over."""
    await asyncio.sleep(SETTLE_S)
    before_s = cpu_s(node.process.pid)
    await asyncio.sleep(seconds)
    return cpu_s(node.process.pid) - before_s


async def measure(settings: Settings) -> Result:
    seconds = 2 * settings.seconds
    async with pump_nodes(clock_stands=False) as nodes:
        node = nodes.start("pump")
        alone = await spent_s(node, seconds)
        watermarks: list[int] = []
        after_ts = await nodes.upstream.oracle.timestamp()
        async with following(nodes, 1, after_ts, lambda batch: watermarks.append(batch.watermark)):
            watched = await spent_s(node, seconds)
        rss = peak_rss_mib(node.process.pid)
    percent, percent_alone = watched / seconds * 100, alone / seconds * 100
    return Result(
        name=NAME,
        value=percent,
        unit="% of a core",
        cpu_us_per_unit=watched / seconds * 1e6,
        p50_ms=None,
        p99_ms=None,
        peak_rss_mib=rss,
        compared_to=f"without the drainer, {percent_alone:.2f} %",
        ratio=percent / max(percent_alone, 0.01),
        note=(
            f"asked: below {ASKED_PERCENT:g} %; a drainer that asks every {QUIET_ASK_S:g} s and was told"
            f" {len(watermarks)} watermarks; CPU of one second"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
