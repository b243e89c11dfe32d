"""`spark.live`: what a Pump holds goes into a MariaDB by tasks of Spark, beside `spark.replay` of files.

The ratio is one of CPU: what a change costs from the Pump, Pump and downstream included, of what it costs
from files, for the same workload: as many rows, changed as often, all tables made first. The driver's share
is that of its Python. Contents are verified.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

from drainer.config.options import DrainerConfig
from drainer.spark.live.downstream import LiveSettings
from drainer.spark.live.stream import PumpStream
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.draining import filled, reset, verify
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark.replay import cpu_below, warm
from tests.benchmarks.spark.rows import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = 3
ROWS: Final = 50_000


async def _rounds(spark: SparkSession) -> tuple[int, float, float, float]:
    """Changes of a round; of the best one its seconds, CPU seconds and those of the driver's Python."""
    transactions = ROWS * 3 // 4
    scenario = sysbench_like.make(transactions=transactions, rows=ROWS // TABLES, tables_first=True)
    rounds: list[tuple[float, float, float]] = []
    async with filled(scenario) as bench:
        server = bench.cluster.mariadb
        live = LiveSettings(
            DrainerConfig(
                pd_urls=bench.cluster.etcd_endpoint,
                data_dir=str(bench.cluster.directory),
                initial_commit_ts=0,
                to_user=server.user,
                to_password=server.password,
                to_socket=server.socket,
            ),
            "spark",
            once=True,
            small_bytes=0,
        )
        for _ in range(ROUNDS):
            reset(server, scenario)
            used, own_s, began_s = cpu_below(os.getpid()), time.process_time(), time.monotonic()
            await asyncio.to_thread(PumpStream(live, lambda: spark).wait)
            seconds, own_s = time.monotonic() - began_s, time.process_time() - own_s
            total_s = sum(cpu_below(os.getpid()).values()) - sum(used.values())
            verify(server, scenario)
            rounds.append((total_s, seconds, own_s))
        total_s, seconds, own_s = min(rounds)
        return bench.plan.rows, seconds, total_s, own_s


def run(settings: Settings) -> Result:
    with warm() as bench:
        files = bench.measure("oltp", ROWS)
        changes, seconds, total_s, own_s = asyncio.run(_rounds(bench.spark))
    cost, of_files = total_s * 1e6 / changes, sum(files.cpu_us.values())
    return Result(
        "spark.live",
        changes / seconds,
        "changes/s",
        cost,
        None,
        None,
        None,
        f"CPU from files, {of_files:.1f} us",
        cost / of_files,
        f"{changes} changes; the driver's Python has {own_s / total_s:.1%} of the CPU;"
        f" from files {files.rate:,.0f}/s",
    )
