"""A DDL that the downstream refuses in every form: its table waits, others go on, an operator decides, and
the drainer is killed with -9 all the while. Both tables have no key: a row too many or too few shows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import shlex
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.common.page.support.reading import read
from tests.integration.support import waiting_table
from tests.integration.support.waiting_table import Cluster
from tests.waiting import PATIENCE_S
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, Index, IndexColumn, TableInfo

pytestmark = pytest.mark.integration

COLUMNS = (
    Column(1, "a", 0, FieldType(LONG)),
    Column(2, "b", 1, FieldType(VARCHAR, flen=64, charset="utf8mb4", collate="utf8mb4_bin")),
)
WAITS = TableInfo(101, "waits", COLUMNS)
FLOWS = TableInfo(102, "flows", COLUMNS)
TEXT = "(`a` INT, `b` VARCHAR(64))"
JOB = 7


class Upstream:
    """Writes transactions with a row in each table."""

    def __init__(self, publisher: pumpclient.Publisher) -> None:
        self._publisher = publisher
        self._rows = {info.id: RowEncoder(info) for info in (WAITS, FLOWS)}
        self.written = 0

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
            async with self._publisher.transaction(ttl_s=300.0) as transaction:
                for info in (WAITS, FLOWS):
                    row = self._rows[info.id].insert({"a": number, "b": "x" * 20}, rowid=number + 1)
                    transaction.insert(info.id, row)

        first, self.written = self.written, self.written + transactions
        for at in range(first, self.written, 50):
            await asyncio.gather(*(one(number) for number in range(at, min(at + 50, self.written))))


async def test_its_table_waits_and_nothing_is_lost_or_doubled(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    syncer = "worker-count = 2\ntxn-batch = 100\n"
    async with waiting_table.cluster(etcd_clean, mariadb, free_port, tmp_path, syncer) as cluster:
        await _play(Upstream(cluster.publisher), cluster)


def _commands(address: str) -> list[list[str]]:
    """What a drainer's page gives to copy, without the program."""
    with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_S) as answer:
        waiting = read(answer.read().decode()).named("article")[0]
    lines = [one.text for one in waiting.named("code") if one.attributes.get("class") == "command"]
    return [shlex.split(line)[1:] for line in lines]


async def _play(upstream: Upstream, cluster: Cluster) -> None:
    life, connection = cluster.life, cluster.connection
    dice = random.Random(11)
    await cluster.create(
        *((info, f"CREATE TABLE `{info.name}` (`a` INT, `b` VARCHAR(64))") for info in (WAITS, FLOWS))
    )
    await upstream.write(200)
    life.start()
    await life.until(lambda: cluster.count("waits") == 200, "rows before")
    connection.run(b"INSERT INTO quarantined.waits VALUES (5, 'by hand')")

    await upstream.unique_key()
    await upstream.write(300)
    await life.until(lambda: cluster.count("flows") == 500, "rows of the other table")
    status = life.ask("/status")
    ((waiting,),) = [status["DDL"]["waiting"]]
    assert (waiting["job_id"], waiting["tables"]) == (JOB, ["quarantined.waits"])
    assert "1062" in waiting["reason"]
    assert status["LastTS"] <= status["DDL"]["held_at"] < waiting["commit_ts"]
    assert cluster.count("waits") == 201

    for _ in range(3):  # while it waits
        life.kill()
        await upstream.write(150)
        life.start()
        await life.until(lambda: cluster.count("flows") >= upstream.written - dice.randrange(1, 100), "flow")
    await life.until(lambda: cluster.count("flows") == upstream.written, "all rows of the other table")
    assert cluster.count("waits") == 201

    await life.until(lambda: len(life.ask("/ddl")["data"]["waiting"]) == 1, "the drainer is up")
    listed = cluster.ctl("ddl", "list", "--output=json")
    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["waiting"][0]["job_id"] == JOB
    assert cluster.ctl("ddl", "skip", "99").returncode == 4
    retry, skip, rewrite = await asyncio.to_thread(_commands, life.address)  # as the drainer's page has them
    assert (skip[:3], rewrite[:3]) == (["ddl", "skip", str(JOB)], ["ddl", "rewrite", str(JOB)])
    retried = cluster.ctl(*retry)
    assert retried.returncode == 0, retried.stderr
    await life.until(
        lambda: bool(life.ask(f"/ddl/{JOB}")["data"]["decisions"][0]["outcome"]), "outcome of retry"
    )
    assert life.ask(f"/ddl/{JOB}")["data"]["decisions"][0]["outcome"].startswith("refused")
    decided = cluster.ctl("ddl", "rewrite", str(JOB), "--text", "ALTER TABLE `waits` ADD KEY `u`(`a`)")
    assert decided.returncode == 0, decided.stderr

    for _ in range(4):  # while it is released
        await asyncio.sleep(dice.random() * 0.3)
        life.kill()
        await upstream.write(100)
        life.start()
        await asyncio.sleep(dice.random() * 1.5)
    await life.until(lambda: cluster.count("waits") == upstream.written + 1, "released rows")
    await life.until(lambda: not life.ask("/status")["DDL"]["waiting"], "nothing waits")
    await upstream.write(100)
    await life.until(lambda: cluster.count("waits") == upstream.written + 1, "rows after")
    await life.until(lambda: cluster.count("flows") == upstream.written, "rows after")
    process = life.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
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
