"""`verify.hold`: for how long rows are held still so that a snapshot of the downstream can be opened.

Programs write through two pumps all the time; a snapshot of four sessions is opened again and again. Compared
with the same four statements on four idle sessions of the same MariaDB: what has to happen meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from binlog_playground.cluster.cluster import Cluster, Node
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target, connect
from drainer.points.snapshot.drainer_hold import DrainerHold
from pumpclient.publish.publisher import open_publisher
from tests.benchmarks.drainer import lag, shop
from tests.benchmarks.measure import peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.drainer.points.snapshot.opening import open_downstream
from tests.drainer.support.held_life import settings_of
from tidb_binlog.clock import SystemClock

SESSIONS: Final = 4
PAUSE_S: Final = 0.05
DIRECT_ROUNDS: Final = 50


def configuration(cluster: Cluster) -> DrainerConfig:
    server = cluster.mariadb
    return settings_of(Target(server.host, server.port, server.user, server.password))


def hold_of(drainer: Node) -> DrainerHold:
    async def locate() -> str:
        return drainer.address

    return DrainerHold(locate, None, SystemClock())


def direct_ms(cluster: Cluster) -> list[float]:
    """The statements alone, on sessions that are there."""
    server = cluster.mariadb
    target = Target(server.host, server.port, server.user, server.password)
    connections = [connect(target) for _ in range(SESSIONS)]
    took = []
    for connection in connections:
        connection.run(b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for _ in range(DIRECT_ROUNDS):
        began_s = time.monotonic()
        for connection in connections:
            connection.run(b"START TRANSACTION WITH CONSISTENT SNAPSHOT")
        took.append((time.monotonic() - began_s) * 1000)
        for connection in connections:
            connection.rollback()
    for connection in connections:
        connection.close()
    return took


async def measure(seconds: float) -> tuple[list[float], list[float], float, float]:
    """Times held, times of the statements alone, transactions a second meanwhile, peak memory."""
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(None)
        await cluster.start_pumps(2)
        drainer = await cluster.start_drainer()
        async with await open_publisher(cluster.etcd_endpoint) as publisher:
            version = await shop.create(publisher, upstream)
            async with lag.background(cluster, version, lag.LOAD_PER_S) as finish:
                await asyncio.sleep(lag.SETTLE_S)
                held, settings, hold = [], configuration(cluster), hold_of(drainer)
                applied = int((await drainer.status())["Transactions"])
                began_s = time.monotonic()
                while time.monotonic() - began_s < seconds:
                    snapshot = await open_downstream(settings, hold, SESSIONS)
                    held.append(snapshot.held_ms)
                    await snapshot.close()
                    await asyncio.sleep(PAUSE_S)
                per_s = (int((await drainer.status())["Transactions"]) - applied) / (
                    time.monotonic() - began_s
                )
                alone = await asyncio.to_thread(direct_ms, cluster)
                await finish()
        return held, alone, per_s, peak_rss_mib(drainer.process.pid)


def run(settings: Settings) -> Result:
    held, alone, per_s, peak = asyncio.run(measure(settings.seconds))
    p50, p99 = percentile(held, 0.5), percentile(held, 0.99)
    direct = percentile(alone, 0.5)
    return Result(
        name="verify.hold",
        value=p50,
        unit="ms",
        p50_ms=p50,
        p99_ms=p99,
        peak_rss_mib=peak,
        compared_to=f"the statements of {SESSIONS} sessions alone, {direct:.2f} ms",
        ratio=p50 / direct,
        note=f"{len(held)} snapshots, {per_s:.0f} transactions/s applied meanwhile, limit 20 ms",
    )
