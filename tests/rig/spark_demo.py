"""Spark demo, `make demo-spark`: an archive of the rig, audited, replayed with Spark, compared row by row.

Drives  a private cluster with an archiving Drainer; `binlog-spark` as a user runs it, in processes of its own
Owns    the report, and the JSON beside it; the scratch directory is gone afterwards
Holds   the replayed tables are compared with the model of the workload, which knows nothing of archives
Tests   tests/spark/test_demo_of_spark.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.verify import Report, compare
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.program import DIFFERENT, EQUAL, supervise
from tests.rig import ROOT
from tests.rig.cluster import RigCluster
from tests.rig.options import RigOptions
from tests.rig.run import RigRun
from tests.rig.workload.limits import MARIADB, misplaced
from tests.rig.workload.model import Model
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError

DESCRIPTION = """\
Fills an archive (db-type = "file") through a private etcd, two Pumps and a Drainer: random transactions and
DDL on tables of every kind, those without a key too. Then replays it with Spark into a private MariaDB,
compares every table row by row with what the workload wrote, and audits archive and database.
"""
REPORT: Final = ROOT / "build" / "spark-demo.html"
SECONDS: Final = 15.0
RATE: Final = 400.0
REPLAYED: Final = ("changes", "rows", "ddl", "steps", "drift", "seconds")
AUDITED: Final = ("files", "bytes", "transactions", "ddl", "rows", "links")
PASSWORD_VARIABLE: Final = "BINLOG_SPARK_PASSWORD"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`binlog-spark` on one archive and one database. `report`: where the last audit leaves its report."""

    archive: Path
    server: MariaDbServer
    report: Path
    clock: Clock

    async def replay(self) -> tuple[dict[str, Any], float]:
        return await self._run("replay", "--from", str(self.archive), "--to", self._url)

    async def audit(self) -> tuple[dict[str, Any], float]:
        self.report.parent.mkdir(parents=True, exist_ok=True)
        words = ("--archive", str(self.archive), "--db", self._url, "--report", str(self.report))
        return await self._run("audit", *words)

    @property
    def _url(self) -> str:
        return f"mysql://{self.server.drainer_user}@{self.server.host}:{self.server.port}/"

    async def _run(self, *words: str) -> tuple[dict[str, Any], float]:
        """What the command tells in JSON, and how long it took. Raises `BinlogError` when it ends with
        anything but 0."""
        began_s = self.clock.monotonic_s()
        command = [sys.executable, "-m", "drainer.spark", *words, "--output", "json"]
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, PASSWORD_VARIABLE: self.server.password},
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Spark's JVM and its workers end with it
        )
        try:
            output, _ = await child.communicate()
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        if child.returncode:
            shown = " ".join(["binlog-spark", *words])
            raise BinlogError(f"{shown} ended with {child.returncode}: {output.decode()[-2000:]}")
        document: dict[str, Any] = json.loads(output)
        return document, self.clock.monotonic_s() - began_s


def main() -> None:
    """Run and exit with the playground's documented status."""
    parser = argparse.ArgumentParser(
        prog="make demo-spark ARGS=...", description=DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of the workload (default 15)")
    parser.add_argument("--rate", type=float, default=RATE, help="transactions/s (default 400)")
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random (default 1)")
    parser.add_argument("--report", type=Path, default=REPORT, help="page of the audit's report")
    args = parser.parse_args()
    options = RigOptions(seconds=args.seconds, rate=args.rate, seed=args.seed)
    sys.exit(supervise(lambda: RigCluster(SystemClock()), lambda cluster: run(options, cluster, args.report)))


async def run(options: RigOptions, cluster: RigCluster, report: Path) -> int:
    """The whole demo on a cluster that is not started yet; 0 if the replayed tables are equal."""
    clock = SystemClock()
    with LiveView(quiet=False) as view:
        work = RigRun(options, cluster, view, clock)
        model = await work.archive()
    rows, ddl = work.statistics.rows, work.statistics.ddl
    archive = cluster.directory / "archiver"
    size = sum(path.stat().st_size for path in archive.glob("binlog-*"))
    print(f"archive: {rows} row changes, {ddl} DDL, {size / 1e6:.1f} MB", flush=True)
    pipeline = Pipeline(archive, cluster.mariadb, report, clock)
    summary, took_s = await pipeline.replay()
    rate = summary["changes"] / max(summary["seconds"], 0.001)
    print(f"replay: {_shown(summary, REPLAYED)}, {rate:,.0f} changes/s, {took_s:.0f} s with Spark's start")
    compared = await asyncio.to_thread(_compared, cluster.mariadb, model)
    for difference in compared.differences:
        print(difference)
    word = "verified" if compared.equal else f"DIFFERENT, {len(compared.differences)} times"
    print(f"{word}: {compared.tables} tables, {compared.rows_identical} rows identical", flush=True)
    found, took_s = await pipeline.audit()  # anything found ends it with another code than 0
    print(f"audit: nothing found; {_shown(found, AUDITED)}, {took_s:.0f} s\nreport: {report}", flush=True)
    return EQUAL if compared.equal else DIFFERENT


def _compared(server: MariaDbServer, model: Model) -> Report:
    connection = server.open()
    try:
        expected = model.expected()
        return compare(expected, Downstream(connection).contents(expected), MARIADB, misplaced([]))
    finally:
        connection.close()


def _shown(document: dict[str, Any], names: tuple[str, ...]) -> str:
    """Figures of a summary, in a line."""
    return ", ".join(f"{name} {document[name]:,}" for name in names)


if __name__ == "__main__":
    main()
