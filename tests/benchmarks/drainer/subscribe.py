"""`subscribe.rows`, `subscribe.lag`: a program reads changes as Python values.

rows   a pump full of small transactions; a program reads all of them, and a Drainer archives the same.
       Rounds take turns. A rate is rows by the time from the program's first row to its last one
lag    a probe transaction each second (idle) through `pumpclient`; from its acknowledgement until the program
       has its row. Beside it the time that the transaction itself took
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from random import Random
from typing import Any, Final

from pumpclient.publish.publisher import open_publisher
from tests.benchmarks.drainer import shop
from tests.benchmarks.drainer.file_sink import Bench
from tests.benchmarks.drainer.lag import IDLE_INTERVAL_S, JITTER_S, PROBES_A_SECOND_ASKED, PROBES_MIN
from tests.benchmarks.drainer.sysbench import workload
from tests.benchmarks.measure import peak_rss_mib, percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings, private_cluster
from tests.rig import ROOT
from tidb_binlog.errors import Unavailable

ROUNDS: Final = 3
GIVE_UP_S: Final = 60.0


async def reader(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.benchmarks.drainer.change_reader",
        *arguments,
        stdout=PIPE,
        cwd=ROOT,
    )


async def read_once(endpoint: str, stop_ts: int) -> dict[str, Any]:
    process = await reader("rows", endpoint, str(stop_ts))
    async with asyncio.timeout(GIVE_UP_S):
        said, _ = await process.communicate()
    if process.returncode:
        raise Unavailable(f"the reading program ended with {process.returncode}")
    found: dict[str, Any] = json.loads(said)
    return found


async def measured(settings: Settings) -> Result:
    scenario, source = workload(settings)
    reads: list[dict[str, Any]] = []
    drained = []
    async with private_cluster() as cluster:
        bench = Bench(cluster, scenario)
        await bench.fill()
        for _ in range(ROUNDS):
            reads.append(await read_once(cluster.etcd_endpoint, scenario.last_commit_ts))
            drained.append(await bench.archive())
    rows = drained[0].rows
    wrong = [one["rows"] for one in reads if one["rows"] != rows]
    if wrong:
        raise Unavailable(f"the program read {wrong} rows of {rows}")
    rate = rows / percentile([one["seconds"] for one in reads], 0.5)
    cost = percentile([one["cpu_s"] for one in reads], 0.5) / rows * 1e6
    drainer = percentile([one.drainer_s for one in drained], 0.5) / rows * 1e6
    rates = ", ".join(f"{rows / one['seconds']:,.0f}" for one in reads)
    return Result(
        name="subscribe.rows",
        value=rate,
        unit="rows/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=max(one["peak_rss_mib"] for one in reads),
        compared_to=f"CPU a row of a Drainer that archives the same, {drainer:.1f} us",
        ratio=cost / drainer,
        note=(
            f"{source}, {rows:,} rows in {reads[0]['transactions']:,} transactions; rounds {rates}/s; on one"
            f" core {1e6 / cost:,.0f} rows/s; CPU us a row: program {cost:.1f}, Drainer {drainer:.1f}"
        ),
    )


def rows(settings: Settings) -> Result:
    return asyncio.run(measured(settings))


async def lags(probes: int) -> tuple[list[float], list[float], float]:
    """Of each probe the lag and the time of its transaction, ms; the program's peak memory, MiB."""
    async with private_cluster() as cluster:
        upstream = await cluster.start_base(None)
        await cluster.start_pumps(1)
        async with await open_publisher(cluster.etcd_endpoint) as publisher:
            version = await shop.create(publisher, upstream)
            process = await reader("lag", cluster.etcd_endpoint, f"{shop.SCHEMA}.{shop.PROBES.name}")
            assert process.stdout is not None
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    await process.stdout.readline()
                random, encode = Random(1), shop.encoder(shop.PROBES)
                found, spent = [], []
                for number in range(1, probes + 1):
                    began_s = time.monotonic()
                    async with publisher.transaction(ttl_s=10.0, schema_version=version) as one:
                        one.insert(shop.PROBES.id, encode.insert((number, number, "probe")))
                    acknowledged_s = time.monotonic()
                    async with asyncio.timeout(GIVE_UP_S):
                        seen, seen_s = (await process.stdout.readline()).split()
                    assert int(seen) == number
                    found.append((float(seen_s) - acknowledged_s) * 1000)
                    spent.append((acknowledged_s - began_s) * 1000)
                    await asyncio.sleep(IDLE_INTERVAL_S + random.random() * JITTER_S)
                return found, spent, peak_rss_mib(process.pid)
            finally:
                process.kill()
                await process.wait()


def lag(settings: Settings) -> Result:
    probes = max(PROBES_MIN, int(settings.seconds * PROBES_A_SECOND_ASKED))
    found, spent, peak = asyncio.run(lags(probes))
    p50_ms, direct_ms = percentile(found, 0.5), percentile(spent, 0.5)
    return Result(
        name="subscribe.lag",
        value=p50_ms,
        unit="ms",
        p50_ms=p50_ms,
        p99_ms=percentile(found, 0.99),
        peak_rss_mib=peak,
        compared_to=f"the probe's own transaction through pumpclient, {direct_ms:.2f} ms",
        ratio=p50_ms / direct_ms,
        note=f"{probes} probes, one a second, idle; from the acknowledgement until the row is there",
    )
