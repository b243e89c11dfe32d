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
SMALL_BYTES: Final = 64 << 10  # what lies between two DDL is nothing: it needs no job of Spark


async def _rounds(spark: SparkSession) -> tuple[int, float, float, dict[str, float]]:
    """Changes of a round; of the best one its seconds, CPU seconds of the driver's Python and of all, by
    program."""
    transactions = ROWS * 3 // 4
    scenario = sysbench_like.make(transactions=transactions, rows=ROWS // TABLES, tables_first=True)
    rounds: list[tuple[float, float, dict[str, float]]] = []
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
            small_bytes=SMALL_BYTES,
        )
        for _ in range(ROUNDS):
            reset(server, scenario)
            used, own_s, began_s = cpu_below(os.getpid()), time.process_time(), time.monotonic()
            await asyncio.to_thread(PumpStream(live, lambda: spark).wait)
            seconds, own_s = time.monotonic() - began_s, time.process_time() - own_s
            after = cpu_below(os.getpid())
            verify(server, scenario)
            rounds.append((seconds, own_s, {name: after[name] - used.get(name, 0.0) for name in after}))
        return bench.plan.rows, *min(rounds, key=lambda one: sum(one[2].values()))


def run(settings: Settings) -> Result:
    with warm() as bench:
        files = bench.best("oltp", ROWS, ROUNDS)
        changes, seconds, own_s, used = asyncio.run(_rounds(bench.spark))
    total_s = sum(used.values())
    cost, of_files = total_s * 1e6 / changes, sum(files.cpu_us.values())
    shares = ", ".join(f"{name} {one * 1e6 / changes:.1f}" for name, one in sorted(used.items()) if one > 0.1)
    return Result(
        name="spark.live",
        value=changes / seconds,
        unit="changes/s",
        cpu_us_per_unit=cost,
        compared_to=f"CPU from files, {of_files:.1f} us",
        ratio=cost / of_files,
        note=f"{changes} changes; the driver's Python has {own_s / total_s:.1%} of the CPU; CPU us a change:"
        f" {shares}; from files {files.rate:,.0f}/s, {files.note}",
    )
