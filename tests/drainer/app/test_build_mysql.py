"""A start from what is stored: an upstream whose clock lags is waited for; where the schema is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drainer.app import build, build_mysql
from drainer.app.build import BuildContext
from drainer.app.operations import Operating
from drainer.checkpoint.store import DEFAULT_SCHEMA, CheckpointStore
from drainer.checkpoint.stream_row import StreamRow, stream_name
from drainer.checkpoint.value import Checkpoint
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Target
from drainer.operate.control.pause_and_reload import Control
from drainer.sink.findings import Findings
from drainer.stream.pull.merged import MergedBatch
from drainer.stream.rules.rule_set import Rules
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from tests.drainer.ddl.quarantine.stage import Stage, ddl
from tests.waiting import PATIENCE_S
from tidb_binlog.clock import ManualClock, SystemClock
from tidb_binlog.errors import Corruption, Unavailable
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.serving.reload import Reload
from tidb_binlog.serving.starting import Starting
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import SchemaAt, UnderWay, Upstream

CLUSTER = 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Pauses of the start move it, and take no time."""
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    for module in (build, build_mysql):
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    return clock


class Moments:
    """An upstream that has no history, and says where it was asked to begin. `now` are its timestamps."""

    def __init__(self, *now: int) -> None:
        self.now = list(now)
        self.asked: list[int] = []
        self.away: dict[str, int] = {}
        self.cluster_id = CLUSTER
        self.oracle = self.history = self

    def _there(self, method: str) -> None:
        """Not so `away` times."""
        if self.away.get(method):
            self.away[method] -= 1
            raise Unavailable("TiKV does not answer KvScan of a meta key within 60 s")

    async def timestamp(self) -> Ts:
        self._there("timestamp")
        return self.now.pop(0)

    async def under_way(self, *, table_id: int = 0, job_id: int = 0) -> UnderWay | None:
        return None

    async def schema_at(self, ts: int) -> SchemaAt | None:
        self._there("schema_at")
        self.asked.append(ts)
        return None

    async def pages(self, after_id: int = 0) -> AsyncIterator[list[bytes]]:
        self._there("pages")
        for page in ():
            yield page


def settings_for(target: Target, path: Path) -> DrainerConfig:
    return DrainerConfig(
        node_id="it",
        data_dir=str(path),
        to_host=target.host,
        to_port=target.port,
        to_user=target.user,
        to_password=target.password,
    )


async def nothing() -> AsyncIterator[MergedBatch]:
    for batch in ():
        yield batch


@pytest.mark.integration
async def test_each_try_asks_the_upstream_again(
    clock: ManualClock, target: Target, etcd_clean: str, tmp_path: Path
) -> None:
    store = CheckpointStore(target, CLUSTER)
    store.start(2, 100, 1000)
    store.settle(Checkpoint(500, True, 0, store.epoch))
    store.close()
    upstream = Moments(400, 499, 500)
    nodes = await connect_registry(etcd_clean)
    settings = settings_for(target, tmp_path)
    store, start = await build_mysql.open_checkpoint(settings, cast(Upstream, upstream), nodes, target)
    assert upstream.now == []
    assert start.floor_ts == 500
    store.close()
    await nodes.close()


class Damaged(Moments):
    """Its history cannot be read."""

    async def schema_at(self, ts: int) -> SchemaAt | None:
        raise Corruption("a job of the history is damaged")


@pytest.mark.integration
@pytest.mark.parametrize("lacks", ["history", "relay log", "clock"])
async def test_who_could_not_go_on_fences_off_nobody(
    clock: ManualClock, target: Target, etcd_clean: str, tmp_path: Path, lacks: str
) -> None:
    living = CheckpointStore(target, CLUSTER)
    living.start(2, 100, 1000)
    living.save(Checkpoint(500, False, 0, living.epoch))
    session = living.session.open().session_id
    nodes = await connect_registry(etcd_clean)
    upstream = {"history": Damaged(2000), "relay log": Moments(2000), "clock": Moments(*[400] * 100)}[lacks]
    settings = settings_for(target, tmp_path)
    if lacks == "relay log":
        settings = replace(settings, relay_log_dir=str(tmp_path / "relay"))
        (tmp_path / "relay").mkdir()
        (tmp_path / "relay" / ".purged").write_text("?")
    starting = Starting(0.0, SystemClock(), lambda text: None)
    operating: Any = SimpleNamespace(
        control=Control(SystemClock()),
        findings=Findings(SystemClock()),
        reload=Reload(settings, lambda: settings, SystemClock()),
        offer=lambda *_: None,
        wait_for=starting.wait_for,
    )
    async with contextlib.AsyncExitStack() as ends:
        with pytest.raises(Corruption):
            await build_mysql.build(BuildContext(settings, cast(Upstream, upstream), nodes, ends, operating))
    living.hold()
    assert living.session.open().session_id == session, "its session was not ended either"
    living.save(Checkpoint(600, False, 0, living.epoch))
    living.close()
    await nodes.close()


@pytest.mark.integration
def test_each_checkpoint_has_a_row_for_what_its_streams_have_found(target: Target) -> None:
    first, second = (StreamRow(target, stream_name(cluster, DEFAULT_SCHEMA)) for cluster in (7, 8))
    assert (first.load(), first.is_there()) == (None, False)
    for row in (first, second):
        row.begin()
        row.begin()
    assert (first.load(), first.is_there()) == ({}, True)
    first.store(b'{"a": "\xc3\xa9\'"}')
    assert (first.load(), second.load()) == ({"a": "é'"}, {})
    with pytest.raises(Unavailable):
        StreamRow(Target("127.0.0.1", 1, "u", ""), "live").load()


@pytest.mark.integration
@pytest.mark.parametrize("away", [False, True])
async def test_what_a_stream_of_spark_has_found_is_taken_over_and_handed_back(
    target: Target, etcd_clean: str, tmp_path: Path, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that cannot be, the Drainer works all the same."""
    row = StreamRow(target, stream_name(CLUSTER, DEFAULT_SCHEMA))
    spark = Findings(SystemClock())
    nodes = await connect_registry(etcd_clean)
    starting, settings = Starting(60.0, SystemClock(), lambda _: None), settings_for(target, tmp_path)
    operating: Any = SimpleNamespace(
        control=Control(SystemClock()),
        findings=Findings(SystemClock()),
        reload=Reload(settings, lambda: settings, SystemClock()),
        offer=lambda *_: None,
        wait_for=starting.wait_for,
        upstream_clock=SystemClock(),
    )

    def refuse(_row: StreamRow) -> None:
        raise Unavailable("no right to read it")

    if away:
        monkeypatch.setattr(StreamRow, "load", refuse)
    upstream = cast(Upstream, Moments(1000, 1001))
    async with contextlib.AsyncExitStack() as ends:
        await build_mysql.build(BuildContext(settings, upstream, nodes, ends, operating))
    assert not row.is_there(), "nothing to hand on"
    row.begin()
    spark.drift.note_rows("d.t", 3, 1, 2)
    row.store(spark.document())
    async with contextlib.AsyncExitStack() as ends:
        await build_mysql.build(BuildContext(settings, upstream, nodes, ends, operating))
        assert operating.findings.drift.rows() == ({} if away else {"d.t": 3})
        operating.findings.drift.note_rows("d.u", 1, 3, 4)
        spark.drift.note_rows("d.v", 2, 5, 6)
        row.store(spark.document())
    monkeypatch.undo()
    spark.load(row.load())
    assert spark.drift.rows() == {"d.t": 3, "d.v": 2} | ({} if away else {"d.u": 1})
    await nodes.close()


@pytest.mark.integration
@pytest.mark.parametrize("waits", [False, True])
async def test_the_schema_is_that_of_where_the_stream_begins(
    target: Target, etcd_clean: str, tmp_path: Path, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the lanes; but what waits makes the stream begin at the checkpoint, which is held below it."""
    stage = Stage(target, tmp_path)
    if waits:
        stage.sql("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
        await stage.refuse(ddl(200, "ALTER TABLE t ADD COLUMN b INT"))
    stage.store.settle(stage.keeper.checkpoint(250), lanes_at=300)
    await stage.close()
    upstream = Moments(1000)
    upstream.away = {"timestamp": 2, "schema_at": 1, "pages": 2}
    nodes = await connect_registry(etcd_clean)
    starting, settings = Starting(60.0, SystemClock(), lambda _: None), settings_for(target, tmp_path)
    operating: Any = SimpleNamespace(
        control=Control(SystemClock()),
        findings=Findings(SystemClock()),
        reload=Reload(settings, lambda: settings, SystemClock()),
        offer=lambda *_: None,
        wait_for=starting.wait_for,
        upstream_clock=SystemClock(),
    )
    translated_to = []

    def translator(schema: SchemaTracker, rules: Rules, after_ts: Ts) -> Translator:
        translated_to.append(after_ts)
        return Translator(schema, rules, after_ts)

    monkeypatch.setattr(build_mysql, "Translator", translator)
    async with contextlib.AsyncExitStack() as ends:
        runner = await build_mysql.build(
            BuildContext(settings, cast(Upstream, upstream), nodes, ends, cast(Operating, operating))
        )
        sink = runner.sink
        assert sink.quarantine.waits is waits
        assert set(upstream.asked) == {sink.start_ts}
        assert not any(upstream.away.values()), "the store left while it was asked, and was waited for"
        assert sink.start_ts == (199 if waits else 300)
        assert translated_to == [300], "what came up to there an earlier life may have had"
        resumed: list[bool] = []
        quarantine = sink.quarantine
        monkeypatch.setattr(quarantine, "try_again", lambda: resumed.append(quarantine.dependencies.held()))
        operating.control.pause()
        assert quarantine.dependencies.held()
        operating.control.resume()
        assert resumed == [False]
        await runner.run(nothing())
        assert await runner.stop(PATIENCE_S) is True
    await nodes.close()
