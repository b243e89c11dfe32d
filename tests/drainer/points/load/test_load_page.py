"""docs/load.md: its configuration, rights, program and commands, from an empty downstream to equal sides."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pymysql
import pytest

import pumpclient
from binlog_playground.cluster.cluster import Cluster
from binlog_playground.cluster.mariadb import MariaDbServer
from pumpclient import OutcomeTable, SyncPublisher, column
from tests.rig.cluster import start_application
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import SystemClock
from tidb_binlog.net.port import free_ports

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "load.md").read_text()
PROGRAMS = Path(sys.executable).parent
ROWS = 500

pytestmark = pytest.mark.integration


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


class Page:
    """What the page takes for granted: two servers, an etcd, a pump, a program that publishes."""

    def __init__(self, cluster: Cluster, upstream: MariaDbServer, directory: Path) -> None:
        self.cluster, self.upstream, self.directory = cluster, upstream, directory
        self.endpoint = cluster.etcd_endpoint.removeprefix("http://")
        self.account = {
            "host": self.upstream.host,
            "port": self.upstream.port,
            "user": self.upstream.user,
            "password": self.upstream.password,
        }

    def connect(self, database: str | None = "app") -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(**self.account, database=database, ssl_disabled=True)  # type: ignore[arg-type]

    def begin(self) -> None:
        """A table with rows that nobody published."""
        with self.connect(None) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE app")
            cursor.execute("CREATE TABLE app.orders (id INT PRIMARY KEY, item VARCHAR(40))")
            cursor.executemany(
                "INSERT INTO app.orders VALUES (%s, 'pen')", [(number,) for number in range(ROWS)]
            )
            for statement in blocks("sql")[0].splitlines():
                cursor.execute(statement.rstrip(";"))
            connection.commit()
        self.outcomes = OutcomeTable(self.connect)
        self.outcomes.create()
        with self.publisher() as publisher:
            publisher.create_database("app")
            columns = [column("id", "int", nullable=False), column("item", "varchar(40)")]
            publisher.create_table("app.orders", columns, primary_key=["id"])

    def publisher(self) -> SyncPublisher:
        return pumpclient.open_publisher_sync(self.endpoint, outcomes=self.outcomes)

    def write(self, number: int, item: str) -> int:
        """A transaction of the program; its commit_ts."""
        with (
            self.publisher() as publisher,
            self.connect() as connection,
            publisher.transaction() as transaction,
            connection.cursor() as cursor,
        ):
            cursor.execute("INSERT INTO orders (id, item) VALUES (%s, %s)", (number, item))
            transaction.insert("app.orders", {"id": number, "item": item})
            return transaction.commit_in(connection)

    def configure(self) -> None:
        """The page's file, with servers of our own."""
        downstream = self.cluster.mariadb
        for name, password in (("upstream", "secret"), ("downstream", downstream.password)):
            path = self.directory / f"{name}-password"
            path.write_text(password + "\n")
            path.chmod(0o600)
        text = blocks("toml")[0]
        for theirs, ours in (
            ("http://127.0.0.1:2379", self.cluster.etcd_endpoint),
            ("/var/lib/drainer", str(self.directory / "data")),
            ("/etc/binlog", str(self.directory)),
            ("port = 3306", f"port = {self.upstream.port}"),
            ("port = 3307", f"port = {downstream.port}"),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        (self.directory / "drainer.toml").write_text(f'addr = "{address}"\n{text}')

    def run(self, command: str, code: int = 0) -> str:
        program, *arguments = command.split()
        done = subprocess.run(
            [str(PROGRAMS / program), *arguments],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def program(self) -> None:
        """The one that alters its table."""
        text = blocks("python")[0]
        for theirs, ours in (
            ('"127.0.0.1:2379"', f'"{self.endpoint}"'),
            (
                '"user": "root", "password": ""',
                f'"user": "{self.upstream.user}", "password": "{self.upstream.password}"',
            ),
            ("3306", str(self.upstream.port)),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr

    def downstream_rows(self) -> list[tuple[object, ...]]:
        connection = self.cluster.mariadb.open()
        try:
            return connection.rows(b"SELECT * FROM app.orders WHERE item <> 'pen' ORDER BY id")
        finally:
            connection.close()


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    cluster = Cluster(SystemClock())
    try:
        await cluster.start_base(None)
        upstream = await start_application(cluster)
        await cluster.start_pumps(1)
        yield Page(cluster, upstream, tmp_path)
    finally:
        await cluster.close()
        cluster.stop(at_once=True)
        cluster.remove()


def test_the_page(page: Page) -> None:
    page.begin()
    page.configure()
    dry_run, load, start, verify = blocks("sh")[0].splitlines()
    assert f"about {ROWS}" in page.run(dry_run)
    assert f"loaded 1 tables: {ROWS} rows" in page.run(load)
    assert "loaded already" in page.run(load)
    program, *arguments = start.split()
    with (page.directory / "drainer.log").open("wb") as log:
        drainer = subprocess.Popen(
            [str(PROGRAMS / program), *arguments],
            cwd=page.directory,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    try:
        page.write(ROWS, "ink")
        page.program()
        end_s = time.monotonic() + PATIENCE_S
        while page.downstream_rows() != [(ROWS, "ink", None)]:
            assert drainer.poll() is None
            assert time.monotonic() < end_s, page.downstream_rows()
            time.sleep(0.1)
        assert "equal" in page.run(verify)
        assert "works on this downstream (sessions " in (said := page.run(load, code=5))
        assert "have it load tables while it runs: `binlogctl load -tables" in said
    finally:
        drainer.send_signal(signal.SIGTERM)
        assert drainer.wait(PATIENCE_S) == 0
    assert "has a checkpoint" in page.run(load, code=4)
