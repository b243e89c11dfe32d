"""`pump.idle`: CPU of a pump that nobody writes to while a drainer waits, in percent of a core.

The puller is a drainer's collector; measured once it asks for newer watermarks at the pace of a quiet stream.
Compared with the same pump without it. Go's pump is watched by its protocol at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from binlog_playground.cluster.cluster import Node
from drainer.stream.pull.collector import QUIET_AFTER_S, QUIET_ASK_S
from tests.benchmarks.door.children import Child
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.peer.programs import PUMP, READY_PATH, programs
from tests.benchmarks.pump.following import following
from tests.benchmarks.pump.nodes import pump_nodes, until_ready
from tests.benchmarks.pump.prepared import CLUSTER_ID
from tests.benchmarks.report import Result, Theirs
from tests.benchmarks.settings import Settings

NAME: Final = "pump.idle"
ASKED_PERCENT: Final = 0.3
NEVER: Final = 1 << 40  # transactions that a client waits for
SETTLE_S: Final = QUIET_AFTER_S + 2.0


async def spent_s(seconds: float, *nodes: Node) -> list[float]:
    """CPU within so many seconds, begun when what start and connections cost is over."""
    await asyncio.sleep(SETTLE_S)
    before_s = [cpu_s(node.process.pid) for node in nodes]
    await asyncio.sleep(seconds)
    return [cpu_s(node.process.pid) - one_s for node, one_s in zip(nodes, before_s, strict=True)]


async def watched_peer(settings: Settings, stack: AsyncExitStack) -> list[Node]:
    """Go's pump, of a cluster of its own; none where there is no program."""
    nodes = await stack.enter_async_context(pump_nodes(clock_stands=False))
    go = stack.enter_context(programs(settings, PUMP, nodes.supervisor, nodes.etcd_endpoint))
    if go is None:
        return []
    node = go.pump()
    node.process.start()
    until_ready(node, READY_PATH)
    after_ts = await nodes.upstream.oracle.timestamp()
    client = Child("pump.pull_client", node.address, CLUSTER_ID, after_ts, NEVER, "--old")
    stack.enter_context(client).said("begin")
    return [node]


async def measure(settings: Settings) -> Result:
    seconds = 2 * settings.seconds
    async with pump_nodes(clock_stands=False) as nodes, AsyncExitStack() as stack:
        node = nodes.start("pump")
        (alone,) = await spent_s(seconds, node)
        watermarks: list[int] = []
        after_ts = await nodes.upstream.oracle.timestamp()
        await stack.enter_async_context(
            following(nodes, 1, after_ts, lambda batch: watermarks.append(batch.watermark))
        )
        peers = [] if settings.peer is None else await watched_peer(settings, stack)
        watched, *theirs = await spent_s(seconds, node, *peers)
        rss = peak_rss_mib(node.process.pid)
    percent, percent_alone = watched / seconds * 100, alone / seconds * 100
    return Result(
        name=NAME,
        value=percent,
        unit="% of a core",
        cpu_us_per_unit=watched / seconds * 1e6,
        peak_rss_mib=rss,
        compared_to=f"without the drainer, {percent_alone:.2f} %",
        ratio=percent / max(percent_alone, 0.01),
        note=(
            f"asked: below {ASKED_PERCENT:g} %; a drainer that asks every {QUIET_ASK_S:g} s and was told"
            f" {len(watermarks)} watermarks; CPU of one second"
        ),
        theirs=Theirs.of([one / seconds * 100 for one in theirs], [one / seconds * 1e6 for one in theirs]),
    )


def run(settings: Settings) -> Result:
    return asyncio.run(measure(settings))
