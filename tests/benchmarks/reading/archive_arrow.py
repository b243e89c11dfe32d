"""`archive.arrow`, `archive.arrow.rows`: an archive of the OLTP shape, read by a program without Java.

CPU a row of this process, all threads, beside what a task of Spark does with the same files in the same run:
the machine may be as busy as it likes. Memory is what Arrow holds at most, of an archive and of a tenth.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa

import drainer
from drainer import Transaction
from drainer.reading.archive import archive_source
from drainer.reading.archive.archive_source import ArchiveSource
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark.read import archives

CHANGES: Final = 1_000_000
TABLE: Final = "sbtest.sbtest1"
ARROW_GOAL: Final = 300_000
ROUNDS: Final = 3
_MIB: Final = 1 << 20


def _least_cpu_s(work: Callable[[], object]) -> float:
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def _to_arrow(path: Path) -> int:
    return sum(batch.num_rows for batch in drainer.open_archive(path).to_arrow(table=TABLE))


def _as_a_task(path: Path) -> int:
    source = ArchiveSource({"path": str(path), "table": TABLE})
    task, view = source.task(source.schema), source.options.view
    return sum(one.num_rows for part in source.parts() for one in archive_source.read(task, view, part))


def _rows(path: Path) -> int:
    archive = drainer.open_archive(path)
    return sum(1 for item in archive if isinstance(item, Transaction) for _ in item.rows)


def _peak_mib(path: Path) -> float:
    before, peak = pa.total_allocated_bytes(), 0
    for _ in drainer.open_archive(path).to_arrow(table=TABLE):
        peak = max(peak, pa.total_allocated_bytes() - before)
    return peak / _MIB


def run(settings: Settings) -> list[Result]:
    with archives(CHANGES, CHANGES // 10) as ((path, count), (small, _)):
        assert _to_arrow(path) == _as_a_task(path) == _rows(path) == count
        arrow, task, rows = (
            _least_cpu_s(lambda read=read: read(path)) for read in (_to_arrow, _as_a_task, _rows)
        )
        peaks = _peak_mib(small), _peak_mib(path)
    return [
        Result(
            name="archive.arrow",
            value=count / arrow,
            unit="rows/s",
            cpu_us_per_unit=arrow * 1e6 / count,
            compared_to=f"a task of Spark, {task * 1e6 / count:.2f} us; {ARROW_GOAL:,} rows/s a core wanted",
            ratio=task / arrow,
            note=f"{count:,} changes to typed columns; Arrow holds {peaks[1]:.0f} MiB at most, of a tenth"
            f" {peaks[0]:.0f}",
        ),
        Result(
            name="archive.arrow.rows",
            value=count / rows,
            unit="rows/s",
            cpu_us_per_unit=rows * 1e6 / count,
            compared_to=f"to Arrow, {arrow * 1e6 / count:.2f} us",
            ratio=arrow / rows,
            note="rows of mappings, a core",
        ),
    ]
