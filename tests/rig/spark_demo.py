"""Spark demo, `make demo-spark`: an archive of the rig, replayed with Spark, audited; a mirror in a lake.

Drives  a private cluster with an archiving Drainer; `binlog-spark` as a user runs it, in processes of its own
Owns    the report, and the JSON beside it; the scratch directory is gone afterwards
Holds   tables are compared row by row with the models of the workloads, which know nothing of archives
Tests   tests/spark/test_demo_of_spark.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from binlog_playground.check.downstream import Downstream
from binlog_playground.check.live_view import LiveView
from binlog_playground.check.verify import Report, compare
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.program import DIFFERENT, EQUAL, supervise
from drainer.spark.live.mirror import DELTA_CONNECTOR
from pumpclient import open_publisher
from tests.rig import ROOT, lake_mirror
from tests.rig.cluster import RigCluster
from tests.rig.options import RigOptions
from tests.rig.run import RigRun
from tests.rig.workload.limits import MARIADB, misplaced
from tests.rig.workload.model import Model
from tests.spark.support import spark_versions
from tidb_binlog.clock import Clock, SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.net.port import free_ports
from tidb_binlog.observe import show

DESCRIPTION = """\
Fills an archive (db-type = "file") through a private etcd, two Pumps and a Drainer: random transactions and
DDL on tables of every kind, those without a key too. Then replays it with Spark into a private MariaDB,
compares every table row by row with what the workload wrote, and audits archive and database. At the end
DuckDB reads a mirror in a lake; where PySpark 4.1 and Delta's connector cannot be downloaded, the code is 2.
"""
REPORT: Final = ROOT / "build" / "spark-demo.html"
SECONDS: Final = 15.0
RATE: Final = 400.0
REPLAYED: Final = ("changes", "rows", "ddl", "steps", "drift", "seconds")
AUDITED: Final = ("files", "bytes", "transactions", "ddl", "rows", "links")
MIRROR_RELEASE: Final = "4.1"
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

    async def mirror(self, *words: str) -> float:
        """How long a stream into a mirror took. Raises `Unavailable` where what it needs cannot be had."""
        print(f"mirror: needs PySpark {MIRROR_RELEASE} and Delta's connector, once 400 MB", flush=True)
        variables = await asyncio.to_thread(spark_versions.environ, MIRROR_RELEASE)
        conf = await asyncio.to_thread(spark_versions.jars, MIRROR_RELEASE, *DELTA_CONNECTOR.packages)
        conf |= {"spark.sql.shuffle.partitions": "2"}
        words = ("stream", "--mode", "mirror", "--once", "--master", "local[2]", *words)
        words += tuple(f"--conf={key}={value}" for key, value in conf.items())
        return round((await self._run(*words, variables=variables, as_json=False))[1], 1)

    @property
    def _url(self) -> str:
        return f"mysql://{self.server.drainer_user}@{self.server.host}:{self.server.port}/"

    async def _run(
        self, *words: str, variables: Mapping[str, str] = os.environ, as_json: bool = True
    ) -> tuple[dict[str, Any], float]:
        """What the command tells in JSON (else it tells the user), and how long it took. Raises `BinlogError`
        when it ends with anything but 0."""
        began_s = self.clock.monotonic_s()
        command = [sys.executable, "-m", "drainer.spark", *words, *(("--output", "json") if as_json else ())]
        child = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**variables, PASSWORD_VARIABLE: self.server.password},
            stdout=asyncio.subprocess.PIPE if as_json else None,
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
            raise BinlogError(f"{shown} ended with {child.returncode}: {(output or b'').decode()[-2000:]}")
        document: dict[str, Any] = json.loads(output) if as_json else {}
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
    if not compared.equal:
        return DIFFERENT
    figures = await _mirrored(cluster, pipeline, options.seed)
    report.with_suffix(".json").write_text(show.json_text(found | {"mirror": figures}))
    return EQUAL if not figures["differences"] else DIFFERENT


async def _mirrored(cluster: RigCluster, pipeline: Pipeline, seed: int) -> dict[str, float]:
    """A shop goes from the Pumps into a mirror, which DuckDB reads; figures of that."""
    async with await open_publisher(cluster.etcd_endpoint) as publisher:
        start_ts, shop = await lake_mirror.write(publisher, seed)
    config, lake = cluster.directory / "mirror.toml", cluster.directory / "lake"
    rules = f'[syncer]\nreplicate-do-db = ["{lake_mirror.SCHEMA}"]\n'
    config.write_text(f'addr = "127.0.0.1:{free_ports(1)[0]}"\n{rules}')
    words = ("--from", f"pumps://{cluster.etcd_endpoint}", "--config", str(config), "--to", f"delta://{lake}")
    took_s = await pipeline.mirror(*words, "--start", str(start_ts))
    answer, differences = await asyncio.to_thread(lake_mirror.differing, shop, lake)
    print(f"DuckDB over the mirror:\n{lake_mirror.QUERY}\n{answer}", *differences, sep="\n")
    changes, rows = lake_mirror.CHANGES, sum(map(len, shop.values()))
    figures = {"changes": changes, "rows": rows, "differences": len(differences), "seconds": took_s}
    word = "DIFFERENT" if differences else "verified row by row"
    print(f"mirror {word}: {_shown(figures, tuple(figures))}", flush=True)
    return figures


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
