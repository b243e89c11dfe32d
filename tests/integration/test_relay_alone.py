"""The upstream is gone: a starting drainer brings the downstream to its relay log's end, and waits on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import pumpclient
from binlog_playground.cluster.cluster import Cluster, Node
from drainer.reading.archive.archive import open_archive
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import BinlogError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo

pytestmark = pytest.mark.integration

ROWS = 400
NOTES = TableInfo(
    101,
    "notes",  # without a key: a row too many or too few shows
    (
        Column(1, "a", 0, FieldType(LONG)),
        Column(2, "b", 1, FieldType(VARCHAR, flen=64, charset="utf8mb4", collate="utf8mb4_bin")),
    ),
)


@asynccontextmanager
async def running() -> AsyncIterator[Cluster]:
    cluster = Cluster(SystemClock())
    try:
        await cluster.start_base(None)
        await cluster.start_pumps(1)
        await cluster.start_drainer(syncer=f'\n[syncer.relay]\nlog-dir = "{cluster.directory / "relay"}"\n')
        yield cluster
    finally:
        await cluster.close()
        cluster.stop(at_once=True)
        cluster.remove()


async def until_applied(drainer: Node, commit_ts: int) -> None:
    while int((await drainer.status())["LastTS"]) < commit_ts:
        await asyncio.sleep(0.02)


async def until_told(drainer: Node, text: str) -> None:
    """It says so, in the log and to whoever asks whether it is ready, and goes on waiting."""
    async with asyncio.timeout(PATIENCE_S):
        while text not in drainer.process.tail(5):
            assert drainer.process.is_running
            await asyncio.sleep(0.1)


def has(relay: Path, commit_ts: int) -> bool:
    with contextlib.suppress(BinlogError):  # it is written to
        return any(change.commit_ts >= commit_ts for change in open_archive(str(relay)))
    return False


async def write(cluster: Cluster) -> int:
    """A table and rows in it, while MariaDB stands still from the first one on; the last commit timestamp."""
    assert cluster.drainer is not None
    assert cluster.mariadb.process is not None
    async with await pumpclient.open_publisher(cluster.etcd_endpoint) as publisher:
        database = pumpclient.create_database_job(1, 100, "shop", schema_version=1)
        await publisher.ddl(database, "CREATE DATABASE `shop`")
        job = pumpclient.create_table_job(2, 100, "shop", NOTES, schema_version=2)
        await publisher.ddl(job, "CREATE TABLE `notes` (`a` INT, `b` VARCHAR(64))")
        rows = RowEncoder(NOTES)

        async def one(number: int) -> int:
            async with publisher.transaction() as transaction:
                row = rows.insert({"a": number, "b": "x" * 40}, rowid=number + 1)
                transaction.insert(NOTES.id, row)
            assert transaction.commit_ts is not None
            return transaction.commit_ts

        await until_applied(cluster.drainer, await one(0))
        cluster.mariadb.process.signal(signal.SIGSTOP)
        return max(await asyncio.gather(*(one(number) for number in range(1, ROWS))))


async def test_recovery_from_the_relay_log_alone() -> None:
    async with running() as cluster:
        drainer, mariadb, etcd = cluster.drainer, cluster.mariadb.process, cluster.etcd
        assert drainer is not None
        assert mariadb is not None
        assert etcd is not None
        last_ts = await write(cluster)
        await until(
            lambda: asyncio.to_thread(has, cluster.directory / "relay", last_ts), "the relay log has all"
        )
        drainer.process.kill()
        await cluster.close()
        etcd.kill()
        mariadb.signal(signal.SIGCONT)
        config = cluster.directory / "drainer.toml"
        config.write_text('start-wait = "1s"\n' + config.read_text())
        drainer.process.start()
        await until_told(drainer, f"the downstream is consistent as of commit_ts {last_ts}")
        connection = cluster.mariadb.open()
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*), COUNT(DISTINCT a) FROM shop.notes")
            assert cursor.fetchone() == (ROWS, ROWS)
            cursor.execute("SELECT checkPoint FROM tidb_binlog.checkpoint")
            ((text,),) = cursor.fetchall()
        connection.close()
        assert f'"commitTS":{last_ts}' in text
        assert '"consistent":true' in text
        drainer.process.kill()
        drainer.process.start()  # again: there is nothing to do but to wait for the upstream
        await until_told(drainer, f"nothing to do: the downstream is consistent as of commit_ts {last_ts}")
        etcd.start()  # it is back after all
        await cluster.until_ready(drainer)
        await until_applied(drainer, last_ts)
        assert drainer.process.is_running
