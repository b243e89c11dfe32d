"""`drainer.idle`: CPU of a drainer to which nothing comes, in percent of a core. `drainer.idle.wakeups`: how
often a second its threads and those of the pump that it follows wake up.

One pump that nobody writes to, one MariaDB. Measured after `idle_asking.QUIET_AFTER_S`: from then on a stream
counts as quiet. Compared with the pump that it follows.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drainer.stream.pull.collector import QUIET_AFTER_S
from tests.benchmarks.measure import cpu_s, peak_rss_mib, wake_ups
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster

NAME: Final = "drainer.idle"
ASKED_PERCENT: Final = 0.5
ASKED_WAKE_UPS: Final = 20.0
SETTLE_S: Final = QUIET_AFTER_S + 2.0


async def measure(settings: Settings) -> list[Result]:
    seconds = 2 * settings.seconds
    async with private_cluster() as cluster:
        await cluster.start_base(None)
        await cluster.start_pumps(1)
        drainer = await cluster.start_drainer()
        pids = drainer.process.pid, cluster.pumps[0].process.pid
        await asyncio.sleep(SETTLE_S)
        before, woken = [cpu_s(pid) for pid in pids], [wake_ups(pid) for pid in pids]
        await asyncio.sleep(seconds)
        drainer_wakes_s, pump_wakes_s = (
            (wake_ups(pid) - count) / seconds for pid, count in zip(pids, woken, strict=True)
        )
        spent_s, pump_s = (cpu_s(pid) - one for pid, one in zip(pids, before, strict=True))
        rss = peak_rss_mib(pids[0])
    percent, pump_percent = spent_s / seconds * 100, pump_s / seconds * 100
    idle = Result(
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
    wakeups = Result(
        name=f"{NAME}.wakeups",
        value=drainer_wakes_s + pump_wakes_s,
        unit="/s",
        cpu_us_per_unit=None,
        p50_ms=None,
        p99_ms=None,
        peak_rss_mib=None,
        compared_to=f"what is asked, {ASKED_WAKE_UPS:g}/s",
        ratio=(drainer_wakes_s + pump_wakes_s) / ASKED_WAKE_UPS,
        note=f"voluntary switches of all threads: the drainer's {drainer_wakes_s:.1f}, the pump's"
        f" {pump_wakes_s:.1f} a second",
    )
    return [idle, wakeups]


def run(settings: Settings) -> list[Result]:
    return asyncio.run(measure(settings))
