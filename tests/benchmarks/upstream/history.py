"""`upstream.history.1m`: the whole DDL history of an old cluster, from PD and TiKV into the tracked schema.

The fake servers are a process of their own and serve pages that were encoded before. CPU and memory are those
of a process that does what a drainer does at its start, from the first call to PD on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.door.children import Child, median
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.upstream.history_load import OURS, PLAIN
from tidb_binlog.errors import Corruption

NAME: Final = "upstream.history.1m"
JOBS: Final = 1_000_000
ROUNDS: Final = 3


def run(settings: Settings) -> Result:
    with tempfile.TemporaryDirectory(prefix="binlog-bench-") as directory:
        path = str(Path(directory) / "pages")
        with Child("upstream.history_server", JOBS, path) as server:
            told = server.said("listening")
            rounds = []
            for _ in range(ROUNDS):
                with Child("upstream.history_load", OURS, told["address"]) as load:
                    rounds.append(load.said("end"))
                    load.wait()
        with Child("upstream.history_load", PLAIN, path) as load:
            plain_us = load.said("end")["cpu_us"]
            load.wait()
    if any(one["tables"] != told["tables"] for one in rounds):
        raise Corruption(f"{told['tables']} tables are there, not {[one['tables'] for one in rounds]}")
    cpu_s = median([one["cpu_s"] for one in rounds])
    took_s = median([one["took_s"] for one in rounds])
    return Result(
        name=NAME,
        value=cpu_s,
        unit="CPU s",
        cpu_us_per_unit=cpu_s / JOBS * 1e6,
        peak_rss_mib=max(one["peak"] for one in rounds),
        compared_to=f"json.loads of the same bytes, {plain_us * JOBS / 1e6:.1f} CPU s",
        ratio=cpu_s / (plain_us * JOBS / 1e6),
        note=(
            f"{JOBS:,} jobs of {told['bytes'] / JOBS:,.0f} bytes, {told['tables']:,} tables at the end;"
            f" {took_s:.1f} s by the clock; median of {ROUNDS} rounds"
        ),
    )
