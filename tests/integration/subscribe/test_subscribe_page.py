"""Every program of docs/subscribe.md runs as it stands, with only the endpoint of its own."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import drainer
import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from pumpclient import column
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "subscribe.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)

pytestmark = pytest.mark.integration


async def fill(endpoint: str) -> None:
    async with await pumpclient.open_publisher(endpoint) as publisher:
        await publisher.create_database("shop")
        columns = [column("id", "int", nullable=False), column("item", "varchar(40)")]
        await publisher.create_table("shop.orders", columns, primary_key=["id"])
        for number in range(3):
            async with publisher.transaction() as txn:
                txn.insert("shop.orders", {"id": number, "item": "pen"})


def run(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{program}\n{done.stderr}"
    return done.stdout


DATABASE = '"host": "127.0.0.1", "port": 3306, "user": "root"'


@pytest.fixture
def database(mariadb: MariaDbServer) -> Iterator[str]:
    """The program's own, with the rows that it has published."""
    connection = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    application = Application(mariadb, "app")
    application.create()
    connection.run(b"CREATE DATABASE shop")
    connection.run(b"CREATE TABLE shop.orders (id INT PRIMARY KEY, item VARCHAR(40))")
    connection.run(b"INSERT INTO shop.orders VALUES (0, 'pen'), (1, 'pen'), (2, 'pen')")
    connection.commit()
    account = {"host": mariadb.host, "port": mariadb.port, "user": mariadb.user, "password": mariadb.password}
    yield json.dumps(account)[1:-1]
    application.close()
    for name in (b"shop", b"app"):
        connection.run(b"DROP DATABASE " + name)
    connection.close()


async def test_the_programs_of_the_page(pump: Start, etcd_clean: str, database: str, tmp_path: Path) -> None:
    await pump("-node-id=p1").start_and_wait()
    await fill(etcd_clean)
    endpoint = etcd_clean.removeprefix("http://")
    printed = []
    for program in PROGRAMS:
        assert '"127.0.0.1:2379"' in program
        assert DATABASE in program or "snapshot" not in program
        own = program.replace("127.0.0.1:2379", endpoint).replace(DATABASE, database)
        printed.append(await asyncio.to_thread(run, own, tmp_path))
    assert len(printed) == 9
    assert "shop.orders insert (0,) {'id': 0, 'item': 'pen'}" in printed[0]
    assert printed[1] == "shop.orders insert (0,) ('id', 'item')\n"
    assert printed[2] == "Order(id=0, item='pen')\n"
    assert printed[3] == "[Order(id=0, item='pen')]\n"
    assert printed[5] == "3 rows were changed in an hour\n"
    assert printed[6:8] == ["3 orders\n", "snapshot 3\n"]


def test_the_page_names_what_there_is() -> None:
    named = set(re.findall(r"^\| `(?:drainer\.)?([A-Z]\w+)` \|", PAGE, re.M))
    errors = {name for name in drainer.__all__ if isinstance(getattr(drainer, name), type)}
    assert named
    assert named <= errors
    raised = {"BinlogsLost", "OutOfOrder", "UpstreamWentBack", "NoSuchTable", "SnapshotLost", "StreamEnded"}
    assert raised <= named
    fields = re.search(r"^\| `Row` \| (.*) \|$", PAGE, re.M)
    assert fields is not None
    for name in re.findall(r"`(\w+)`", fields[1]):
        assert hasattr(drainer.Row, name), name
