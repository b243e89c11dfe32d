"""Publisher, Pump, Drainer and database far from each other: 100 ms both ways, and connections that break
in the middle of whatever they do. Everything arrives, each row once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from pumpclient import column
from tests.integration.sinks.pump_scene import PumpScene, status
from tests.rig.proxy import Proxy
from tests.waiting import until
from tidb_binlog.net.port import LOOPBACK
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration
ONE_WAY_S = 0.05
WRITERS = 8
EACH = 8
CUTS = 4
DATABASES = ("far", "tidb_binlog")


def asked(server: MariaDbServer, statement: str) -> list[tuple[Any, ...]]:
    """Not through a proxy; [] where there is no such table yet."""
    connection = connect(Target(server.host, server.port, server.user, server.password))
    try:
        return connection.rows_if_there(statement.encode())[0]
    finally:
        connection.close()


def cleaned(server: MariaDbServer) -> None:
    for name in DATABASES:
        asked(server, f"DROP DATABASE IF EXISTS {name}")


async def write(publisher: pumpclient.Publisher, writer: int, written: list[int]) -> None:
    for number in range(writer * EACH, (writer + 1) * EACH):
        while True:
            try:
                async with publisher.transaction() as transaction:
                    transaction.insert("far.away", {"n": number, "t": "x" * 100}, rowid=2 * number + 1)
                    transaction.insert("far.away", {"n": -number - 1, "t": "y"}, rowid=2 * number + 2)
            except pumpclient.WriteFailed:
                continue  # nothing was committed
            written.append(number)
            break


async def test_everything_arrives_once_over_slow_links_that_break(
    etcd_clean: str, mariadb: MariaDbServer, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    await asyncio.to_thread(cleaned, mariadb)
    scene = PumpScene(etcd_clean, tmp_path, free_port)
    pump_port, written = free_port(), list[int]()
    to_pump, to_database = Proxy(LOOPBACK, pump_port, ONE_WAY_S), Proxy(mariadb.host, mariadb.port, ONE_WAY_S)
    await to_pump.start()
    await to_database.start()
    try:
        here, seen = f"{LOOPBACK}:{pump_port}", f"{LOOPBACK}:{to_pump.port}"
        scene.start(
            "pump",
            *(f"--addr={here}", f"--advertise-addr={seen}", f"--data-dir={tmp_path}/pump", "--node-id=p"),
        )
        await until(lambda: asyncio.to_thread(status, f"http://{here}/status"))
        scene.start_sink(
            f'worker-count = 4\n[syncer.to]\nhost = "{LOOPBACK}"\nport = {to_database.port}\n'
            f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
        )
        async with await pumpclient.open_publisher(etcd_clean) as publisher:
            await publisher.create_database("far")
            await publisher.create_table("far.away", [column("n", "int"), column("t", "varchar(100)")])
            writing = [asyncio.ensure_future(write(publisher, one, written)) for one in range(WRITERS)]
            cut = 0
            for number in range(1, CUTS + 1):
                due = number * WRITERS * EACH // (CUTS + 1)
                await until(lambda: len(written) >= due, "writes", beside=writing)  # noqa: B023
                await until(lambda: arrived(mariadb, due), "rows", beside=writing)  # noqa: B023
                cut += to_pump.reset() + to_database.reset()
            await asyncio.gather(*writing)
        assert cut >= 2 * CUTS, "some to the Pump, some to the database"
        await until(lambda: arrived(mariadb, 2 * WRITERS * EACH), "all rows")
        rows = await asyncio.to_thread(asked, mariadb, "SELECT n, COUNT(*) FROM far.away GROUP BY n")
        assert sorted(int(n) for n, _ in rows) == list(range(-WRITERS * EACH, WRITERS * EACH))
        assert {int(times) for _, times in rows} == {1}
    finally:
        await asyncio.to_thread(scene.end)
        await to_pump.close()
        await to_database.close()
        await asyncio.to_thread(cleaned, mariadb)


async def arrived(server: MariaDbServer, count: int) -> bool:
    rows = await asyncio.to_thread(asked, server, "SELECT COUNT(DISTINCT n) FROM far.away")
    return bool(rows) and int(rows[0][0]) >= count
