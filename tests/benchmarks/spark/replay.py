"""`spark.replay`, `spark.replay.distinct`, `spark.fold10`: archives of known rows into a MariaDB, by Spark.

A rate is row changes by the time of a replay, from looking over the archive to the last row; the session is
up and was used before. The tables are compared with what they must be after every replay.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target
from drainer.spark.replay.entry import replay
from drainer.spark.replay.plan import ReplayOptions
from drainer.spark.session import session
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings
from tests.benchmarks.spark.rows import WORKLOADS, Rows, write
from tidb_binlog.errors import DownstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GO_REPARO: Final = 20_000.0
ROWS: Final = 200_000
DISTINCT_CHANGES: Final = 600_000
FOLD_CHANGES: Final = 1_000_000
WARM_ROWS: Final = 60_000  # until the JVM has compiled what runs often: start-up, too
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU of everything below this process, by the name of the program."""

    changes: int
    rows: int
    seconds: float
    cpu_us: dict[str, float]

    @property
    def rate(self) -> float:
        return self.changes / self.seconds

    @property
    def note(self) -> str:
        shares = ", ".join(f"{name} {us:.1f}" for name, us in sorted(self.cpu_us.items()))
        return f"{self.changes} changes become {self.rows} rows; CPU us a change: {shares}"


def cpu_below(root: int) -> dict[str, float]:
    """CPU seconds of a process, its descendants and those of them that ended, by program."""
    children: dict[int, list[int]] = {}
    used: dict[int, tuple[str, float]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        number = int(path.name)
        children.setdefault(int(fields[1]), []).append(number)
        used[number] = name, sum(map(int, fields[11:15])) / _TICKS_PER_S
    found: dict[str, float] = {}
    waiting = [root]
    while waiting:
        number = waiting.pop()
        name, seconds = used.get(number, ("", 0.0))
        found[name] = found.get(name, 0.0) + seconds
        waiting += children.get(number, [])
    return found


class Bench:
    """A server, a session that was used, archives."""

    def __init__(self, spark: SparkSession, target: Target, directory: Path) -> None:
        self.spark = spark
        self._target = target
        self._directory = directory

    def measure(self, workload: str, size: int) -> Measured:
        """Make the archive, replay it once. Raises `DownstreamError` if the tables are not right then."""
        rows = Rows()
        archive = Path(tempfile.mkdtemp(prefix=f"{workload}-{size}-", dir=self._directory))
        write(archive, rows, WORKLOADS[workload](rows, size))
        rows.create(self._target)
        before, began_s = cpu_below(os.getpid()), time.monotonic()
        summary = replay(self.spark, str(archive), self._target, options=ReplayOptions(small_bytes=0))
        seconds = time.monotonic() - began_s
        after = cpu_below(os.getpid())
        wrong = rows.differing(self._target)
        if wrong or summary.drift:
            raise DownstreamError(f"{workload}: {'; '.join(wrong) or summary.drift}")
        cpu = {name: (after[name] - before.get(name, 0.0)) * 1e6 / rows.changes for name in after}
        used = {name: us for name, us in cpu.items() if us >= 0.1}
        return Measured(rows.changes, summary.rows, seconds, used)

    def best(self, workload: str, size: int, rounds: int) -> Measured:
        """The replay of several that took least CPU."""
        return min(
            (self.measure(workload, size) for _ in range(rounds)), key=lambda one: sum(one.cpu_us.values())
        )


@contextmanager
def warm() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as directory:
        server = MariaDbServer()
        server.start(Path(directory, "db"))
        spark = session("benchmarks", "local[2]", {"spark.driver.memory": "2g"})
        try:
            target = Target(server.host, server.port, server.user, server.password, server.socket)
            bench = Bench(spark, target, Path(directory))
            bench.measure("oltp", WARM_ROWS)
            yield bench
        finally:
            spark.stop()
            server.stop()


def run(settings: Settings) -> list[Result]:
    with warm() as bench:
        oltp = bench.measure("oltp", ROWS)
        distinct = bench.measure("distinct", DISTINCT_CHANGES)
    go = "Go reparo, 20,000 rows/s"
    return [
        _result("spark.replay", oltp, go, oltp.rate / GO_REPARO),
        _result("spark.replay.distinct", distinct, go, distinct.rate / GO_REPARO),
    ]


def fold10(settings: Settings) -> Result:
    with warm() as bench:
        distinct = bench.measure("distinct", DISTINCT_CHANGES)
        folded = bench.measure("fold10", FOLD_CHANGES)
    return _result("spark.fold10", folded, "every change written", folded.rate / distinct.rate)


def _result(name: str, measured: Measured, compared_to: str, ratio: float) -> Result:
    cpu = sum(measured.cpu_us.values())
    return Result(
        name=name,
        value=measured.rate,
        unit="changes/s",
        cpu_us_per_unit=cpu,
        compared_to=compared_to,
        ratio=ratio,
        note=measured.note,
    )
