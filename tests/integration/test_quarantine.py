"""A DDL that the downstream refuses in every form: its table waits, others go on, an operator decides, and
the drainer is killed with -9 all the while. Both tables have no key: a row too many or too few shows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from common.rowcodec.encoder import RowEncoder
from common.table_info import LONG, VARCHAR, Column, FieldType, Index, IndexColumn, TableInfo
from common.upstream.standalone import StandaloneUpstream
from deploy.playground.cluster.mariadb import MariaDbServer
from drainer.sink.mysql.connection import Target, connect
from drainer.sink.mysql.errors import SessionError
from tests.forked import Forked

pytestmark = pytest.mark.integration

DEADLINE_S = 90
COLUMNS = (
    Column(1, "a", 0, FieldType(LONG)),
    Column(2, "b", 1, FieldType(VARCHAR, flen=64, charset="utf8mb4", collate="utf8mb4_bin")),
)
WAITS = TableInfo(101, "waits", COLUMNS)
FLOWS = TableInfo(102, "flows", COLUMNS)
JOB = 7


class Life:
    """One drainer after the other."""

    def __init__(self, arguments: list[str], port: int) -> None:
        self._arguments = arguments
        self.address = f"127.0.0.1:{port}"
        self.process: Forked | None = None

    def start(self) -> None:
        self.process = Forked("drainer", self._arguments)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
            return json.load(answer)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            assert self.process is not None
            assert self.process.poll() is None, f"drainer ended with {self.process.returncode}"
            try:
                if condition():
                    return
            except OSError:
                pass
            assert time.monotonic() < end, f"not reached: {what}"
            await asyncio.sleep(0.02)


class Upstream:
    """Writes transactions with a row in each table."""

    def __init__(self, publisher: pumpclient.Publisher) -> None:
        self._publisher = publisher
        self._rows = {info.id: RowEncoder(info) for info in (WAITS, FLOWS)}
        self.written = 0

    async def tables(self) -> None:
        database = pumpclient.create_database_job(1, 100, "quarantined", schema_version=1)
        await self._publisher.ddl(database, "CREATE DATABASE `quarantined`")
        for number, info in enumerate((WAITS, FLOWS), 2):
            job = pumpclient.create_table_job(number, 100, "quarantined", info, schema_version=number)
            await self._publisher.ddl(job, f"CREATE TABLE `{info.name}` (`a` INT, `b` VARCHAR(64))")

    async def unique_key(self) -> None:
        """Upstream no value is twice."""
        key = Index(1, "u", (IndexColumn("a", 0),), primary=False, unique=True)
        job = pumpclient.create_table_job(
            JOB, 100, "quarantined", dataclasses.replace(WAITS, indexes=(key,)), schema_version=4
        )
        document = json.loads(job)
        document["type"] = 7
        await self._publisher.ddl(
            json.dumps(document).encode(), "ALTER TABLE `waits` ADD UNIQUE KEY `u`(`a`)"
        )

    async def write(self, transactions: int) -> None:
        async def one(number: int) -> None:
            async with self._publisher.transaction(ttl_s=30.0) as transaction:
                for info in (WAITS, FLOWS):
                    row = self._rows[info.id].insert({"a": number, "b": "x" * 20}, rowid=number + 1)
                    transaction.insert(info.id, row)

        first, self.written = self.written, self.written + transactions
        for at in range(first, self.written, 50):
            await asyncio.gather(*(one(number) for number in range(at, min(at + 50, self.written))))


def ctl(etcd: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.ctl", *words, f"-pd-urls={etcd}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_its_table_waits_and_nothing_is_lost_or_doubled(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    pump_address = f"127.0.0.1:{free_port()}"
    shared = [f"--pd-urls={etcd_clean}", f"--log-file={tmp_path}/log"]
    pump = Forked("pump", [*shared, f"--addr={pump_address}", f"--data-dir={tmp_path}/pump"])
    config = tmp_path / "drainer.toml"
    config.write_text(
        "initial-commit-ts = 0\n[syncer]\nworker-count = 2\ntxn-batch = 100\n"
        f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    )
    port = free_port()
    arguments = [*shared, f"--addr=127.0.0.1:{port}", f"--config={config}"]
    life = Life([*arguments, "--node-id=q", f"--data-dir={tmp_path}/drainer"], port)
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    connection.autocommit(True)  # a look must not keep a DDL waiting
    connection.run(b"DROP DATABASE IF EXISTS tidb_binlog")  # of other clusters
    try:
        end = time.monotonic() + DEADLINE_S
        while not _answers(f"http://{pump_address}/status"):
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        async with await pumpclient.open_publisher(etcd_clean) as publisher:
            await _play(Upstream(publisher), life, connection, etcd_clean)
    finally:
        connection.close()
        for process in (pump, life.process):
            if process is not None:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def _count(connection: Any, table: str) -> int:
    try:
        ((found,),) = connection.rows(f"SELECT COUNT(*) FROM quarantined.{table}".encode())
    except SessionError:
        return 0
    return int(found)


async def _play(upstream: Upstream, life: Life, connection: Any, etcd: str) -> None:
    dice = random.Random(11)
    await upstream.tables()
    await upstream.write(200)
    life.start()
    await life.until(lambda: _count(connection, "waits") == 200, "rows before")
    connection.run(b"INSERT INTO quarantined.waits VALUES (5, 'by hand')")

    await upstream.unique_key()
    await upstream.write(300)
    await life.until(lambda: _count(connection, "flows") == 500, "rows of the other table")
    status = life.ask("/status")
    ((waiting,),) = [status["DDL"]["waiting"]]
    assert (waiting["job_id"], waiting["tables"]) == (JOB, ["quarantined.waits"])
    assert "1062" in waiting["reason"]
    assert status["LastTS"] <= status["DDL"]["held_at"] < waiting["commit_ts"]
    assert _count(connection, "waits") == 201

    for _ in range(3):  # while it waits
        life.kill()
        await upstream.write(150)
        life.start()
        await life.until(
            lambda: _count(connection, "flows") >= upstream.written - dice.randrange(1, 100), "flow"
        )
    await life.until(lambda: _count(connection, "flows") == upstream.written, "all rows of the other table")
    assert _count(connection, "waits") == 201

    await life.until(lambda: len(life.ask("/ddl")["data"]["waiting"]) == 1, "the drainer is up")
    listed = ctl(etcd, "ddl", "list", "--output=json")
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["waiting"][0]["job_id"] == JOB
    assert ctl(etcd, "ddl", "skip", "99").returncode == 4
    retried = ctl(etcd, "ddl", "retry", str(JOB))
    assert retried.returncode == 0, retried.stderr
    await life.until(
        lambda: bool(life.ask(f"/ddl/{JOB}")["data"]["decisions"][0]["outcome"]), "outcome of retry"
    )
    assert life.ask(f"/ddl/{JOB}")["data"]["decisions"][0]["outcome"].startswith("refused")
    decided = ctl(etcd, "ddl", "rewrite", str(JOB), "--text", "ALTER TABLE `waits` ADD KEY `u`(`a`)")
    assert decided.returncode == 0, decided.stderr

    for _ in range(4):  # while it is released
        await asyncio.sleep(dice.random() * 0.3)
        life.kill()
        await upstream.write(100)
        life.start()
        await asyncio.sleep(dice.random() * 1.5)
    await life.until(lambda: _count(connection, "waits") == upstream.written + 1, "released rows")
    await life.until(lambda: not life.ask("/status")["DDL"]["waiting"], "nothing waits")
    await upstream.write(100)
    await life.until(lambda: _count(connection, "waits") == upstream.written + 1, "rows after")
    await life.until(lambda: _count(connection, "flows") == upstream.written, "rows after")
    process = life.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0
    for table, extra in (("waits", 1), ("flows", 0)):
        found = connection.rows(
            f"SELECT COUNT(*), COUNT(DISTINCT a), MAX(a) FROM quarantined.{table}".encode()
        )
        assert found == [(upstream.written + extra, upstream.written, upstream.written - 1)]
    keys = connection.rows(b"SHOW INDEX FROM quarantined.waits")
    assert [(row[1], row[2]) for row in keys] == [(1, "u")]
    assert connection.rows(b"SELECT COUNT(*) FROM tidb_binlog.quarantine") == [(0,)]
    outcomes = connection.rows(
        b"SELECT decision, asked_from, outcome FROM tidb_binlog.ddl_decisions ORDER BY number"
    )
    assert [(row[0], row[1]) for row in outcomes] == [("retry", "127.0.0.1"), ("rewrite", "127.0.0.1")]
    assert outcomes[1][2].startswith(("ran", "had run"))
    ((stored,),) = connection.rows(b"SELECT checkPoint FROM tidb_binlog.checkpoint")
    assert json.loads(stored)["consistent"] is True
    connection.run(b"DROP DATABASE quarantined")
    connection.run(b"DROP DATABASE tidb_binlog")
