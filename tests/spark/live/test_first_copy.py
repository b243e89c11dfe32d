"""A first copy by tasks of Spark, from what answers as a TiDB at a timestamp: all rows at T, each once."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import pickle
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.config.downstream import target_of, upstream_target_of
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.operate.control.rate_limit import BURST_S
from drainer.points.load import table_copy
from drainer.points.load.copier import ChunkCopy, Copied, Spread
from drainer.points.load.load import Load, Loaded
from drainer.spark.chunk_tasks import ChunkPart, ChunkTasks, CopyingTask
from drainer.spark.commands.load import settings_of
from drainer.spark.program import parser, run
from pumpclient import open_publisher
from tests.docs.pages import Page
from tests.drainer.points.load.load_bed import CLUSTER, COPY, SCHEMA, Bed
from tests.fakes.tidb_sql import ROWID, tidb_sql
from tests.forked import Forked
from tests.integration.support.drainer_command import command
from tests.pump.conftest import pump as pump
from tests.pump.support.process import Start
from tests.spark.support.first_copy_world import VERSIONED, app, change
from tests.spark.support.spark_command import SparkCommand
from tests.waiting import PATIENCE_S, until_here
from tidb_binlog import tso
from tidb_binlog.cluster.node import READER, NodeStatus
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.errors import Conflict, FlagError, Rejected
from tidb_binlog.upstream.standalone import NothingCollected

pytestmark = pytest.mark.integration

ROWS = 4_000
WAITS_FOR_LOCK = b"""SELECT ID FROM information_schema.PROCESSLIST
WHERE STATE LIKE 'Waiting for table%' AND INFO LIKE 'INSERT INTO `m_copy`%'"""


class TimeOracle:
    """Timestamps of now."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    async def timestamp(self) -> int:
        return tso.compose(int(time.time() * 1000)) + next(self._numbers)


class TidbBed(Bed):
    """`upstream_sql`: where it answers as a TiDB."""

    def __init__(self, server: MariaDbServer, upstream_sql: Target) -> None:
        options = {"from_host": upstream_sql.host, "from_port": upstream_sql.port, "from_outcome_table": ""}
        super().__init__(server, options=options)

    @property
    def upstream(self) -> Any:
        return SimpleNamespace(
            cluster_id=CLUSTER, oracle=TimeOracle(), history=self.history, garbage=NothingCollected()
        )

    async def copy(self, tasks: Callable[..., Spread], **more: Any) -> Loaded:
        load = Load(self.settings(), self.upstream, self.nodes, spread=tasks, reader="spark", **more)
        return await load.run()


@pytest.fixture
def bed(mariadb: MariaDbServer) -> Iterator[TidbBed]:
    with tidb_sql(mariadb) as upstream_sql:
        bed = TidbBed(mariadb, upstream_sql)
        yield bed
        bed.clean()


def fill(bed: Bed) -> None:
    bed.publish("orders", [("id", "bigint"), ("item", "varchar(40)"), ("price", "decimal(10,2)")], ("id",))
    bed.publish("log", [("a", "int"), ("b", "varchar(20)")])
    bed.publish("names", [("name", "varchar(40)"), ("born", "datetime(3)")], ("name",))
    bed.publish("empty", [("id", "int")], ("id",))
    bed.run(
        f"CREATE TABLE {SCHEMA}.orders (id BIGINT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2))"
        f" {VERSIONED}",
        f"CREATE TABLE {SCHEMA}.log (a INT, b VARCHAR(20), {ROWID}) {VERSIONED}",
        f"CREATE TABLE {SCHEMA}.names (name VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, born DATETIME(3))"
        f" {VERSIONED}",
        f"CREATE TABLE {SCHEMA}.empty (id INT PRIMARY KEY) {VERSIONED}",
        f"INSERT INTO {SCHEMA}.orders SELECT seq, CONCAT('item', seq), seq / 7 FROM seq_1_to_{ROWS}",
        f"INSERT INTO {SCHEMA}.log (a, b) SELECT seq DIV 3, 'x' FROM seq_1_to_{ROWS}",
        f"INSERT INTO {SCHEMA}.names SELECT CONCAT('n', seq), '2024-01-01 00:00:00.125' FROM seq_1_to_900",
    )


async def test_tasks_copy_all_tables_as_they_were(
    bed: TidbBed, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 500)
    fill(bed)
    done = await bed.copy(functools.partial(ChunkTasks, lambda: spark))
    assert (done.tables, done.rows, done.missing) == (4, 2 * ROWS + 900, ())
    assert bed.is_equal("orders", "log", "names", "empty")
    entry = bed.nodes.drainers["spark"].status
    assert (entry.state, entry.is_reader, entry.max_commit_ts) == ("paused", True, done.ts)
    ((text,),) = bed.rows(f"SELECT checkPoint FROM tidb_binlog.checkpoint WHERE clusterID={CLUSTER}")
    stored = json.loads(text)
    assert (stored["consistent"], stored["commitTS"]) == (True, done.ts)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (NodeEntry(NodeStatus("spark", "h:1", "online", label=READER), 5, True), "reader spark is running"),
        (NodeEntry(NodeStatus("spark", "h:1", "paused"), 5, False), "spark is a Drainer's node id"),
    ],
    ids=["a reader", "a Drainer"],
)
async def test_whoever_has_the_name_keeps_it(bed: TidbBed, entry: NodeEntry, said: str) -> None:
    fill(bed)
    bed.nodes.drainers["spark"] = entry
    with pytest.raises(Rejected, match=said):
        await bed.copy(here(lambda task, parts: pytest.fail("a row is copied")))
    assert bed.nodes.drainers["spark"] is entry


class Here(ChunkTasks):
    """Its tasks run in this process. `before(task)` is called for each batch of chunks."""

    before: Callable[[CopyingTask, list[ChunkPart]], None]

    @property
    def slots(self) -> int:  # type: ignore[override]
        return 2

    def copy(self, jobs: Sequence[ChunkCopy], wait: Callable[[float], bool]) -> Sequence[Copied]:
        parts = [ChunkPart.of(job) for job in jobs]
        task = pickle.loads(pickle.dumps(self.task))
        self.before(task, parts)
        return list(task(iter(parts)))


def here(before: Callable[[CopyingTask, list[ChunkPart]], None]) -> Callable[..., Spread]:
    def tasks(*arguments: Any) -> Spread:
        spread = Here(lambda: pytest.fail("no Spark is needed"), *arguments)
        spread.before = before
        return spread

    return tasks


async def test_rules_are_those_of_the_drainer_in_a_task_too(bed: TidbBed) -> None:
    fill(bed)
    rule = {"db-name": SCHEMA, "tbl-name": "orders", "where": "id <= 300", "mask": {"item": "null"}}
    bed.options = {
        **bed.options,
        "row_rule": (rule,),
        "ignore_table": ({"db-name": SCHEMA, "tbl-name": "log"},),
    }
    await bed.copy(here(lambda task, parts: None))
    assert bed.rows(f"SELECT COUNT(*), MAX(id), COUNT(item) FROM {COPY}.orders") == [(300, 300, 0)]
    assert bed.is_equal("names", "empty")


async def test_a_task_that_is_done_again_writes_nothing_twice(bed: TidbBed) -> None:
    """Also where the session of the first try lives on, in the middle of a chunk: it is ended."""
    fill(bed)
    stuck: list[Connection] = []

    def before(task: CopyingTask, parts: list[ChunkPart]) -> None:
        for part in parts:
            connection = bed.connect()
            task.progress.claim_chunk(connection, part.number, part.chunk.number, task.run)
            table = ".".join(f"`{name}`" for name in (COPY, part.name[1]))
            connection.run(f"INSERT INTO {table} SELECT * FROM {SCHEMA}.{part.name[1]} LIMIT 10".encode())
            stuck.append(connection)
        list(task(iter(parts)))

    done = await bed.copy(here(before))
    assert done.rows == 2 * ROWS + 900
    assert bed.is_equal("orders", "log", "names", "empty")
    assert stuck
    for connection in stuck:
        with pytest.raises(SessionError):
            connection.commit()


async def test_tasks_keep_to_a_rate_together(bed: TidbBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has too few statements to be held back by itself."""
    monkeypatch.setattr(table_copy, "CHUNK_ROWS_MAX", 500)
    fill(bed)
    done = await bed.copy(here(lambda task, parts: None), rate_rows=8000)  # two slots
    assert done.seconds > done.rows / 4000 - 2 * BURST_S


async def test_a_task_of_a_copy_that_was_taken_over_writes_nothing(bed: TidbBed) -> None:
    """Nor does it end the session of the task that is at the chunk now."""
    fill(bed)
    written: list[int] = []

    def before(task: CopyingTask, parts: list[ChunkPart]) -> None:
        if written:
            return
        old, connection = replace(task, run=task.run - 1), bed.connect()
        task.progress.claim_chunk(connection, parts[0].number, parts[0].chunk.number, task.run)
        with pytest.raises(Conflict, match="took over"):
            list(old(iter(parts)))
        connection.rows(b"SELECT 1")
        connection.close()
        written.append(int(bed.rows(f"SELECT COUNT(*) FROM {COPY}.orders")[0][0]))

    await bed.copy(here(before))
    assert written == [0]


def test_the_line_of_the_page_is_a_drainers_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = (
        line for line in Page("docs/one-or-many.md").commands() if line.startswith("binlog-spark load")
    )
    monkeypatch.setenv("BINLOG_SPARK_FROM_PASSWORD", "above")
    monkeypatch.setenv("BINLOG_SPARK_PASSWORD", "below")
    settings = settings_of(parser("load").parse_args(shlex.split(line)[1:]))
    source, target = upstream_target_of(settings), target_of(settings)
    assert (source.user, source.password, source.host, source.port) == ("loader", "above", "10.0.0.1", 4000)
    assert (target.user, target.password, target.host, target.port) == ("drainer", "below", "10.0.0.2", 3306)
    assert (settings.pd_urls, settings.to_database) == ("10.0.0.3:2379", True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "there is no cluster"),
        (["--config", "whole.toml"], "syncer.dispatch = transaction"),
        (["--pumps", "pumps://a:1"], "there is no downstream"),
        (["--pumps", "pumps://a:1", "--to", "delta:///lake", "--append"], "--append is of a database"),
        (["--pumps", "pumps://a:1", "--to", "mysql://a@b:1/", "--mode", "mirror"], "mirror is of a lake"),
        (["--pumps", "pumps://a:1", "--rate", "-1"], "--rate is -1"),
        (["--pumps", "pumps://a:1", "--replace", "--append"], "two ways"),
        (["--pumps", "a:1"], "give pumps://HOST:2379"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_asked(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("whole.toml").write_text('pd-urls = "a:1"\n[syncer]\ndispatch = "transaction"\n')
    with pytest.raises(FlagError, match=said):
        run(["load", *flags])


def contents(connection: Connection, schema: str) -> list[list[tuple[Any, ...]]]:
    queries = (f"SELECT * FROM {schema}.{name} ORDER BY 1, 2" for name in ("keyed", "plain", "named"))
    return [list(connection.rows(query.encode())) for query in queries]


async def test_killed_in_the_middle_it_goes_on_and_the_stream_follows(
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    target: Target,
    connection: Connection,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """First the driver is killed, then both processes in which tasks run: nothing is lost, nothing twice."""
    for name in ("m_app", "m_copy"):
        connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await open_publisher(etcd_clean)
    await app(publisher, connection)
    config, log = tmp_path / "drainer.toml", tmp_path / "log"
    commands: list[SparkCommand] = []

    def begin(rate: str) -> SparkCommand:
        arguments = ["load", "--config", str(config), "--once", "--rate", rate, "--master", "local[2]"]
        arguments += ["--conf", "spark.driver.memory=1g", "--interval", "50ms"]
        commands.append(SparkCommand(arguments, log))
        return commands[-1]

    def copied_chunks() -> int:
        (rows,) = connection.rows_if_there(b"SELECT COUNT(*) FROM tidb_binlog.load_chunks WHERE state = 2")
        return int(rows[0][0]) if rows else 0

    def state() -> list[tuple[Any, ...]]:
        return connection.rows_if_there(b"SELECT ts, phase FROM tidb_binlog.load_state")[0]

    def running(command: SparkCommand, chunks: int) -> bool:
        assert command.process.poll() is None, log.read_text()
        return copied_chunks() > chunks

    with tidb_sql(mariadb) as upstream_sql:
        account = f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
        config.write_text(
            f'pd-urls = "{etcd_clean}"\naddr = "127.0.0.1:{free_port()}"\n'
            f'[syncer.from]\nhost = "127.0.0.1"\nport = {upstream_sql.port}\n{account}'
            f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n{account}'
            '[[syncer.table-migrate-rule]]\nsource = { schema = "m_app" }\ntarget = { schema = "m_copy" }\n'
        )
        try:
            first = begin("3000")  # all of it would take half a minute
            await asyncio.to_thread(until_here, lambda: running(first, 0))
            first.process.kill()
            ((t, phase),) = state()
            assert phase == "loading"
            for number in range(1, 20):
                await change(publisher, connection, number)
            await asyncio.to_thread(until_here, lambda: not first.workers())
            second, done = begin("8000"), copied_chunks()
            await asyncio.to_thread(until_here, lambda: running(second, done) and second.workers())
            held = ", ".join(f"m_copy.{name} WRITE" for name in ("keyed", "plain", "named"))
            with closing(connect(target)) as lock:  # so that they are killed in the middle of a chunk
                lock.run(f"LOCK TABLES {held}".encode())
                await asyncio.to_thread(until_here, lambda: connection.rows(WAITS_FOR_LOCK))
                for pid in second.workers():
                    os.kill(pid, signal.SIGKILL)
            for number in range(20, 40):
                await change(publisher, connection, number)
            assert await asyncio.to_thread(second.process.wait, PATIENCE_S) == 0, log.read_text()
            assert state() == [(t, "done")]
            assert "chunks are tried again" in log.read_text()
            assert contents(connection, "m_copy") == contents(connection, "m_app")
            await change(publisher, connection, 40)
            third = begin("8000")
            assert await asyncio.to_thread(third.process.wait, PATIENCE_S) == 0
            assert "nothing to copy" in log.read_text()
            assert contents(connection, "m_copy") == contents(connection, "m_app")
        finally:
            for command in commands:
                command.kill_all()
            await publisher.close()
            for name in ("m_app", "m_copy"):
                connection.run(f"DROP DATABASE IF EXISTS {name}".encode())


async def test_a_drainer_goes_on_from_the_copy_and_the_stream_from_the_drainer(
    pump: Start,
    etcd_clean: str,
    mariadb: MariaDbServer,
    connection: Connection,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """By the checkpoint alone: each is a process of its own."""
    for name in ("m_app", "m_copy"):
        connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
    await pump("-node-id=p1", "-heartbeat-interval=200ms").start_and_wait()
    publisher = await open_publisher(etcd_clean)
    await app(publisher, connection, 1000)
    log, endings = tmp_path / "log", list[Callable[[], None]]()

    def is_equal() -> bool:
        return contents(connection, "m_copy") == contents(connection, "m_app")

    with tidb_sql(mariadb) as upstream_sql:
        account = f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
        toml = (
            f'pd-urls = "{etcd_clean}"\naddr = "127.0.0.1:{free_port()}"\n'
            f'[syncer.from]\nhost = "127.0.0.1"\nport = {upstream_sql.port}\n{account}'
            f'[syncer.to]\nhost = "127.0.0.1"\nport = {mariadb.port}\n{account}'
            '[[syncer.table-migrate-rule]]\nsource = { schema = "m_app" }\ntarget = { schema = "m_copy" }\n'
        )
        drainer = command(tmp_path, etcd_clean, free_port(), toml)
        config = ["--config", str(tmp_path / "drainer.toml"), "--conf", "spark.driver.memory=1g"]
        try:
            copy = SparkCommand(["load", *config, "--no-stream", "--master", "local[2]"], log)
            endings.append(copy.kill_all)
            assert await asyncio.to_thread(copy.process.wait, PATIENCE_S) == 0, log.read_text()
            for number in range(1, 20):
                await change(publisher, connection, number)
            process = Forked("drainer", drainer)
            endings.append(process.kill)
            await asyncio.to_thread(until_here, is_equal)
            process.terminate()
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
            for number in range(20, 40):
                await change(publisher, connection, number)
            stream = SparkCommand(["stream", *config, "--once", "--interval", "50ms"], log)
            endings.append(stream.kill_all)
            assert await asyncio.to_thread(stream.process.wait, PATIENCE_S) == 0, log.read_text()
            assert is_equal()
        finally:
            for end in endings:
                end()
            await publisher.close()
            for name in ("m_app", "m_copy"):
                connection.run(f"DROP DATABASE IF EXISTS {name}".encode())
