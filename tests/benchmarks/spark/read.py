"""`spark.read.changes`, `spark.count`, `spark.scaling`, `spark.executors`, `spark.memory`: an archive of the
OLTP shape, read.

Every reading is a process of its own, pinned to one core or two, so that the JVM cannot do on a second core
what is said to take one; so is every executor. Start-up is apart.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark import archive as spark_archive
from tidb_binlog.errors import Unavailable

CHANGES: Final = 1_000_000
LONG_CHANGES: Final = 4_000_000
MEMORY_CHANGES: Final = 10_000_000
WARM_UP: Final = 30_000
COUNT_GOAL: Final = 400_000
ROUNDS: Final = 2
DEADLINE_S: Final = 900


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading. `peak_mib`: by the name of the process."""

    seconds: float
    cpu_s: float
    peak_mib: dict[str, float]


@contextmanager
def archives(*sizes: int) -> Iterator[list[tuple[Path, int]]]:
    """Archives of at least so many row changes, each with its number."""
    directory = Path(tempfile.mkdtemp(prefix="binlog-bench-"))
    try:
        paths = [directory / str(number) for number in range(len(sizes))]
        yield [(path, spark_archive.make(path, size)) for path, size in zip(paths, sizes, strict=True)]
    finally:
        shutil.rmtree(directory)


def reading(archive: Path, cores: int, mode: str, warm_up: Path) -> Reading:
    """Raises `Unavailable` if the process fails."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.spark.child",
        str(archive),
        str(cores),
        mode,
        str(warm_up),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise Unavailable(f"the reading ended with {done.returncode}", hint=done.stderr[-2000:])
    return Reading(**json.loads(done.stdout.splitlines()[-1]))


def best(archive: Path, cores: int, mode: str, warm_up: Path) -> Reading:
    """Other work on the machine only ever makes a reading slower."""
    found = [reading(archive, cores, mode, warm_up) for _ in range(ROUNDS)]
    return min(found, key=lambda one: one.seconds)


def changes(settings: Settings) -> Result:
    with archives(CHANGES, WARM_UP) as ((archive, count), (warm_up, _)):
        plain = reading(archive, 1, "plain", warm_up)
        found = best(archive, 1, "typed", warm_up)
    rate, limit = count / found.seconds, count / plain.seconds
    return Result(
        name="spark.read.changes",
        value=rate,
        unit="changes/s",
        cpu_us_per_unit=found.cpu_s * 1e6 / count,
        peak_rss_mib=max(found.peak_mib.values()),
        compared_to=f"Python reading row by row, without Spark, {limit:,.0f}",
        ratio=rate / limit,
        note=f"{count:,} changes to typed columns on one core, start-up apart",
    )


def count(settings: Settings) -> list[Result]:
    with archives(LONG_CHANGES, WARM_UP) as ((archive, number), (warm_up, _)):
        counted = best(archive, 2, "count", warm_up)
        told = best(archive, 1, "index", warm_up)
        size = sum(path.stat().st_size for path in archive.glob("binlog-*"))
    rate = number / counted.seconds
    return [
        Result(
            name="spark.count",
            value=rate,
            unit="changes/s",
            cpu_us_per_unit=counted.cpu_s * 1e6 / number,
            peak_rss_mib=max(counted.peak_mib.values()),
            compared_to=f"{COUNT_GOAL:,} wanted",
            ratio=rate / COUNT_GOAL,
            note=f"{number:,} changes counted from the records on two cores, start-up apart",
        ),
        Result(
            name="spark.count.index",
            value=told.seconds * 1000,
            unit="ms",
            compared_to="1,000 wanted",
            ratio=told.seconds,
            note=f"{size / (1 << 20):,.0f} MiB, from the index beside the segments",
        ),
    ]


def scaling(settings: Settings) -> Result:
    return _twice("spark.scaling", "typed", "cores")


def executors(settings: Settings) -> Result:
    """What the tasks read goes nowhere, and nothing else of ours runs beside driver and executors."""
    return _twice("spark.executors", "executors", "executors of one core")


def _twice(name: str, mode: str, of: str) -> Result:
    with archives(LONG_CHANGES, WARM_UP) as ((archive, number), (warm_up, _)):
        one = best(archive, 1, mode, warm_up)
        two = best(archive, 2, mode, warm_up)
    gain = one.seconds / two.seconds
    return Result(
        name=name,
        value=gain,
        unit="x",
        cpu_us_per_unit=two.cpu_s * 1e6 / number,
        peak_rss_mib=max(two.peak_mib.values()),
        compared_to=f"2 {of}, 2 x",
        ratio=gain / 2,
        note=f"{number:,} changes: {number / one.seconds:,.0f}/s and {number / two.seconds:,.0f}/s, CPU"
        f" {one.cpu_s * 1e6 / number:.1f} and {two.cpu_s * 1e6 / number:.1f} us a change",
    )


def memory(settings: Settings) -> Result:
    with archives(MEMORY_CHANGES // 10, MEMORY_CHANGES, WARM_UP) as (small, large, (warm_up, _)):
        before = sum(reading(small[0], 2, "typed", warm_up).peak_mib.values())
        began_s = time.monotonic()
        after = sum(reading(large[0], 2, "typed", warm_up).peak_mib.values())
        seconds = time.monotonic() - began_s
    return Result(
        name="spark.memory",
        value=after,
        unit="MiB",
        peak_rss_mib=after,
        compared_to=f"{small[1]:,} changes, {before:,.0f} MiB",
        ratio=after / before,
        note=f"largest JVM and Python worker together, {large[1]:,} changes, {seconds:.0f} s",
    )
