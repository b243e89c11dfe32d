"""30,000 rows into a table without a key while the drainer is killed with -9 ten times: 30,000 rows."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from tests.forked import Forked
from tests.integration.support.copied_shop import answers
from tests.waiting import PATIENCE_S
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, Column, FieldType, TableInfo
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration

ROWS, ROWS_PER_TRANSACTION, KILLS = 30_000, 200, 10
TABLE = TableInfo(
    101,
    "t",
    (
        Column(1, "a", 0, FieldType(LONG)),
        Column(2, "b", 1, FieldType(VARCHAR, flen=64, charset="utf8mb4", collate="utf8mb4_bin")),
    ),
)


async def write(endpoint: str) -> None:
    """Database, table and all rows, each transaction acknowledged."""
    async with await pumpclient.open_publisher(endpoint) as publisher:
        database = pumpclient.create_database_job(1, 100, "keyless", schema_version=1)
        await publisher.ddl(database, "CREATE DATABASE `keyless`")
        table = pumpclient.create_table_job(2, 100, "keyless", TABLE, schema_version=2)
        await publisher.ddl(table, "CREATE TABLE `t` (`a` INT, `b` VARCHAR(64))")
        rows = RowEncoder(TABLE)

        async def one(first: int) -> None:
            async with publisher.transaction(ttl_s=300.0) as transaction:
                for number in range(first, first + ROWS_PER_TRANSACTION):
                    transaction.insert(TABLE.id, rows.insert({"a": number, "b": "x" * 40}, rowid=number + 1))

        for at in range(0, ROWS, ROWS_PER_TRANSACTION * 20):
            stop = min(ROWS, at + ROWS_PER_TRANSACTION * 20)
            await asyncio.gather(*(one(first) for first in range(at, stop, ROWS_PER_TRANSACTION)))
        await publisher.flush()


def count(connection: Connection) -> int:
    connection.rollback()
    try:
        ((found,),) = connection.rows(b"SELECT COUNT(*) FROM keyless.t")
    except SessionError:
        return 0
    return int(found)


async def test_ten_kills_neither_lose_nor_repeat_a_row(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    status = f"127.0.0.1:{free_port()}"
    shared = [f"--pd-urls={etcd_clean}", f"--log-file={tmp_path}/log"]
    pump = Forked(
        "pump", [*shared, f"--addr={status}", f"--data-dir={tmp_path}/pump", "--node-id=keyless-pump"]
    )
    config = tmp_path / "drainer.toml"
    config.write_text(
        "initial-commit-ts = 0\n[syncer]\nworker-count = 2\ntxn-batch = 400\n"
        f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    )
    own = f"127.0.0.1:{free_port()}"
    drain = [
        *shared,
        f"--addr={own}",
        f"--config={config}",
        "--node-id=keyless",
    ]
    drain.append(f"--data-dir={tmp_path}/drainer")
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    drainer: Forked | None = None
    try:
        await answers(f"http://{status}/status", pump)
        await write(etcd_clean)
        rng = random.Random(7)
        for target in sorted(rng.sample(range(1000, ROWS - 4000), KILLS)):
            drainer = Forked("drainer", drain)
            await reached(connection, drainer, target)
            drainer.send_signal(signal.SIGKILL)
            drainer.wait()
        drainer = Forked("drainer", drain)
        await reached(connection, drainer, ROWS)
        await answers(f"http://{own}/readyz", drainer)  # the last kill may have come after all rows
        drainer.send_signal(signal.SIGTERM)
        assert drainer.wait(PATIENCE_S) == 0
        connection.rollback()
        found = connection.rows(b"SELECT COUNT(*), COUNT(DISTINCT a) FROM keyless.t")
        assert found == [(ROWS, ROWS)]
        connection.run(b"DROP DATABASE keyless")
        connection.run(b"DROP DATABASE tidb_binlog")
    finally:
        connection.close()
        for process in (pump, drainer):
            if process is not None:
                process.kill()
                process.wait()


async def reached(connection: Connection, drainer: Forked, rows: int) -> None:
    end = time.monotonic() + PATIENCE_S
    while count(connection) < rows:
        assert drainer.poll() is None, f"drainer ended with {drainer.returncode}"
        assert time.monotonic() < end, "rows do not arrive"
        await asyncio.sleep(0.005)
