"""`drainer.idle`: CPU of a drainer to which nothing comes, in percent of a core. `drainer.idle.wakeups`: how
often a second its threads and those of the pump that it follows wake up.

One pump that nobody writes to, one MariaDB. Measured after `idle_asking.QUIET_AFTER_S`: from then on a stream
counts as quiet. Compared with the pump that it follows. Go's drainer then follows the same pump.
"""

from __future__ import annotations

import asyncio
from typing import Final

from drainer.stream.pull.collector import QUIET_AFTER_S
from tests.benchmarks.measure import cpu_s, peak_rss_mib, wake_ups
from tests.benchmarks.peer.programs import DRAINER, programs
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings, private_cluster

NAME: Final = "drainer.idle"
ASKED_PERCENT: Final = 0.5
ASKED_WAKE_UPS: Final = 20.0
SETTLE_S: Final = QUIET_AFTER_S + 2.0


async def rest(seconds: float, *pids: int) -> tuple[list[float], list[float]]:
    """(CPU seconds a second, wake-ups a second) of each, begun when it is quiet."""
    await asyncio.sleep(SETTLE_S)
    before_s, woken = [cpu_s(pid) for pid in pids], [wake_ups(pid) for pid in pids]
    await asyncio.sleep(seconds)
    spent = [(cpu_s(pid) - one_s) / seconds for pid, one_s in zip(pids, before_s, strict=True)]
    return spent, [(wake_ups(pid) - count) / seconds for pid, count in zip(pids, woken, strict=True)]


async def measure(settings: Settings) -> list[Result]:
    seconds = 2 * settings.seconds
    async with private_cluster() as cluster:
        await cluster.start_base(None)
        await cluster.start_pumps(1)
        drainer = await cluster.start_drainer()
        pump_pid = cluster.pumps[0].process.pid
        (spent_s, pump_s), (drainer_wakes_s, pump_wakes_s) = await rest(
            seconds, drainer.process.pid, pump_pid
        )
        rss = peak_rss_mib(drainer.process.pid)
        await asyncio.to_thread(drainer.process.stop)
        theirs = wakes = None
        with programs(settings, DRAINER, cluster.supervisor, cluster.etcd_endpoint) as go:
            if go is not None:
                peer = await cluster.begin_drainer(go.mysql_drainer(cluster.mariadb))
                (peer_s, _), peer_wakes_s = await rest(seconds, peer.process.pid, pump_pid)
                theirs, wakes = Theirs(peer_s * 100, peer_s * 1e6), Theirs(sum(peer_wakes_s))
    percent, pump_percent = spent_s * 100, pump_s * 100
    idle = Result(
        name=NAME,
        value=percent,
        unit="% of a core",
        cpu_us_per_unit=spent_s * 1e6,
        peak_rss_mib=rss,
        compared_to=f"the pump that it follows, {pump_percent:.2f} %",
        ratio=percent / max(pump_percent, 0.01),
        note=f"asked: below {ASKED_PERCENT:g} %; CPU of one second",
        theirs=theirs,
    )
    wakeups = Result(
        name=f"{NAME}.wakeups",
        value=drainer_wakes_s + pump_wakes_s,
        unit="/s",
        compared_to=f"what is asked, {ASKED_WAKE_UPS:g}/s",
        ratio=(drainer_wakes_s + pump_wakes_s) / ASKED_WAKE_UPS,
        note=f"voluntary switches of all threads: the drainer's {drainer_wakes_s:.1f}, the pump's"
        f" {pump_wakes_s:.1f} a second",
        theirs=wakes,
    )
    return [idle, wakeups]


def run(settings: Settings) -> list[Result]:
    return asyncio.run(measure(settings))
