"""`drain.sysbench`, and the same workload under other conditions.

drain.sysbench   a pump full of binlogs, a drainer that starts, a MariaDB that has nothing yet
drain.durable    its MariaDB syncs its log and its binary log at every commit
drain.relay      with a relay log, in turns with drainers that have none
drain.ddl        with short DDL in it, in turns with the same without
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from typing import Final

from binlog_playground.scenario import Scenario, load
from tests.benchmarks.drainer import sysbench_like
from tests.benchmarks.drainer.draining import PEER, Rounds, costs, filled, measured, of_peer, rates, result
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import Unavailable

RELAY_ROUNDS: Final = 5
DDL_ROUNDS: Final = 5
DDL_TABLES: Final = 20
DDL_ROWS: Final = 1000
DDL_TRANSACTIONS: Final = 40_000
DDL_EVERY: Final = 1000
"""Transactions from one DDL to the next: more often than once a second, so that what one costs is seen."""


def workload(settings: Settings) -> tuple[Scenario, str]:
    """The workload and where it comes from."""
    if settings.recording is None:
        return sysbench_like.make(), "made up"
    return load(settings.recording), "recorded"


def run(settings: Settings) -> Result:
    scenario, source = workload(settings)
    return result("drain.sysbench", source, *asyncio.run(measured(scenario, settings)))


def durable(settings: Settings) -> Result:
    scenario, source = workload(settings)
    found = asyncio.run(measured(scenario, settings, durable=True))
    return result("drain.durable", f"{source}, MariaDB syncs at every commit", *found)


async def measure_relay(scenario: Scenario, settings: Settings) -> Result:
    plain, relayed = Rounds(), Rounds()
    async with AsyncExitStack() as stack:
        bench = await stack.enter_async_context(filled(scenario))
        without = await bench.drainer()
        directory = bench.cluster.directory / "relay"
        with_relay = await bench.drainer("relayed", f'relay.log-dir = "{directory}"\n')
        place = bench.cluster.directory / "peer-relay"
        peer = stack.enter_context(bench.peer(settings, f'[syncer.relay]\nlog-dir = "{place}"'))
        for _ in range(RELAY_ROUNDS):
            plain.drained.append(await bench.drain(without))
            relayed.drained.append(await bench.drain(with_relay))
            if peer is not None:
                shutil.rmtree(place, ignore_errors=True)
                relayed.theirs.append(await bench.drain(peer, PEER))
        if not any(path.stat().st_size for path in directory.iterdir()):
            raise Unavailable(f"{directory} has no relay log")
        rows = bench.plan.rows
        rate = rows / relayed.median(lambda one: one.seconds)
        plain_rate = rows / plain.median(lambda one: one.seconds)
        cost, plain_cost = costs(bench.plan, relayed)[0], costs(bench.plan, plain)[0]
    return Result(
        name="drain.relay",
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=relayed.peak_rss_mib,
        compared_to=f"without a relay log, {plain_rate:,.0f}/s",
        ratio=rate / plain_rate,
        note=(
            f"{rows:,} row changes, rounds {rates(rows, relayed.drained)}/s, in turns with"
            f" {rates(rows, plain.drained)}/s; CPU us a change {cost:.1f}, without {plain_cost:.1f};"
            " contents verified"
        ),
        theirs=of_peer(rows, relayed),
    )


def relay(settings: Settings) -> Result:
    scenario, _ = workload(settings)
    return asyncio.run(measure_relay(scenario, settings))


async def measure_ddl() -> Result:
    """The ratio is of a DDL each second, by what one costs."""
    plain, altered = Rounds(), Rounds()
    shape = {"transactions": DDL_TRANSACTIONS, "tables": DDL_TABLES, "rows": DDL_ROWS}
    without = sysbench_like.make(**shape, tables_first=True)
    with_ddl = sysbench_like.make(**shape, tables_first=True, ddl_every=DDL_EVERY)
    async with filled(without) as calm, filled(with_ddl) as bench:
        first, second = await calm.drainer(), await bench.drainer()
        for _ in range(DDL_ROUNDS):
            plain.drained.append(await calm.drain(first))
            altered.drained.append(await bench.drain(second))
        rows = bench.plan.rows
        seconds, plain_seconds = (one.median(lambda drained: drained.seconds) for one in (altered, plain))
        cost = costs(bench.plan, altered)[0]
    times = DDL_TRANSACTIONS // DDL_EVERY
    ddl_s = max(0.0, seconds - plain_seconds) / times
    return Result(
        name="drain.ddl",
        value=rows / seconds,
        unit="changes/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=altered.peak_rss_mib,
        compared_to=f"the same without DDL, {rows / plain_seconds:,.0f}/s",
        ratio=1 / (1 + ddl_s),
        note=(
            f"{rows:,} row changes of {DDL_TABLES} tables, {times} DDL (a key comes, a key goes), rounds"
            f" {rates(rows, altered.drained)}/s, in turns with {rates(rows, plain.drained)}/s; one DDL costs"
            f" {ddl_s * 1e3:.1f} ms, and the ratio is that of one DDL a second; contents verified"
        ),
    )


def ddl(settings: Settings) -> Result:
    return asyncio.run(measure_ddl())
