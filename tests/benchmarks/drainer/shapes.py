"""`drain.inserts`, `drain.keyless`, `drain.hot`, `drain.wide`: one thing stressed each (`workloads`)."""

from __future__ import annotations

import asyncio

from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.draining import measured, result
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings


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
