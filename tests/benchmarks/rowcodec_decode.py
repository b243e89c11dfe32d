"""`rowcodec.decode`: an encoded five-column row to Python values.

Compared with `json.loads` of the same row: what a change feed that speaks JSON would pay, in C.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

from tests.benchmarks.measure import percentile
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.rig.workload.tables import BIGINT, DATETIME, DECIMAL, HANDLE, INT, new_table, varchar
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo

ROWS = 2000
ROUNDS_MIN = 5


def table_info() -> TableInfo:
    columns = (
        ("id", BIGINT),
        ("customer", INT),
        ("name", varchar(64)),
        ("amount", DECIMAL),
        ("placed_at", DATETIME),
    )
    table = new_table(100, "shop", "orders", columns, primary=("id",), storage=HANDLE)
    return TableInfo.from_json(table.info())


def rows(random: Random) -> list[tuple[Any, ...]]:
    return [
        (
            random.randrange(1 << 40),
            random.randrange(1 << 20),
            "".join(random.choices("abcdefghij klmnopqrst", k=random.randrange(8, 33))),
            f"{random.randrange(100_000)}.{random.randrange(1_000_000):06}",
            f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02} 12:30:59.125",
        )
        for _ in range(ROWS)
    ]


def cost_us(function: Callable[[Any], object], inputs: list[Any]) -> float:
    """CPU microseconds of one call, over all inputs once."""
    began_s = time.process_time()
    for one in inputs:
        function(one)
    return (time.process_time() - began_s) * 1e6 / len(inputs)


def run(settings: Settings) -> Result:
    info = table_info()
    plan = compile_table(info)
    encoder = RowEncoder(info)
    values = rows(Random(1))
    encoded = [encoder.insert(row) for row in values]
    texts = [json.dumps(row).encode() for row in values]
    assert [plan.decode_insert(row) for row in encoded] == values, "rows must come back as they were"
    decode: list[float] = []
    loads: list[float] = []
    end_s = time.monotonic() + settings.seconds / 2
    while len(decode) < ROUNDS_MIN or time.monotonic() < end_s:
        decode.append(cost_us(plan.decode_insert, encoded))
        loads.append(cost_us(json.loads, texts))
    # Other work on the machine only ever makes a round dearer: the best one is the cost.
    best, best_loads = min(decode), min(loads)
    return Result(
        name="rowcodec.decode",
        value=best,
        unit="us/row",
        cpu_us_per_unit=best,
        p50_ms=percentile(decode, 0.5) / 1000,
        p99_ms=percentile(decode, 0.99) / 1000,
        compared_to=f"json.loads of the same row, {best_loads:.2f} us",
        ratio=best / best_loads,
        note=f"best of {len(decode)} rounds of {ROWS} rows; p50 and p99 are those of the rounds",
    )
