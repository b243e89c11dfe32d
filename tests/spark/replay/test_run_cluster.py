"""Replay on a cluster of real processes, from the packaged zip, with a worker and an executor killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Process
from drainer.mysql.connection import Target, connect
from drainer.spark import packaging
from drainer.spark.replay.plan import SMALL_BYTES
from drainer.txn import INSERT, Item, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import clean, run
from tests.drainer.support.relay_world import target_of
from tests.spark.support.cluster import Cluster
from tests.spark.support.growing import FIRST_TS, KEYED, KEYLESS, TABLES, ArchiveWriter
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog.rowcodec.encoder import RowEncoder

pytestmark = pytest.mark.integration

TRANSACTIONS, ROWS = 500, 200


def items() -> Iterator[Item]:
    """Rows with keys of their own, and as many of a table without key, which shows what is there twice."""
    keyed, keyless = TableVersion(KEYED, "d", "k", 1), TableVersion(KEYLESS, "d", "t", 1)
    rows, twins = RowEncoder(KEYED), RowEncoder(KEYLESS)
    for number in range(TRANSACTIONS):
        ids = range(number * ROWS, (number + 1) * ROWS)
        tables = (
            TableEvents(keyed, [INSERT] * ROWS, [rows.insert((one, f"{one:060}")) for one in ids], 0),
            TableEvents(
                keyless, [INSERT] * 20, [twins.insert((number, "x"), one) for one in range(20)], ROWS
            ),
        )
        yield Transaction(FIRST_TS + number, FIRST_TS + number + 1, tables, ROWS * 60)


@pytest.fixture
def target(mariadb: MariaDbServer) -> Iterator[Target]:
    target = target_of(mariadb)
    clean(target)
    run(target, *TABLES)
    yield target
    clean(target)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def chunks(target: Target) -> int:
    """Written so far, in all buckets."""
    if not run(target, "SHOW DATABASES LIKE 'tidb_binlog'"):
        return 0
    if not run(target, "SHOW TABLES FROM tidb_binlog LIKE 'spark_progress'"):
        return 0
    ((found,),) = run(target, "SELECT SUM(next_chunk) FROM tidb_binlog.spark_progress")
    return int(found or 0)


def wait_until(reached: Callable[[], bool], job: Process) -> None:
    def runs_and_reached() -> bool:
        assert job.is_running, job.tail(30)
        return reached()

    until_here(runs_and_reached, reached)


def test_a_killed_executor_and_a_killed_worker_change_nothing(
    cluster: Cluster, target: Target, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    writer = ArchiveWriter(archive, 4 << 20)
    writer.write(items())
    writer.close()
    assert sum(path.stat().st_size for path in archive.glob("binlog-*")) > SMALL_BYTES
    # While another session holds one of the rows the job cannot end: whatever is killed, it was under way.
    holder = connect(target)
    holder.run(b"INSERT INTO d.k VALUES (%d, 'held')" % (TRANSACTIONS * ROWS - 1))
    url = f"mysql://{target.user}@/?socket={target.socket}"
    job = cluster.submit(
        packaging.script(tmp_path),
        packaging.package(tmp_path),
        ["replay", "--from", str(archive), "--to", url, "--output", "json"],
        {"BINLOG_SPARK_PASSWORD": target.password},
    )
    try:
        wait_until(lambda: chunks(target) >= 1, job)
        doomed, other = cluster.workers
        cluster.kill_executor(other)
        doomed.kill()
        holder.rollback()
        assert job.wait(PATIENCE_S) == 0, job.tail(30)
    finally:
        job.kill()
        holder.close()
    summary = json.loads(next(line for line in job.log.read_text().splitlines() if line.startswith('{"job"')))
    assert summary["rows"] >= TRANSACTIONS * ROWS
    number = TRANSACTIONS * ROWS
    query = "SELECT COUNT(*), SUM(id), SUM(b = LPAD(id, 60, '0')) FROM d.k"
    assert run(target, query) == [(number, number * (number - 1) // 2, number)]
    query = (
        "SELECT COUNT(*), COUNT(DISTINCT a), MIN(n), MAX(n) FROM (SELECT a, COUNT(*) n FROM d.t GROUP BY a) x"
    )
    assert run(target, query) == [(TRANSACTIONS, TRANSACTIONS, 20, 20)]
