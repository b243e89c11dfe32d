"""A row that the downstream refuses for good: its table waits, others go on, the drainer is killed with -9
meanwhile; an operator corrects the downstream and says retry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from common.rowcodec.encoder import RowEncoder
from common.table_info import FLAG_NOT_NULL, FLAG_PRIMARY, LONG, Index, IndexColumn, TableInfo
from common.upstream.standalone import StandaloneUpstream
from deploy.playground.cluster.mariadb import MariaDbServer
from drainer.sink.mysql.connection import Target, connect
from tests.drainer.support.apply_life import column
from tests.forked import Forked
from tests.integration.test_quarantine import DEADLINE_S, Life, _answers, _count, ctl

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

    async def tables(self) -> None:
        database = pumpclient.create_database_job(1, 100, "quarantined", schema_version=1)
        await self._publisher.ddl(database, "CREATE DATABASE `quarantined`")
        for number, info in enumerate((WAITS, FLOWS), 2):
            job = pumpclient.create_table_job(number, 100, "quarantined", info, schema_version=number)
            await self._publisher.ddl(job, TEXTS[info.id])

    async def write(self, transactions: int) -> None:
        for number in range(self.written, self.written + transactions):
            async with self._publisher.transaction(ttl_s=30.0) as transaction:
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
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    pump_address = f"127.0.0.1:{free_port()}"
    shared = [f"--pd-urls={etcd_clean}", f"--log-file={tmp_path}/log"]
    pump = Forked("pump", [*shared, f"--addr={pump_address}", f"--data-dir={tmp_path}/pump"])
    config = tmp_path / "drainer.toml"
    config.write_text(
        "initial-commit-ts = 0\n[syncer]\nworker-count = 3\ntxn-batch = 20\n"
        f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    )
    port = free_port()
    arguments = [*shared, f"--addr=127.0.0.1:{port}", f"--config={config}"]
    life = Life([*arguments, "--node-id=q", f"--data-dir={tmp_path}/drainer"], port)
    log = tmp_path / "log"
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    connection.autocommit(True)
    for name in (b"tidb_binlog", b"quarantined"):
        connection.run(b"DROP DATABASE IF EXISTS " + name)
    try:
        end = time.monotonic() + DEADLINE_S
        while not _answers(f"http://{pump_address}/status"):
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        async with await pumpclient.open_publisher(etcd_clean) as publisher:
            await _play(Upstream(publisher), life, connection, etcd_clean, log)
    finally:
        for process in (pump, life.process):
            if process is not None:
                process.kill()
                process.wait()
        for name in (b"tidb_binlog", b"quarantined"):
            connection.run(b"DROP DATABASE IF EXISTS " + name)
        connection.close()


async def _play(upstream: Upstream, life: Life, connection: Any, etcd: str, log: Path) -> None:
    await upstream.tables()
    await upstream.write(50)
    life.start()
    await life.until(lambda: _count(connection, "waits") == 50, "rows before")
    connection.run(b"INSERT INTO quarantined.waits VALUES (100000, -78)")

    await upstream.write(150)
    await life.until(lambda: _count(connection, "flows") == 200, "rows of the other table")
    await life.until(lambda: len(life.ask("/ddl")["data"]["waiting"]) == 1, "it is shown")
    ((waiting,),) = [life.ask("/ddl")["data"]["waiting"]]
    assert waiting["tables"] == ["quarantined.waits"]
    assert "1062" in waiting["reason"]
    assert "for key 'k'" in waiting["reason"]
    assert "a row that is there has its values under the key k (u)" in waiting["reason"]
    for _ in range(2):
        life.kill()
        await upstream.write(60)
        life.start()
        await life.until(lambda: _count(connection, "flows") == upstream.written, "flow")
    assert _count(connection, "waits") < 100
    await life.until(
        lambda: "rows were refused" in life.ask("/ddl")["data"]["waiting"][0]["state"], "tried again"
    )
    number = str(waiting["job_id"])
    await upstream.write(20)
    await life.until(lambda: _count(connection, "flows") == upstream.written, "flow")
    tries = log.read_text().count("waiting rows were refused")
    assert 1 <= tries <= 4, "once when it begins to wait, and at each start"
    assert ctl(etcd, "ddl", "skip", number).returncode != 0

    connection.run(b"DELETE FROM quarantined.waits WHERE id=100000")
    decided = ctl(etcd, "ddl", "retry", number)
    assert decided.returncode == 0, decided.stderr
    await upstream.write(40)
    await life.until(lambda: _count(connection, "waits") == upstream.written, "rows that waited")
    await life.until(lambda: not life.ask("/ddl")["data"]["waiting"], "it goes on with all others")
    await upstream.write(20)
    await life.until(lambda: _count(connection, "waits") == upstream.written, "rows behind it")
    assert rows(connection, "waits") == rows(connection, "flows") == upstream.expected()
