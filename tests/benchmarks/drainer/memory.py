"""`drain.memory`: the most memory that a drainer ever has resident, over both loads and a large backlog.

The loads are those of `drain.sysbench` and `drain.inserts`. The backlog is gibibytes in the files of a pump
(`--backlog`): updates of the same few rows, so that the downstream is not what limits it. Compared with what
is asked.
"""

from __future__ import annotations

import asyncio
from typing import Final

from binlog_playground.scenario import Scenario
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.draining import Drained, filled
from tests.benchmarks.drainer.sysbench import workload
from tests.benchmarks.drainer.workloads import Backlog
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

ASKED_MIB: Final = 250.0
DEADLINE_S: Final = 1800.0


async def drained(scenario: Scenario, more: Backlog | None = None) -> Drained:
    async with filled(scenario, more=more, deadline_s=DEADLINE_S) as bench:
        return await bench.drain(await bench.drainer())


async def measure(settings: Settings) -> Result:
    sysbench, _ = workload(settings)
    backlog = Backlog(settings.backlog_bytes)
    loads = [await drained(sysbench), await drained(workloads.inserts())]
    large = await drained(backlog.scenario, backlog)
    peaks = [one.peak_rss_mib for one in (*loads, large)]
    mib_per_s = settings.backlog_bytes / large.seconds / (1 << 20)
    return Result(
        name="drain.memory",
        value=max(peaks),
        unit="MiB",
        cpu_us_per_unit=large.cpu_s[0] / backlog.rows * 1e6,
        peak_rss_mib=max(peaks),
        compared_to=f"asked, {ASKED_MIB:.0f} MiB",
        ratio=max(peaks) / ASKED_MIB,
        note=(
            f"sysbench {peaks[0]:.0f}, inserts {peaks[1]:.0f}, a backlog of"
            f" {settings.backlog_bytes / (1 << 30):.3g} GiB {peaks[2]:.0f} MiB; the backlog at"
            f" {mib_per_s:.0f} MiB/s, CPU us in the table per row change of it; the pump"
            f" {large.pump_rss_mib:.0f} MiB at most; contents verified"
        ),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
