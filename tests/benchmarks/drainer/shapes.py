"""`drain.inserts`, `drain.keyless`, `drain.hot`, `drain.wide`: one thing stressed each (`workloads`); and
`drain.collation`: a table whose key is text in `utf8mb4_general_ci`, in turns with one in `utf8mb4_bin`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.draining import ROUNDS, Rounds, costs, filled, measured, rates, result
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

COLLATION: Final = "utf8mb4_general_ci"
BINARY: Final = "utf8mb4_bin"


def inserts(settings: Settings) -> Result:
    what = f"INSERTs, {workloads.INSERTS_A_TRANSACTION} a transaction"
    return result("drain.inserts", what, *asyncio.run(measured(workloads.inserts(), settings)))


def keyless(settings: Settings) -> Result:
    what = "one table without a key, which MariaDB searches for every row"
    return result("drain.keyless", what, *asyncio.run(measured(workloads.keyless(), settings)))


def hot(settings: Settings) -> Result:
    what = "one table, one row in every transaction"
    return result("drain.hot", what, *asyncio.run(measured(workloads.hot(), settings)))


def wide(settings: Settings) -> Result:
    what = f"{workloads.WIDE_COLUMNS} columns"
    return result("drain.wide", what, *asyncio.run(measured(workloads.wide(), settings)))


async def measure_collation() -> Result:
    exact, equal = Rounds(), Rounds()
    async with (
        filled(workloads.named(BINARY)) as plain,
        filled(workloads.named(COLLATION)) as bench,
    ):
        first, second = await plain.drainer(), await bench.drainer()
        for _ in range(ROUNDS):
            exact.drained.append(await plain.drain(first))
            equal.drained.append(await bench.drain(second))
        rows = bench.plan.rows
        rate, plain_rate = (rows / one.median(lambda drained: drained.seconds) for one in (equal, exact))
        cost, plain_cost = (costs(bench.plan, one)[0] for one in (equal, exact))
    return Result(
        name="drain.collation",
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=cost,
        peak_rss_mib=equal.peak_rss_mib,
        compared_to=f"the same in {BINARY}, {plain_rate:,.0f}/s",
        ratio=rate / plain_rate,
        note=(
            f"{rows:,} row changes of a table with a VARCHAR key in {COLLATION}, rounds"
            f" {rates(rows, equal.drained)}/s, in turns with {rates(rows, exact.drained)}/s; CPU us a change"
            f" {cost:.1f}, {plain_cost:.1f} in {BINARY}; contents verified"
        ),
    )


def collation(settings: Settings) -> Result:
    return asyncio.run(measure_collation())
