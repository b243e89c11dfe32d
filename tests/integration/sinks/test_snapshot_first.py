"""`--load` with sinks that are no database: rows of a program's MariaDB come first, then the stream; once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.checkpoint.savepoint import SNAPSHOT_NAME
from drainer.mysql.connection import Connection, Target, connect
from tests.fakes.kafka import Message, MockKafka
from tests.fakes.webhook import Answer, Webhook
from tests.forked import Forked
from tests.integration.support.copied_shop import SCHEMA, Shop, answers
from tests.rig.workload.application import Application
from tests.waiting import PATIENCE_S
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration
ROWS = 600
TOPIC = "shop"
Rows = Counter[tuple[str, str, str]]


class Scene:
    """A shop, a pump, and a drainer with `--load`."""

    def __init__(self, config: Path, kafka: MockKafka, connection: Connection, shop: Shop) -> None:
        self.config = config
        self.kafka = kafka
        self.connection = connection
        self.shop = shop
        self.log = config.with_suffix(".log")

    def start(self) -> Forked:
        return Forked("drainer", ["--load", f"--config={self.config}"], self.log)

    def messages(self) -> list[Message]:
        return self.kafka.messages(TOPIC)

    def contents(self) -> Rows:
        self.connection.rollback()
        return Counter(
            (name, str(number), text)
            for name in ("keyed", "plain")
            for number, text in self.connection.rows(f"SELECT id, v FROM {SCHEMA}.{name}".encode())
        )

    async def until(self, condition: Callable[[], bool], drainer: Forked) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(condition):
                assert drainer.poll() is None, self.log.read_text()[-2000:]
                await asyncio.sleep(0.1)


def rows_of(messages: list[Message]) -> Rows:
    found: Rows = Counter()
    for message in messages:
        document = json.loads(message.value or b"")
        if not document["isDdl"]:
            assert document["type"] == "INSERT"
            found.update((document["table"], row["id"], row["v"]) for row in document["data"])
    return found


def is_marked(message: Message) -> bool:
    marked = json.loads(message.value or b"")["_tidb"].get("snapshot", False)
    assert marked is (dict(message.headers or ()).get("snapshot") == b"1")
    return bool(marked)


@pytest.fixture
async def scene(
    etcd_clean: str, mariadb: MariaDbServer, free_port: Callable[[], int], tmp_path: Path
) -> AsyncIterator[Scene]:
    await (await StandaloneUpstream.connect(etcd_clean)).close()
    kafka = MockKafka()
    kafka.create(TOPIC)
    status, own = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = tmp_path / "drainer.toml"
    config.write_text(
        f'pd-urls = "{etcd_clean}"\naddr = "{own}"\nnode-id = "first"\ndata-dir = "{tmp_path}/drainer"\n'
        f'[syncer]\ndb-type = "kafka"\n[syncer.from]\nhost = "127.0.0.1"\nport = {mariadb.port}\n'
        f'user = "{mariadb.user}"\npassword = "{mariadb.password}"\n'
        f'outcome-table = "{SCHEMA}.binlog_outcome"\n'
        f'[syncer.to]\nkafka-addrs = "{kafka.servers}"\nformat = "canal-json"\ntopic = "{TOPIC}"\n'
    )
    pump = Forked(
        "pump", [f"--pd-urls={etcd_clean}", f"--addr={status}", f"--data-dir={tmp_path}/pump"], tmp_path / "p"
    )
    connection = connect(Target("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))
    application = Application(mariadb, SCHEMA)
    try:
        await answers(f"http://{status}/status", pump)
        application.create()
        async with pumpclient.open_publisher(etcd_clean, outcomes=application.outcomes) as publisher:
            shop = Shop(application, publisher, ROWS)
            await shop.begin()
            await shop.write()
            yield Scene(config, kafka, connection, shop)
    finally:
        pump.kill()
        pump.wait()
        application.close()
        connection.run(b"UNLOCK TABLES")
        connection.run(f"DROP DATABASE IF EXISTS {SCHEMA}".encode())
        connection.close()
        kafka.close()


@contextlib.asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Forked]:
    drainer = scene.start()
    try:
        yield drainer
    finally:
        drainer.kill()
        drainer.wait()


async def test_rows_come_first_then_the_stream_and_only_once(scene: Scene) -> None:
    async with running(scene) as drainer:
        for _ in range(30):
            await scene.shop.write()
        await scene.until(lambda: rows_of(scene.messages()) == scene.contents(), drainer)
        assert not (scene.config.parent / "drainer" / SNAPSHOT_NAME).exists()
        drainer.send_signal(signal.SIGKILL)
        drainer.wait()
    async with running(scene) as drainer:
        await scene.shop.write()
        await scene.until(lambda: rows_of(scene.messages()) == scene.contents(), drainer)
        drainer.send_signal(signal.SIGTERM)
        assert drainer.wait(PATIENCE_S) == 0
    marks = [is_marked(message) for message in scene.messages()]
    assert marks == sorted(marks, reverse=True)
    assert marks.count(True) >= 2 * ROWS
    moments = {json.loads(message.value or b"")["_tidb"]["commitTs"] for message in scene.messages()[:ROWS]}
    assert len(moments) == 1


async def test_a_lake(scene: Scene) -> None:
    lake = scene.config.parent / "lake"
    head = scene.config.read_text().partition("[syncer.to]")[0].replace("kafka", "delta")
    scene.config.write_text(f'{head}[syncer.to]\nwarehouse = "{lake}"\ncommit-interval = "100ms"\n')

    def changes(name: str) -> list[dict[str, Any]]:
        place = lake / SCHEMA / name
        if not (place / "_delta_log").exists():
            return []
        return list(DeltaTable(str(place)).to_pyarrow_table().to_pylist())

    def rows() -> Rows:
        return Counter(
            (name, str(row["after"]["id"]), row["after"]["v"])
            for name in ("keyed", "plain")
            for row in changes(name)
        )

    for number in (signal.SIGKILL, signal.SIGTERM):
        async with running(scene) as drainer:
            for _ in range(10):
                await scene.shop.write()
            await scene.until(lambda: rows() == scene.contents(), drainer)
            drainer.send_signal(number)
            drainer.wait()
    for name in ("keyed", "plain"):
        kinds = Counter((row["_kind"], row["_commit_ts"]) for row in changes(name))
        ((_, moment),) = [one for one in kinds if one[0] == "snapshot"]
        assert kinds["snapshot", moment] > ROWS
        assert all(ts > moment for kind, ts in kinds if kind == "insert")
        assert len(kinds) > 10


def to_sink(scene: Scene, syncer: str) -> None:
    head = scene.config.read_text().partition("[syncer.to]")[0]
    db_type, _, rest = syncer.partition("\n")
    scene.config.write_text(head.replace('db-type = "kafka"', f'db-type = "{db_type}"') + rest)


async def rows_before_the_stream(scene: Scene, lines: Callable[[], list[dict[str, Any]]]) -> None:
    """`lines`: canal-json, as far as it has come; each row once."""

    def rows() -> Rows:
        return Counter((line["table"], row["id"], row["v"]) for line in lines() for row in line["data"] or ())

    for number in (signal.SIGKILL, signal.SIGTERM):
        async with running(scene) as drainer:
            for _ in range(10):
                await scene.shop.write()
            await scene.until(lambda: set(rows()) == set(scene.contents()), drainer)
            drainer.send_signal(number)
            drainer.wait()
    seen = {(line["_tidb"]["commitTs"], line["_tidb"]["seq"]): line for line in lines() if line["data"]}
    assert len(seen) == scene.contents().total(), "by commitTs and seq each row is there once"
    moments = {ts for (ts, _), line in seen.items() if "snapshot" in line["_tidb"]}
    (moment,) = moments
    assert sum(ts == moment for ts, _ in seen) >= 2 * ROWS
    assert all(ts >= moment for ts, _ in seen)


async def test_http(scene: Scene) -> None:
    hook = Webhook()
    to_sink(scene, f'http\n[syncer.to]\nurl = "http://127.0.0.1:{hook.port}/"\nbatch-rows = 500\n')
    hook.answers = [Answer(), Answer(503), Answer(breaks=True), Answer()]
    try:
        await rows_before_the_stream(
            scene, lambda: [line for request in list(hook.taken) for line in request.lines()]
        )
    finally:
        hook.close()


async def test_stdout(scene: Scene) -> None:
    """The log is in the same file here."""
    to_sink(scene, "stdout\n[syncer.to]\n")

    def lines() -> list[dict[str, Any]]:
        text = scene.log.read_text() if scene.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-3:] == "}}\n"]

    await rows_before_the_stream(scene, lines)


async def test_a_class_of_ones_own(scene: Scene) -> None:
    """It stores its position, so that each row is there once, also of the table without a key."""
    out = scene.config.parent / "out"
    to_sink(scene, f'python:examples.json_lines_sink:JsonLines\n[syncer.to.options]\ndirectory = "{out}"\n')

    def rows() -> Rows:
        documents = [
            json.loads(line) for path in out.glob("changes-*") for line in path.read_bytes().split(b"\n")[:-1]
        ]
        return Counter(
            (one["table"].partition(".")[2], str(one["after"]["id"]), one["after"]["v"])
            for one in documents
            if "after" in one
        )

    for number in (signal.SIGKILL, signal.SIGTERM):
        async with running(scene) as drainer:
            for _ in range(10):
                await scene.shop.write()
            await scene.until(lambda: rows() == scene.contents(), drainer)
            drainer.send_signal(number)
            drainer.wait()


async def test_an_archive_takes_no_rows_first(scene: Scene) -> None:
    to_sink(scene, f'file\n[syncer.to]\ndir = "{scene.config.parent}/archive"\n')
    async with running(scene) as drainer:
        assert await asyncio.to_thread(drainer.wait, PATIENCE_S) == 1
    assert "load -to archive" in scene.log.read_text()


async def test_a_moment_that_is_gone_is_refused(scene: Scene) -> None:
    """A MariaDB shows T to one process."""
    scene.connection.run(f"LOCK TABLES {SCHEMA}.plain WRITE".encode())
    async with running(scene) as drainer:
        await scene.until(lambda: len(scene.messages()) >= ROWS, drainer)
        drainer.send_signal(signal.SIGTERM)
        assert drainer.wait(PATIENCE_S) == 0, "it ends while the upstream hangs"
    scene.connection.run(b"UNLOCK TABLES")
    async with running(scene) as drainer:
        assert await asyncio.to_thread(drainer.wait, PATIENCE_S) == 4
    assert "the snapshot cannot go on" in scene.log.read_text()
    assert not any(table == "plain" for table, _, _ in rows_of(scene.messages()))
