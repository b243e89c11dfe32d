"""`load.sysbench`: rows of a program's database into an empty MariaDB, by `binlogctl load` as users call it.

A rate is rows by the time from exec to exit. It is compared with `LOAD DATA` of the same rows from a file, by
two sessions at once, into the same server in the same run, in turns. Tables are compared by the servers'
checksums after every round. Memory is the peak of the command over tables four times as large, beside that
over the small ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.existing_rows import CREATE, SCHEMA, Existing, existing
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tidb_binlog.errors import DownstreamError, Unavailable

TABLES: Final = 4
ROWS: Final = 200_000
SMALL_ROWS: Final = ROWS // 4
ROUNDS: Final = 3
SESSIONS: Final = 2
CORES: Final = 2
WATCH_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Round:
    """CPU in microseconds a row."""

    seconds: float
    client_us: float
    upstream_us: float
    downstream_us: float
    peak_rss_mib: float


def run(settings: Settings) -> Result:
    return asyncio.run(measure())


async def measure() -> Result:
    async with existing(TABLES, SMALL_ROWS) as made:
        small = await asyncio.to_thread(_measured, made, _load)
    async with existing(TABLES, ROWS) as made:
        await asyncio.to_thread(_write_files, made)
        ours, limits = [], []
        for _ in range(ROUNDS):
            ours.append(await asyncio.to_thread(_measured, made, _load))
            limits.append(await asyncio.to_thread(_measured, made, _load_data))
    rows = TABLES * ROWS
    rate, limit = (rows / median(one.seconds for one in rounds) for rounds in (ours, limits))
    client, upstream, downstream = (
        median(getattr(one, name) for one in ours) for name in ("client_us", "upstream_us", "downstream_us")
    )
    all_us = client + upstream + downstream
    limit_us = median(one.downstream_us for one in limits)
    return Result(
        name="load.sysbench",
        value=rate,
        unit="rows/s",
        cpu_us_per_unit=client,
        peak_rss_mib=max(one.peak_rss_mib for one in ours),
        compared_to=f"LOAD DATA, {limit:,.0f}/s, {limit_us:.1f} us of MariaDB",
        ratio=rate / limit,
        note=(
            f"{rows:,} rows, from exec to exit in {', '.join(f'{one.seconds:.1f} s' for one in ours)};"
            f" CPU us a row: upstream {upstream:.1f}, downstream {downstream:.1f}, all three {all_us:.1f},"
            f" so {CORES * 1e6 / all_us:,.0f}/s where {CORES} cores do nothing else; peak of a quarter of the"
            f" rows {small.peak_rss_mib:.0f} MiB; contents verified"
        ),
    )


def _measured(made: Existing, work: Callable[[Existing], float]) -> Round:
    """Raises `DownstreamError` if the tables are not equal then. `work`: its peak of memory, MiB."""
    made.empty()
    servers = [one.process.pid for one in (made.upstream, made.downstream) if one.process is not None]
    before = [*map(cpu_s, servers), _children_s()]
    began_s = time.monotonic()
    peak = work(made)
    seconds = time.monotonic() - began_s
    rows = len(made.tables) * made.rows
    after = [*map(cpu_s, servers), _children_s()]
    upstream, downstream, client = ((b - a) * 1e6 / rows for a, b in zip(before, after, strict=True))
    if made.checksums(made.upstream) != made.checksums(made.downstream):
        raise DownstreamError("the tables are not equal")
    return Round(seconds, client, upstream, downstream, peak)


def _children_s() -> float:
    """CPU of the children that have ended."""
    found = os.times()
    return found.children_user + found.children_system


def _load(made: Existing) -> float:
    command = [sys.executable, "-m", "binlogctl", "load", "-drainer-config", str(made.config)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0.0
    while process.poll() is None:
        with suppress(OSError, Unavailable):
            peak = max(peak, peak_rss_mib(process.pid))
        time.sleep(WATCH_S)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    if process.returncode:
        raise DownstreamError(f"load ended with {process.returncode}: {said.strip()[-300:]}")
    return peak


def _file(made: Existing, table: str) -> Path:
    return made.cluster.directory / f"{table}.txt"


def _write_files(made: Existing) -> None:
    for table in made.tables:
        made.run(made.upstream, f"SELECT * INTO OUTFILE '{_file(made, table)}' FROM {SCHEMA}.{table}")


def _load_data(made: Existing) -> float:
    made.run(made.downstream, f"CREATE DATABASE {SCHEMA}")

    def one(table: str) -> None:
        name = f"{SCHEMA}.{table}"
        made.run(
            made.downstream,
            CREATE.format(name=name),
            f"LOAD DATA INFILE '{_file(made, table)}' INTO TABLE {name}",
        )

    with ThreadPoolExecutor(SESSIONS) as sessions:
        list(sessions.map(one, made.tables))
    return 0.0
