"""One reading of an archive by Spark, in a process of its own: `python -m tests.benchmarks.spark.child`.

    ARCHIVE CORES MODE WARM-UP

The whole tree of processes is pinned to so many cores before the JVM starts; in mode "executors" there are
so many executors instead, each with a JVM of its own and pinned to a core of its own.
Prints JSON: seconds and CPU of the reading apart from start-up, which an archive of its own warms; peak
memory of the tree's processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.decode import reading
from drainer.reading.archive.views import changes
from drainer.reading.archive.views.view import ReadTask, portions
from drainer.spark.session import session
from tests.benchmarks.measure import cpu_s, peak_rss_mib
from tidb_binlog.errors import Unavailable

TABLE = "sbtest.sbtest1"


OPTIONS: Final[dict[str, dict[str, str]]] = {
    "typed": {"table": TABLE},
    "executors": {"table": TABLE},
    "json": {},
    "count": {"view": "files", "verify": "true"},
    "index": {"view": "files"},
}


def tree(root: int = 0) -> list[int]:
    """A process, or this one, and all that come from it."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found = [root or os.getpid()]
    for pid in found:
        found += parents.get(pid, [])
    return found


def pin_executors() -> None:
    """What they start later is pinned, too. Else one of them has half of the other's core: its JVM and its
    Python run beside each other."""
    cores = sorted(os.sched_getaffinity(0), reverse=True)  # the driver has most of the other one
    executors = [pid for pid in tree() if b"CoarseGrainedExecutorBackend" in _command_of(pid)]
    assert executors
    for executor, core in zip(executors, cores, strict=False):
        for pid in tree(executor):
            with contextlib.suppress(FileNotFoundError):  # it has ended
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(int(thread), {core})


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def read(spark: SparkSession, archive: str, mode: str) -> int:
    """Row changes that were read."""
    frame = spark.read.format("binlog").options(**OPTIONS[mode]).load(archive)
    if mode in ("count", "index"):
        return int(frame.selectExpr("sum(inserts + updates + deletes)").collect()[0][0])
    frame.write.format("noop").mode("overwrite").save()
    return 0


def plain(archive: str) -> int:
    """The same rows in this process, without Spark, one by one."""
    found = ArchiveSource({"path": archive, "table": TABLE})
    rows = 0
    for part in found.slices():
        selection, known = found.options.selection, found.definitions
        task = ReadTask(found.options.location, part, selection, known, found.schema, found.version)
        typed = changes.TypedRows(task)
        for portion in portions(reading.read(task.location, part, selection, known)):
            rows += typed.batch(portion).num_rows
    return rows


def main() -> None:
    archive, cores, mode, warm_up = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    master = f"local-cluster[{cores},1,1024]"
    if mode != "executors":
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
        master = f"local[{cores}]"
    if mode == "plain":
        plain(warm_up)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        plain(archive)
        seconds, cpu = time.monotonic() - began_s, time.process_time() - began_cpu_s
        print(
            json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_mib": {"python": peak_rss_mib(os.getpid())}})
        )
        return
    spark = session("benchmark", master, {"spark.driver.memory": "1g"})
    for _ in range(2):
        read(spark, warm_up, mode)
    if mode == "executors":
        pin_executors()
    pids = tree()
    began_s, began_cpu_s = time.monotonic(), {pid: cpu_s(pid) for pid in pids}
    read(spark, archive, mode)
    seconds = time.monotonic() - began_s
    peaks: dict[str, float] = {}
    used = 0.0
    for pid in tree():
        try:
            used += cpu_s(pid) - began_cpu_s.get(pid, 0.0)
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            peaks[name] = max(peaks.get(name, 0.0), peak_rss_mib(pid))
        except (OSError, Unavailable):
            continue  # it has ended
    print(json.dumps({"seconds": seconds, "cpu_s": used, "peak_mib": peaks}))
    spark.stop()


if __name__ == "__main__":
    main()
