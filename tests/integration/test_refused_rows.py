"""A row that the downstream refuses for good: its table waits, others go on, the drainer is killed with -9
meanwhile; an operator corrects the downstream and says retry."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.ddl.quarantine.controller import RETRY_S
from tests.drainer.support.apply_life import column
from tests.integration.support import waiting_table
from tests.integration.support.waiting_table import Cluster
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, Index, IndexColumn, TableInfo

pytestmark = pytest.mark.integration

KEY = FLAG_NOT_NULL | FLAG_PRIMARY
COLUMNS = (column(1, "id", LONG, KEY), column(2, "u", LONG))
ON_U = Index(1, "k", (IndexColumn("u", 1),), unique=True, primary=False)
WAITS = TableInfo(101, "waits", COLUMNS, indexes=(ON_U,), pk_is_handle=True)
FLOWS = TableInfo(102, "flows", COLUMNS, pk_is_handle=True)
TEXTS = {
    WAITS.id: "CREATE TABLE `waits` (`id` INT PRIMARY KEY, `u` INT, UNIQUE KEY `k` (`u`))",
    FLOWS.id: "CREATE TABLE `flows` (`id` INT PRIMARY KEY, `u` INT)",
}


class Upstream:
    """Each transaction inserts a row into both tables and changes one of before."""

    def __init__(self, publisher: pumpclient.Publisher) -> None:
        self._publisher = publisher
        self._rows = {info.id: RowEncoder(info) for info in (WAITS, FLOWS)}
        self.written = 0

    async def write(self, transactions: int) -> None:
        for number in range(self.written, self.written + transactions):
            async with self._publisher.transaction(ttl_s=300.0) as transaction:
                for info in (WAITS, FLOWS):
                    rows = self._rows[info.id]
                    transaction.insert(info.id, rows.insert((number, number)))
                    if number:
                        before, now = (number - 1, number - 1), (number - 1, -number)
                        transaction.update(info.id, rows.update(before, now))
        self.written += transactions

    def expected(self) -> list[tuple[int, int]]:
        last = self.written - 1
        return [(number, -number - 1) for number in range(last)] + [(last, last)]


def rows(connection: Any, table: str) -> list[tuple[int, int]]:
    return sorted(connection.rows(f"SELECT id, u FROM quarantined.{table}".encode()))


async def test_its_table_waits_and_nothing_is_lost_or_doubled(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    syncer = "worker-count = 3\ntxn-batch = 21\n"
    async with waiting_table.cluster(etcd_clean, mariadb, free_port, tmp_path, syncer) as cluster:
        await _play(Upstream(cluster.publisher), cluster)


async def _play(upstream: Upstream, cluster: Cluster) -> None:
    life, connection = cluster.life, cluster.connection
    await cluster.create(*((info, TEXTS[info.id]) for info in (WAITS, FLOWS)))
    await upstream.write(50)
    life.start()
    await life.until(lambda: cluster.count("waits") == 50, "rows before")
    connection.run(b"DELETE FROM quarantined.waits WHERE id=49")  # which the next transaction changes
    await upstream.write(1)
    drift = {"quarantined.waits": 1}
    await life.until(lambda: life.ask("/status")["Drift"]["Rows"] == drift, "it is told")
    connection.run(b"INSERT INTO quarantined.waits VALUES (100000, -78)")
    began_s = time.monotonic()

    await upstream.write(149)
    await life.until(lambda: cluster.count("flows") == 200, "rows of the other table")
    await life.until(lambda: len(life.ask("/ddl")["data"]["waiting"]) == 1, "it is shown")
    ((waiting,),) = [life.ask("/ddl")["data"]["waiting"]]
    assert waiting["tables"] == ["quarantined.waits"]
    assert life.ask("/status")["Drift"]["Rows"] == drift, "of the same process"
    assert "1062" in waiting["reason"]
    assert "for key 'k'" in waiting["reason"]
    assert "a row that is there has its values under the key k (u)" in waiting["reason"]
    for _ in range(2):
        life.kill()
        await upstream.write(60)
        life.start()
        await life.until(lambda: cluster.count("flows") == upstream.written, "flow")
    assert cluster.count("waits") < 100
    await life.until(
        lambda: "rows were refused" in life.ask("/ddl")["data"]["waiting"][0]["state"], "tried again"
    )
    number = str(waiting["job_id"])
    await upstream.write(20)
    await life.until(lambda: cluster.count("flows") == upstream.written, "flow")
    tries = cluster.log.read_text().count("waiting rows were refused")
    often = 4 + (time.monotonic() - began_s) // RETRY_S
    assert 1 <= tries <= often, "once when it begins to wait, at each start, and now and then"
    assert cluster.ctl("ddl", "skip", number).returncode != 0

    connection.run(b"DELETE FROM quarantined.waits WHERE id=100000")
    decided = cluster.ctl("ddl", "retry", number)
    assert decided.returncode == 0, decided.stderr
    await upstream.write(40)
    await life.until(lambda: cluster.count("waits") == upstream.written, "rows that waited")
    await life.until(lambda: not life.ask("/ddl")["data"]["waiting"], "it goes on with all others")
    await upstream.write(20)
    for table in ("waits", "flows"):
        await life.until(lambda table=table: cluster.count(table) == upstream.written, "rows behind it")
    assert rows(connection, "waits") == rows(connection, "flows") == upstream.expected()
