"""`drainer.idle`: CPU of a drainer to which nothing comes, in percent of a core.

One pump that nobody writes to, one MariaDB. Measured after `idle_asking.QUIET_AFTER_S`: from then on a stream
counts as quiet. Compared with the pump that it follows.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drainer.stream.pull.collector import QUIET_AFTER_S
from tests.benchmarks.measure import exact_cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster

NAME: Final = "drainer.idle"
ASKED_PERCENT: Final = 0.5
SETTLE_S: Final = QUIET_AFTER_S + 2.0


async def measure(settings: Settings) -> Result:
    seconds = 2 * settings.seconds
    async with private_cluster() as cluster:
        await cluster.start_base(None)
        await cluster.start_pumps(1)
        drainer = await cluster.start_drainer()
        pids = drainer.process.pid, cluster.pumps[0].process.pid
        await asyncio.sleep(SETTLE_S)
        before = [exact_cpu_s(pid) for pid in pids]
        await asyncio.sleep(seconds)
        spent_s, pump_s = (exact_cpu_s(pid) - one for pid, one in zip(pids, before, strict=True))
        rss = peak_rss_mib(pids[0])
    percent, pump_percent = spent_s / seconds * 100, pump_s / seconds * 100
    return Result(
        name=NAME,
        value=percent,
        unit="% of a core",
        cpu_us_per_unit=spent_s / seconds * 1e6,
        p50_ms=None,
        p99_ms=None,
        peak_rss_mib=rss,
        compared_to=f"the pump that it follows, {pump_percent:.2f} %",
        ratio=percent / max(pump_percent, 0.01),
        note=f"asked: below {ASKED_PERCENT:g} %; CPU of one second",
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
