"""Tables that join a running drainer: a program that writes, a pump, a drainer that may be killed.

`keyed` and `plain`, which has no key, have rows of before the program published; `flows` is replicated from
its first row on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from tests.forked import Forked
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S
from tidb_binlog.upstream.standalone import StandaloneUpstream

SCHEMA, COPY = "join_app", "join_copy"
TABLES: Final = ("keyed", "plain", "flows")
JOINING: Final = f"{SCHEMA}.keyed,{SCHEMA}.plain"


class Program:
    """`write` is one transaction: rows of both tables come, change and go, and `flows` has one more."""

    def __init__(
        self, application: Application, publisher: pumpclient.Publisher, rows: int, seed: int
    ) -> None:
        self.application = application
        self.publisher = publisher
        self._rows = rows
        self._random = random.Random(seed)
        self.next = rows + 1
        self._has = {name: {number: f"old {number}" for number in range(1, rows + 1)} for name in TABLES[:2]}
        self.written = 0
        self.column = ""  # one that was added to `keyed`

    async def begin(self) -> None:
        with self.application.session() as session:
            session.run(b"USE mysql")
            for name, key in (
                ("keyed", ", PRIMARY KEY (id)"),
                ("plain", ""),
                ("flows", ", PRIMARY KEY (id)"),
            ):
                session.run(f"CREATE TABLE {SCHEMA}.{name} (id INT NOT NULL, v VARCHAR(60){key})".encode())
                if name != "flows":
                    rows = f"SELECT seq, CONCAT('old ', seq) FROM seq_1_to_{self._rows}"
                    session.run(f"INSERT INTO {SCHEMA}.{name} {rows}".encode())
            session.commit()
        await self.publisher.create_database(SCHEMA)
        columns = [pumpclient.column("id", "int", nullable=False), pumpclient.column("v", "varchar(60)")]
        for name in TABLES:
            key = {} if name == "plain" else {"primary_key": ["id"]}
            await self.publisher.create_table(f"{SCHEMA}.{name}", columns, **key)

    async def write(self) -> None:
        number, self.next = self.next, self.next + 1
        session = self.application.take()
        async with self.publisher.transaction() as transaction:
            for name, has in self._has.items():
                gone, changed = self._random.sample(sorted(has), 2)
                self._put(session, transaction, name, number, None, f"new {number}")
                self._put(session, transaction, name, changed, has[changed], f"changed {number}")
                self._put(session, transaction, name, gone, has[gone], None)
                del has[gone]
                has[changed], has[number] = f"changed {number}", f"new {number}"
            self._put(session, transaction, "flows", number, None, "new")
            # A snapshot of the database makes marks wait, and may be taken by this process.
            await asyncio.to_thread(self.application.outcomes.mark, session, transaction.start_ts)
            await transaction.prepare()
            await asyncio.to_thread(session.commit)
            await transaction.commit()
        self.application.give(session)
        self.written += 1

    def _put(
        self, session: Any, transaction: Any, name: str, number: int, old: str | None, new: str | None
    ) -> None:
        table, rowid = f"{SCHEMA}.{name}", {"rowid": number} if name == "plain" else {}
        more = {self.column: 7} if self.column and name == "keyed" else {}
        row = lambda v: {"id": number, "v": v, **more}  # noqa: E731
        if old is None:
            columns = ", ".join(("id", "v", *more))
            values = ", ".join((str(number), f"'{new}'", *map(str, more.values())))
            session.run(f"INSERT INTO {table} ({columns}) VALUES ({values})".encode())
            transaction.insert(table, row(new), **rowid)
        elif new is None:
            session.run(f"DELETE FROM {table} WHERE id={number}".encode())
            transaction.delete(table, row(old), **rowid)
        else:
            session.run(f"UPDATE {table} SET v='{new}' WHERE id={number}".encode())
            transaction.update(table, row(old), row(new), **rowid)

    async def add_column(self) -> None:
        """All rows have 7 in it."""
        with self.application.session() as holding:
            await asyncio.to_thread(self.application.outcomes.hold_snapshots, holding)
            self.application.alter("ALTER TABLE keyed ADD COLUMN n INT DEFAULT 7, ALGORITHM=COPY")
            await self.publisher.add_column(f"{SCHEMA}.keyed", pumpclient.column("n", "int", default="7"))
            holding.rollback()
        self.column = "n"


class Scene:
    """`port`: of the downstream, as drainers see it."""

    def __init__(
        self, etcd: str, mariadb: MariaDbServer, free_port: Callable[[], int], directory: Path, port: int = 0
    ) -> None:
        self.etcd = etcd
        self.directory = directory
        self.config = directory / "drainer.toml"
        self._mariadb = mariadb
        self.address = f"127.0.0.1:{free_port()}"
        self.pump_address = f"127.0.0.1:{free_port()}"
        self.connection = self.connect()
        self.drainer: Forked | None = None
        account = f'host = "127.0.0.1"\nuser = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
        self.config.write_text(
            f'pd-urls = "{etcd}"\naddr = "{self.address}"\nnode-id = "join"\n'
            f'data-dir = "{directory}/drainer"\n'
            "[syncer]\nworker-count = 2\ntxn-batch = 20\n"
            f"[syncer.from]\n{account}port = {mariadb.port}\n"
            f'outcome-table = "{SCHEMA}.binlog_outcome"\n'
            f"[syncer.to]\n{account}port = {port or mariadb.port}\n"
            f'[[syncer.table-migrate-rule]]\nsource = {{ schema = "{SCHEMA}" }}\n'
            f'target = {{ schema = "{COPY}" }}\n'
        )

    def connect(self) -> Connection:
        server = self._mariadb
        connection = connect(Target("127.0.0.1", server.port, server.user, server.password))
        connection.autocommit(True)
        return connection

    def start(self) -> None:
        self.drainer = Forked("drainer", [f"--config={self.config}"], self.directory / "log")

    def kill(self) -> None:
        assert self.drainer is not None
        self.drainer.send_signal(signal.SIGKILL)
        self.drainer.wait()

    def ask(self, path: str, method: str = "GET", body: str = "") -> tuple[int, Any]:
        request = urllib.request.Request(
            f"http://{self.address}{path}", method=method, data=body.encode() or None
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    async def load(self, tables: str = JOINING, query: str = "?replace=1") -> tuple[int, Any]:
        """Asks until the drainer has an answer."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError, ValueError):
                code, answer = await asyncio.to_thread(self.ask, f"/load{query}", "PUT", tables)
                if code not in (404, 503):
                    return code, answer
            assert time.monotonic() < end, "no answer"
            await asyncio.sleep(0.05)

    def rows(self, schema: str, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.connection.rows_if_there(f"SELECT * FROM {schema}.{table}".encode())[0])

    async def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            assert self.drainer is not None
            assert self.drainer.poll() is None, f"drainer ended with {self.drainer.returncode}"
            with contextlib.suppress(OSError, ValueError):
                if await asyncio.to_thread(condition):
                    return
            assert time.monotonic() < end, f"not reached: {what}"
            await asyncio.sleep(0.02)

    def joins(self) -> list[Any]:
        code, answer = self.ask("/load")
        if code != 200:
            raise OSError(answer)
        return list(answer["data"]["joining"])

    async def is_equal(self) -> None:
        """Of a program that writes no more; nothing joins any more."""
        await self.until(
            lambda: all(self.rows(SCHEMA, table) == self.rows(COPY, table) for table in TABLES),
            "the downstream is equal",
        )
        await self.until(lambda: not self.joins(), "nothing joins")
        await self.until(
            lambda: all(self.rows(SCHEMA, table) == self.rows(COPY, table) for table in TABLES), "still equal"
        )

    async def has_what_comes(self, program: Program) -> None:
        """Of a program that writes no more, after a load that was given up: nothing of that is left, and rows
        that come are there once."""
        for _ in range(3):
            await program.write()
        await program.publisher.flush()
        await self.until(lambda: self.rows(SCHEMA, "flows") == self.rows(COPY, "flows"), "all is applied")
        newest = {(number, f"new {number}") for number in range(program.next - 3, program.next)}
        for table in ("keyed", "plain"):
            there = Counter(row[:2] for row in self.rows(SCHEMA, table))
            coming = newest & there.keys()
            await self.until(  # another lane has them
                lambda table=table, coming=coming: coming <= {row[:2] for row in self.rows(COPY, table)},
                f"{table} has what comes",
            )
            copy = Counter(row[:2] for row in self.rows(COPY, table))
            assert not copy - there, table
            had_joined = copy == there  # before it was asked for once more
            assert had_joined or not any(text.startswith("old") for _, text in copy), table


@contextlib.asynccontextmanager
async def scene(
    etcd: str,
    mariadb: MariaDbServer,
    free_port: Callable[[], int],
    directory: Path,
    *,
    rows: int,
    seed: int = 1,
    port: int = 0,
) -> AsyncIterator[tuple[Scene, Program]]:
    """A drainer that has applied all there is."""
    await (await StandaloneUpstream.connect(etcd)).close()
    made = Scene(etcd, mariadb, free_port, directory, port)
    _drop(made.connection)
    pump_arguments = [f"--pd-urls={etcd}", f"--addr={made.pump_address}", f"--data-dir={directory}/pump"]
    pump = Forked("pump", pump_arguments, directory / "log")
    application = Application(mariadb, SCHEMA)
    try:
        application.create()
        publisher = await _publisher(etcd, application)
        async with publisher:
            made.start()
            await made.until(lambda: made.ask("/load")[0] == 200, "it is up")
            program = Program(application, publisher, rows, seed)
            await program.begin()
            await made.until(lambda: all(_is_there(made, table) for table in TABLES), "tables")
            yield made, program
    finally:
        for process in (pump, made.drainer):
            if process is not None:
                process.kill()
                process.wait()
        application.close()
        _drop(made.connection)
        made.connection.close()


def _is_there(made: Scene, table: str) -> bool:
    query = f"SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA='{COPY}' AND TABLE_NAME='{table}'"
    return bool(made.connection.rows(query.encode()))


async def _publisher(etcd: str, application: Application) -> pumpclient.Publisher:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await pumpclient.open_publisher(etcd, outcomes=application.outcomes)
        except pumpclient.NoPumpRegistered:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


def _drop(connection: Connection) -> None:
    for name in (SCHEMA, COPY, "tidb_binlog"):
        connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
