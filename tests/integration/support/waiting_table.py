"""A table that waits while another one goes on: upstream, pump, a drainer that is killed, its downstream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from tests import forked
from tests.forked import Forked
from tests.waiting import PATIENCE_S
from tidb_binlog.table_info import TableInfo
from tidb_binlog.upstream.standalone import StandaloneUpstream

DATABASES: Final = (b"tidb_binlog", b"quarantined")


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
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=PATIENCE_S) as answer:
            return json.load(answer)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
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


@dataclass(frozen=True)
class Cluster:
    """`log`: that of all processes."""

    etcd: str
    publisher: pumpclient.Publisher
    life: Life
    connection: Connection
    log: Path

    async def create(self, *tables: tuple[TableInfo, str]) -> None:
        """The database and tables with the text that makes them."""
        database = pumpclient.create_database_job(1, 100, "quarantined", schema_version=1)
        await self.publisher.ddl(database, "CREATE DATABASE `quarantined`")
        for number, (info, text) in enumerate(tables, 2):
            job = pumpclient.create_table_job(number, 100, "quarantined", info, schema_version=number)
            await self.publisher.ddl(job, text)

    def count(self, table: str) -> int:
        """Rows downstream."""
        try:
            ((found,),) = self.connection.rows(f"SELECT COUNT(*) FROM quarantined.{table}".encode())
        except SessionError:
            return 0
        return int(found)

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked.run("binlogctl", *words, f"-pd-urls={self.etcd}")


@contextlib.asynccontextmanager
async def cluster(
    etcd: str, mariadb: MariaDbServer, free_port: Callable[[], int], directory: Path, syncer: str
) -> AsyncIterator[Cluster]:
    """`syncer`: of the drainer's configuration."""
    await (await StandaloneUpstream.connect(etcd)).close()
    pump_address = f"127.0.0.1:{free_port()}"
    log = directory / "log"
    shared = [f"--pd-urls={etcd}", f"--log-file={log}"]
    pump = Forked("pump", [*shared, f"--addr={pump_address}", f"--data-dir={directory}/pump"])
    config = directory / "drainer.toml"
    config.write_text(
        f"initial-commit-ts = 0\n[syncer]\n{syncer}"
        f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
    )
    port = free_port()
    arguments = [*shared, f"--addr=127.0.0.1:{port}", f"--config={config}"]
    life = Life([*arguments, "--node-id=q", f"--data-dir={directory}/drainer"], port)
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    connection.autocommit(True)  # a transaction that stays open must not keep a DDL waiting
    _drop(connection)  # of other clusters
    try:
        end = time.monotonic() + PATIENCE_S
        while not _answers(f"http://{pump_address}/status"):
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        async with await pumpclient.open_publisher(etcd) as publisher:
            yield Cluster(etcd, publisher, life, connection, log)
    finally:
        for process in (pump, life.process):
            if process is not None:
                process.kill()
                process.wait()
        _drop(connection)
        connection.close()


def _drop(connection: Connection) -> None:
    for name in DATABASES:
        connection.run(b"DROP DATABASE IF EXISTS " + name)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S):
            return True
    except OSError:
        return False
