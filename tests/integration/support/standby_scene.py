"""Two drainers of one downstream, of which one stands by."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.errors import NoSuchTable
from tests.forked import Forked
from tests.waiting import PATIENCE_S, until
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, Column, FieldType, TableInfo

TABLE = TableInfo(101, "t", (Column(1, "a", 0, FieldType(LONG)),))


@dataclass
class Scene:
    """A pump, a writer that goes on all the time, drainers by name, and the downstream."""

    endpoint: str
    server: MariaDbServer
    directory: Path
    free_port: Callable[[], int]
    processes: dict[str, Forked] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    commits: list[int] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    written: int = 0
    finished: bool = False

    def start(self, name: str, module: str, *arguments: str) -> Forked:
        self.addresses[name] = f"127.0.0.1:{self.free_port()}"
        own = [
            *(f"--pd-urls={self.endpoint}", f"--addr={self.addresses[name]}"),
            *(f"--data-dir={self.directory / name}", f"--log-file={self.directory / name}.log", *arguments),
        ]
        self.processes[name] = Forked(module, own)
        return self.processes[name]

    def start_drainer(self, name: str, *arguments: str) -> Forked:
        config = self.directory / "drainer.toml"
        config.write_text(
            "initial-commit-ts = 0\n[syncer]\nworker-count = 2\n"
            f'[syncer.to]\nhost = "127.0.0.1"\nport = {self.server.port}\n'
            f'user = "{self.server.user}"\npassword = "{self.server.password}"\n'
        )
        return self.start(name, "drainer", f"--config={config}", "--node-id=pair", *arguments)

    async def ask(self, name: str, path: str) -> tuple[int, str]:
        def get() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(
                    f"http://{self.addresses[name]}{path}", timeout=PATIENCE_S
                ) as reply:
                    return reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(get)

    async def until_ready(self, name: str, code: int, word: str) -> None:
        async def answers() -> bool:
            assert self.processes[name].poll() is None, f"{name} ended"
            with contextlib.suppress(OSError):
                found, text = await self.ask(name, "/readyz")
                return found == code and word in text
            return False

        await until(answers, f"{name}: {code} {word}")

    def rows(self) -> tuple[int, int]:
        """Rows and different rows downstream; none while their table is on its way."""
        connection = self.server.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT COUNT(*), COUNT(DISTINCT a) FROM pair.t")
                found = cursor.fetchone()
            return (int(found[0]), int(found[1]))
        except NoSuchTable:
            return (0, 0)
        finally:
            connection.close()

    async def until_rows(self, least: int) -> None:
        """Until at least so many rows are downstream."""

        async def has() -> bool:
            return (await asyncio.to_thread(self.rows))[0] >= least

        await until(has, f"{least} rows")

    async def write(self) -> None:
        """A row each few milliseconds, until `finished`; every one acknowledged."""
        async with await pumpclient.open_publisher(self.endpoint) as publisher:
            database = pumpclient.create_database_job(1, 100, "pair", schema_version=1)
            await publisher.ddl(database, "CREATE DATABASE `pair`")
            table = pumpclient.create_table_job(2, 100, "pair", TABLE, schema_version=2)
            await publisher.ddl(table, "CREATE TABLE `t` (`a` INT)")
            rows = RowEncoder(TABLE)
            while not self.finished:
                async with publisher.transaction(ttl_s=300.0) as transaction:
                    row = rows.insert({"a": self.written}, rowid=self.written + 1)
                    transaction.insert(TABLE.id, row)
                self.commits.append(transaction.commit_ts)
                self.written += 1
                await asyncio.sleep(0.003)
