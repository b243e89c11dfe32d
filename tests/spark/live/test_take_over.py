"""A Drainer and a stream of Spark over one checkpoint, as processes: each goes on where the other stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection
from pumpclient import column
from tests import forked
from tests.crash.small_run import publish
from tests.drainer.ddl.quarantine.shards import BEGIN, MERGES
from tests.forked import Forked
from tests.integration.support import joining_scene
from tests.integration.support.drainer_command import command, downstream, ended
from tests.integration.support.joining_scene import COPY, SCHEMA
from tests.integration.support.subscribed_shop import shop
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration


class Program:
    """A command that runs until it is told to end, or killed."""

    def __init__(self, program: str, arguments: list[str], log: Path) -> None:
        argv = [sys.executable, "-m", program, *arguments]
        with log.open("ab") as file:
            self._process = subprocess.Popen(argv, stdout=file, stderr=file, start_new_session=True)

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.kill()


async def test_each_goes_on_where_the_other_stopped(
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    connection: Connection,
    free_port: Callable[[], int],
    tmp_path: Path,
    programs: list[Program],
) -> None:
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    await publisher.create_table("shop.log", [column("line", "varchar(40)")], primary_key=[])
    own = f'addr = "127.0.0.1:{free_port()}"\n'  # the stream's; the Drainer has another on its command line
    toml = f'initial-commit-ts = 0\npd-urls = "{etcd_clean}"\n' + own + downstream(mariadb)
    drainer = command(tmp_path, etcd_clean, free_port(), toml)
    stream = ["stream", "--config", str(tmp_path / "drainer.toml"), "--interval", "50ms"]
    written = 0

    async def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            written += 1
            async with publisher.transaction() as txn:
                txn.insert("shop.log", {"line": "the same"}, rowid=written)

    def arrived() -> bool:
        return connection.rows_if_there(b"SELECT COUNT(*) FROM shop.log")[0] == [(written,)]

    async def all_arrive() -> None:
        await until(lambda: asyncio.to_thread(arrived))

    log = tmp_path / "programs.log"
    for turn in range(2):
        programs.append(running := Program("drainer", drainer, log))
        await write(20)
        await all_arrive()
        code, line = ended(stream, "drainer.spark")
        assert (code, "is running and works on the checkpoint" in line) == (5, True), line
        assert running.stop() == 0
        programs.append(running := Program("drainer.spark", stream, log))
        await write(20)
        await all_arrive()
        if turn:
            running.kill()
            code, line = ended(drainer)
            assert (code, "or was killed and left a batch half done" in line) == (5, True), line
            await write(20)
            assert forked.run("drainer.spark", *stream, "--once").returncode == 0
            assert arrived()
        else:
            code, line = ended(drainer)
            assert (code, "binlog-spark stream spark works on" in line) == (5, True), line
            assert running.stop() == 0
    programs.append(running := Program("drainer", drainer, log))
    await write(5)
    await all_arrive()
    await publisher.close()


def ends_well(*stream: str) -> bool:
    return forked.run("drainer.spark", *stream).returncode == 0


SHARDS = """
[[syncer.table-migrate-rule]]
source = { schema = "d", table = "t*" }
target = { schema = "d", table = "all" }
"""


async def test_a_ddl_that_waits_goes_from_one_to_the_other(
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    connection: Connection,
    free_port: Callable[[], int],
    tmp_path: Path,
    programs: list[Program],
) -> None:
    """A stream is killed while a shard waits for the other, goes on and is stopped. The Drainer ends it."""
    connection.run(b"DROP DATABASE IF EXISTS d")
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    own = f'initial-commit-ts = 0\npd-urls = "{etcd_clean}"\naddr = "127.0.0.1:{free_port()}"\n'
    toml = f"{own}[syncer]\ndisjoint-shards = true\n{downstream(mariadb)}{SHARDS}"
    drainer = command(tmp_path, etcd_clean, free_port(), toml)
    stream = ["stream", "--config", str(tmp_path / "drainer.toml"), "--interval", "50ms"]
    log = tmp_path / "programs.log"
    steps, expected = MERGES["drop column"]

    def rows(column: str = "id") -> int:
        (there,) = connection.rows_if_there(f"SELECT COUNT({column}) FROM d.`all`".encode())
        return int(there[0][0]) if there else 0

    def waits() -> int:
        return len(connection.rows_if_there(b"SELECT 1 FROM tidb_binlog.quarantine")[0])

    programs.append(running := Program("drainer.spark", stream, log))
    await publish(etcd_clean, [*BEGIN, *steps[:2]])
    await until(lambda: waits() == 1 and rows() == 3)  # without that of t1, which waits
    running.kill()
    code, line = ended(drainer)
    assert (code, "or was killed and left a batch half done" in line) == (5, True), line
    programs.append(running := Program("drainer.spark", stream, log))
    await publish(etcd_clean, steps[2:3], first=len(BEGIN) + 3)
    await until(lambda: connection.rows(b"SELECT c FROM d.`all` WHERE id=2") == [("x",)])
    assert running.stop() == 0
    assert waits() == 1
    programs.append(Program("drainer", drainer, log))
    await publish(etcd_clean, steps[3:], first=len(BEGIN) + 4)
    await until(lambda: rows() == len(expected) and not waits())
    assert connection.rows(b"SELECT * FROM d.`all` ORDER BY id") == expected
    connection.run(b"DROP DATABASE d")


async def test_rows_that_a_drainer_was_loading_are_loaded_by_the_stream(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> None:
    """It is killed at that, too; then it goes on as a stream."""
    async with joining_scene.scene(etcd_clean, mariadb, free_port, tmp_path, rows=300) as (made, program):

        def start() -> None:
            stream = ["stream", f"--config={made.config}", "--interval=50ms"]
            made.drainer = Forked("drainer.spark", stream, made.directory / "log")

        def says(path: str, method: str = "GET", body: str = "") -> bool:
            return "a stream has none begin" in made.ask(path, method, body)[1]["message"]

        await program.write()
        await made.until(lambda: made.rows(COPY, "keyed"), "rows of the stream")
        with contextlib.closing(made.connect()) as locker:
            locker.run(f"LOCK TABLES {SCHEMA}.plain WRITE".encode())
            assert (await made.load())[0] == 200
            assert made.drainer is not None
            made.drainer.terminate()
            assert await asyncio.to_thread(made.drainer.wait, PATIENCE_S) == 0
            start()
            await made.until(lambda: len(made.joins()) == 1, "the load is gone on with")
            made.kill()
        await program.write()
        start()
        await made.until(lambda: not made.joins(), "they are like all others")
        await program.write()
        await program.publisher.flush()
        await made.is_equal()
        assert made.ask("/load")[1]["data"]["last"]["tables"] == 2
        await made.until(lambda: says("/load", "PUT", f"{SCHEMA}.flows"), "it is a stream")


async def test_lanes_of_a_killed_drainer_that_stand_above_its_checkpoint_are_no_place_to_begin(
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    connection: Connection,
    free_port: Callable[[], int],
    tmp_path: Path,
    programs: list[Program],
) -> None:
    """One lane stands nowhere else than itself: rows from the checkpoint on would have come twice."""
    connection.run(b"DROP DATABASE IF EXISTS shop")
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await shop(etcd_clean)
    await publisher.create_table("shop.log", [column("line", "varchar(40)")], primary_key=[])
    own = f'initial-commit-ts = 0\npd-urls = "{etcd_clean}"\naddr = "127.0.0.1:{free_port()}"\n'
    lanes = '[syncer]\nworker-count = 1\ncheckpoint-interval = "1h"\n'
    drainer = command(tmp_path, etcd_clean, free_port(), own + lanes + downstream(mariadb))
    stream = ["stream", "--config", str(tmp_path / "drainer.toml"), "--once"]

    def rows() -> int:
        (there,) = connection.rows_if_there(b"SELECT COUNT(*) FROM shop.log")
        return int(there[0][0]) if there else 0

    programs.append(running := Program("drainer", drainer, tmp_path / "programs.log"))
    for number in range(20):
        async with publisher.transaction() as txn:
            txn.insert("shop.log", {"line": "the same"}, rowid=number + 1)
    await until(lambda: rows() == 20)
    running.kill()
    await until(lambda: asyncio.to_thread(ends_well, *stream))  # once the lease is over
    assert rows() == 20
    await publisher.close()
