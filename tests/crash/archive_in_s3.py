"""A Drainer that archives into S3 is killed at random moments; then every reader finds what its Pump has.

    python -m tests.crash.archive_in_s3 [--kills N] [--seed N] [--transactions N]

Drainer, Pump and S3 (moto) are processes. A Drainer dies by SIGKILL while it starts, while it writes and
uploads, and at the end of an archive; after a dozen of kills one comes through. The archive is then read in
four ways: the objects' records as they are, `open_archive`, DuckDB over Arrow, and Spark. It has to have each
transaction once, in order, and tables have to be what the recorded workload says. Then the next one begins.
Exit status: 0 all archives were right.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from binlog_playground.cluster import etcd_server
from binlog_playground.scenario import Scenario
from drainer.reading.archive.archive import open_archive
from drainer.spark.session import session
from tests.benchmarks.drainer import workloads
from tests.benchmarks.drainer.file_sink import Rows, verify
from tests.integration.sinks.pump_scene import on, stored, through
from tests.integration.sinks.s3_scene import S3Scene, check, size_of
from tests.object_store import ObjectStore, moto
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.net.port import free_ports

KILLS_AN_ARCHIVE = 12
EARLY = 0.25
"""Part of the kills that come before anything is written."""
COLUMNS = ("_commit_ts", "_seq", "_schema", "_table", "_change_type", "before", "after")


def archived(
    scene: S3Scene, s3: ObjectStore, scenario: Scenario, place: str, kills: int, rng: random.Random
) -> int:
    """One archive from its first life to its end; how many lives were killed."""
    scene.uri = s3.uri(place)
    for _ in range(kills):
        before = size_of(s3, place)
        process, url = scene.start_drainer()
        if rng.random() >= EARLY:
            until_here(on(functools.partial(size_of, s3, place), url, scenario))
        time.sleep(rng.uniform(0, 0.4 if size_of(s3, place) > before else 2.0))
        process.kill()
        process.wait()
    process, url = scene.start_drainer()
    until_here(through(url, scenario), "the archive is whole")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    return kills


def check_readers(s3: ObjectStore, scenario: Scenario, spark: SparkSession, place: str) -> int:
    """DuckDB folds changes to the tables of the workload; Spark has the same changes. How many there are."""
    archive = open_archive(s3.uri(place))
    tables: Rows = {}
    for table in archive.tables:
        changes = archive.to_arrow(table=str(table))
        newest = duckdb.sql(
            "SELECT arg_max(after, _commit_ts::HUGEINT * 1000000 + _seq) FROM changes GROUP BY after.id"
        ).fetchall()
        del changes
        rows: list[tuple[Any, ...]] = [tuple(row.values()) for (row,) in newest]
        tables[table.name] = {str(row[0]): row for row in rows}
    verify(tables, scenario.checksums)
    local = archive.to_arrow(columns=COLUMNS).read_all().to_pylist()
    frame = spark.read.format("binlog").load(s3.uri(place)).select(*COLUMNS).orderBy("_commit_ts", "_seq")
    assert [row.asDict() for row in frame.collect()] == local
    assert len({(row["_commit_ts"], row["_seq"]) for row in local}) == len(local)
    return len(local)


async def campaign(directory: Path, s3_port: int, kills: int, seed: int, transactions: int) -> None:
    """Archive after archive, until so many Drainers were killed."""
    etcd = etcd_server.EtcdServer.start(directory / "etcd")
    s3, rng = ObjectStore.empty(s3_port), random.Random(seed)
    os.environ.update(s3.environ)
    scene = S3Scene(etcd.endpoint, directory, lambda: free_ports(1)[0])
    spark = session("archive-in-s3", "local[2]", {"spark.driver.memory": "1g"})
    try:
        scenario = await stored(etcd.endpoint, directory, workloads.hot(transactions))
        scene.start_pump()
        killed = 0
        for number in itertools.count():
            place = f"archive-{number}"
            killed += archived(scene, s3, scenario, place, min(KILLS_AN_ARCHIVE, kills - killed), rng)
            records = len(check(s3, scene, scenario, place))
            changes = check_readers(s3, scenario, spark, place)
            print(
                f"{killed} kills: {records} records, {changes} changes, each once, in all readers", flush=True
            )
            if killed >= kills:
                return
            (scene.directory / "drainer").rename(scene.directory / f"drainer-{number}")
    finally:
        scene.end()
        spark.stop()
        etcd.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("--kills", 50), ("--seed", 1), ("--transactions", 6000)):
        parser.add_argument(name, type=int, default=default)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, moto(Path(name)) as port:
        asyncio.run(campaign(Path(name), port, chosen.kills, chosen.seed, chosen.transactions))


if __name__ == "__main__":
    main()
