"""The HTTP routes: texts as Go pumps give them, refusals with a status, and what `/status` shows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pump import status
from pump.pull.puller import Pullers
from pump.status import StatusRoutes
from pump.storage.opening import StorageLimits
from pump.watermark.idle import IdleWatermark
from pump.watermark.stall_monitor import StallMonitor
from pump.write.admission import Disk
from tests.exposition import sample
from tests.pump.support.payloads import put, put_pair, wait_watermark
from tests.pump.support.resolving import Scene, rows, scene
from tests.pump.support.scripted import ScriptedOracle
from tests.waiting import PATIENCE_S, until
from tidb_binlog import binlog, tso
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import ClusterView, NodeEntry
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Peer, Request, Response, Routes
from tidb_binlog.errors import Rejected, Unavailable
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import Undecided, Unknown
from tidb_binlog.wire import pump_pb2

CLUSTER = 77


@dataclass
class Registry:
    """A registry that may be away, or silent."""

    drainers: dict[str, NodeEntry] = field(default_factory=dict)
    away: bool = False
    silent: bool = False

    async def view(self) -> ClusterView:
        if self.silent:
            await asyncio.get_running_loop().create_future()
        if self.away:
            raise Unavailable("etcd does not answer")
        pump = NodeStatus("p1", "10.0.0.5:8250", node.ONLINE, 7, 8)
        return ClusterView(1, {"p1": NodeEntry(pump, 1, True)}, self.drainers)


@dataclass
class Registration:
    node_id: str = "p1"
    state: str = node.ONLINE


@dataclass
class Retention:
    working: bool = False

    def trigger(self) -> bool:
        started, self.working = not self.working, True
        return started

    def facts(self) -> dict[str, Any]:
        return {"working": self.working}


@dataclass
class Page:
    one: Scene
    registry: Registry
    registration: Registration
    oracle: ScriptedOracle
    time: UpstreamTime
    pullers: Pullers
    watch: StallMonitor
    routes: Routes
    left: list[tuple[str, bool]]
    refuse: str = ""
    leaving: dict[str, Any] | None = None

    async def ask(self, method: str, target: str, address: str = "127.0.0.1") -> Response:
        request = Request(method, target, "localhost:8250", None, Peer(address))
        return await self.routes.answer(request, AdminGuard())

    async def state(self, target: str) -> tuple[int, dict[str, Any]]:
        response = await self.ask("PUT", target)
        return response.status, json.loads(response.body)

    async def pump(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.ask("GET", "/status")).body)["pump"]
        return found


@asynccontextmanager
async def page(path: Path, *, retention: Retention | None = None, **options: Any) -> AsyncIterator[Page]:
    async with scene(path, **options) as one:
        oracle, registry, registration = ScriptedOracle(), Registry(), Registration()
        idle = IdleWatermark(oracle, lambda: one.storage.watermark, one.storage.mark)
        pullers = Pullers(one.storage, idle, CLUSTER)
        watch, routes = StallMonitor(one.storage, one.resolver, one.clock), Routes()
        time = UpstreamTime(oracle, one.clock)
        made = Page(one, registry, registration, oracle, time, pullers, watch, routes, [])

        async def leave(action: str, force: bool) -> None:
            if made.refuse:
                raise Rejected(made.refuse)
            made.left.append((action, force))

        found = StatusRoutes(
            one.storage,
            pullers,
            registration,  # type: ignore[arg-type]
            registry,  # type: ignore[arg-type]
            time,
            one.clock,
            leave,
            lambda: made.leaving,
            watch=watch,
            disk=lambda: Disk(500, 100),
            idle=idle,
            retention=retention,
        )
        found.bind_gauges()
        found.add_routes(routes, debug=True)
        yield made


# -- state ---------------------------------------------------------------------------------------


async def test_actions_and_refusals_have_their_text_and_a_status(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        body = (await one.ask("PUT", "/state/p1/pause")).body
        assert body == b'{\n  "message": "apply action pause success!",\n  "code": 200,\n  "data": null\n}\n'
        assert await one.state("/state/p2/pause") == (
            404,
            {"message": "invalide nodeID p2, this pump's nodeID is p1", "code": 3, "data": None},
        )
        assert await one.state("/state/p1/stop") == (
            400,
            {"message": "invalide action stop", "code": 3, "data": None},
        )
        one.refuse = "no drainer is registered"
        assert await one.state("/state/p1/close") == (
            409,
            {"message": "no drainer is registered", "code": 3, "data": None},
        )
        one.registration.state = node.PAUSED
        assert await one.state("/state/p1/close") == (
            409,
            {"message": "this pump's state is paused, apply close failed!", "code": 3, "data": None},
        )
        # What is wrong is looked at in this order: the node, its state, the action.
        assert (await one.state("/state/p2/stop"))[0] == 404
        assert (await one.state("/state/p1/stop"))[0] == 409
        assert one.left == [("pause", False)]


async def test_close_is_passed_on_with_force_also_while_it_waits_already(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        assert (await one.state("/state/p1/close"))[0] == 200
        assert (await one.state("/state/p1/close?force=true"))[0] == 200
        one.registration.state = node.CLOSING
        assert (await one.state("/state/p1/close"))[0] == 409
        assert (await one.state("/state/p1/pause?force=true"))[0] == 409
        assert (await one.state("/state/p1/close?force=false"))[0] == 409
        assert (await one.state("/state/p1/close?force=true"))[0] == 200
        assert one.left == [("close", False), ("close", True), ("close", True)]


async def test_strangers_change_nothing(tmp_path: Path) -> None:
    async with page(tmp_path, retention=Retention()) as one:
        for method, target in (
            ("PUT", "/state/p1/close"),
            ("PUT", "/transactions/10/rolled-back"),
            ("POST", "/debug/gc/trigger"),
            ("GET", "/debug/binlog/10"),
        ):
            assert (await one.ask(method, target, "10.0.0.9")).status == 403
        assert one.left == []
        assert (await one.ask("GET", "/debug/gc/trigger")).status == 405


async def test_an_operator_decides_what_nobody_knows(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        one.one.upstream.answers[10] = [Unknown("no trace of it")]
        await one.one.prewrite(10)
        assert (await one.state("/transactions/10/25"))[0] == 409  # nobody has asked yet
        one.one.clock.advance(1.5)
        await one.one.round()
        own = await one.pump()
        assert own["oldest_open"]["upstream"] == "the upstream does not know it any more: no trace of it"
        assert "binlogctl decide 10 rolled-back" in own["oldest_open"]["next"]
        for target, status in (
            ("/transactions/x/25", 400),
            ("/transactions/10/committed", 400),
            ("/transactions/11/25", 404),
            ("/transactions/10/9", 409),
            (f"/transactions/10/{10**15}", 409),  # the upstream is not there yet
            (f"/transactions/10/{'1' * 5000}", 400),
        ):
            assert (await one.state(target))[0] == status
        assert await one.state("/transactions/10/25") == (
            200,
            {"message": "transaction 10 is decided", "code": 200, "data": None},
        )
        await one.one.settled()
        assert await one.one.commits() == [25]


# -- drainers, gc, binlog ------------------------------------------------------------------------


async def test_drainers_are_listed_and_a_registry_that_is_away_is_no_empty_list(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        response = await one.ask("GET", "/drainers")
        assert (response.status, response.body) == (200, b"null\n")
        one.registry.drainers["d1"] = NodeEntry(NodeStatus("d1", "10.0.0.6:8249", node.PAUSED, 5, 6), 1, True)
        (found,) = json.loads((await one.ask("GET", "/drainers")).body)
        assert (found["nodeId"], found["state"], found["maxCommitTS"]) == ("d1", "paused", 5)
        one.registry.away = True
        response = await one.ask("GET", "/drainers")
        assert (response.status, response.body) == (503, b"etcd does not answer\n")


async def test_a_registry_that_is_silent_costs_the_agreed_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_ANSWER_S", 0.02)
    async with page(tmp_path) as one:
        one.registry.silent = True
        response = await one.ask("GET", "/drainers")
        assert (response.status, response.body) == (503, b"registry does not answer within 0.02 s\n")
        response = await one.ask("GET", "/status")
        document = json.loads(response.body)
        assert (response.status, document["status"], document["CommitTS"]) == (200, None, 0)
        assert document["ErrMsg"] == "registry does not answer within 0.02 s"
        assert document["pump"]["writer"] == "ok"


async def test_gc_is_triggered_once_at_a_time(tmp_path: Path) -> None:
    retention = Retention()
    async with page(tmp_path, retention=retention) as one:
        for text in (b"trigger gc success\n", b"gc is working\n"):
            response = await one.ask("POST", "/debug/gc/trigger")
            assert (response.status, response.body) == (200, text)
        assert (await one.pump())["retention"] == {"working": True}
        retention.working = False
        assert (await one.ask("POST", "/debug/gc/trigger")).body == b"trigger gc success\n"


async def test_a_pump_without_retention_says_so(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        assert (await one.ask("POST", "/debug/gc/trigger")).status == 503
        assert (await one.pump())["retention"] is None


async def test_stored_records_are_shown_without_rows(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        await put(one.one.storage, rows(10, 45))
        await put(one.one.storage, binlog.commit(10, 11, b"key"))
        await wait_watermark(one.one.storage, 11)
        found = await one.ask("GET", "/debug/binlog/10")
        assert found.status == 200
        assert b"start_ts: 10\n" in found.body
        assert b"nobody may see" not in found.body
        for target, code, text in (
            ("x", 400, b"invalid parameter ts: x\n"),
            ("-1", 400, b"invalid parameter ts: -1\n"),
            (str(1 << 63), 400, b"invalid parameter ts: 9223372036854775808\n"),
            ("\u00b2", 400, "invalid parameter ts: \u00b2\n".encode()),
            ("1" * 5000, 400, b"invalid parameter ts: %s\n" % (b"1" * 5000)),
            ("12", 404, b"fail read binlog by ts: 12: leveldb: not found\n"),
        ):
            response = await one.ask("GET", f"/debug/binlog/{target}")
            assert (response.status, response.body) == (code, text)
        with (tmp_path / "value" / "000000.vlog").open("r+b") as log:
            log.seek(20)
            log.write(b"\xff")
        response = await one.ask("GET", "/debug/binlog/10")
        assert response.status == 500
        assert b"offset 0" in response.body


# -- status --------------------------------------------------------------------------------------


async def test_status_has_the_old_shape_and_the_error_of_who_does_not_answer(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        document = json.loads((await one.ask("GET", "/status")).body)
        assert list(document) == ["status", "CommitTS", "Checkpoint", "ErrMsg", "pump"]
        assert document["status"]["p1"] == {
            "nodeId": "p1",
            "host": "10.0.0.5:8250",
            "state": "online",
            "isAlive": False,
            "score": 0,
            "label": None,
            "maxCommitTS": 7,
            "updateTS": 8,
        }
        assert (document["CommitTS"], one.oracle.draws) == (0, 0), "nothing is drawn for who looks"
        drawn = await one.time.draw()
        assert json.loads((await one.ask("GET", "/status")).body)["CommitTS"] == drawn
        one.registry.away = True
        assert json.loads((await one.ask("GET", "/status")).body)["ErrMsg"] == "etcd does not answer"
        one.registry.away, one.oracle.silent = False, True
        one.one.clock.advance(60)
        await one.time.refresh()
        assert json.loads((await one.ask("GET", "/status")).body)["ErrMsg"] == "no oracle"


async def test_status_shows_what_holds_the_pump_up(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        storage, clock = one.one.storage, one.one.clock
        start_ts = tso.compose(1_700_000_000_000)
        await put_pair(storage, start_ts - 20, start_ts - 10)
        one.one.upstream.answers[start_ts] = [Undecided(4.0)]
        await put(storage, rows(start_ts, 45))
        await put_pair(storage, start_ts + 10, start_ts + 20)
        # What is durable is open once it is sorted, which is another thread's and a later moment's work.
        await until(lambda: storage.places.indexed == storage.places.written)
        for _ in range(12):
            clock.advance(1.0)
            await one.one.round()
            await one.watch.observe()
        own = await one.pump()
        assert own["uptime_s"] == 12.0
        assert own["version"]
        assert own["oldest_open"] == own["oldest"][0]
        assert own["oldest_open"]["start_ts"] == start_ts
        assert own["oldest_open"]["age_s"] == 12.0
        assert own["oldest_open"]["table_id"] == 45
        assert own["oldest_open"]["upstream"] == "it may still commit: asked again in 4 s"
        assert own["resolver"]["asked"] == own["resolver"]["undecided"] == 3
        stages = own["stages"]
        assert stages["written"] == {"records": 5}
        assert stages["indexed"] == {"lag_bytes": 0, "lag_s": 0.0}
        assert stages["sorted"]["lag_s"] == 12.0
        end = (tmp_path / "value" / "000000.vlog").stat().st_size
        (oldest,) = storage.open_prewrites()
        assert stages["sorted"]["lag_bytes"] == end - oldest.place.offset > 0
        assert stages["published"] == {"watermark": start_ts - 10}
        assert own["disk"]["available"] == 500
        assert own["recent_commits"]["bytes"] > 0
        assert own["leaving"] is None
        one.leaving = {"stage": "reading", "waits_for": "drainers: d1"}
        assert (await one.pump())["leaving"] == one.leaving


async def test_status_shows_each_pull_stream(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        storage = one.one.storage
        commit_ts = tso.compose(60_000)
        await put_pair(storage, 10, 11)
        await put_pair(storage, commit_ts - 1, commit_ts)
        await wait_watermark(storage, commit_ts)
        requests: asyncio.Queue[bytes] = asyncio.Queue()

        async def sent() -> AsyncIterator[bytes]:
            while True:
                yield await requests.get()

        first = pump_pb2.PullBatchesReq(cluster_id=CLUSTER, credit_bytes=1, wait_watermark=commit_ts + 5)
        requests.put_nowait(first.SerializeToString())
        batch = one.pullers.pull_batches(sent())
        old = one.pullers.pull_binlogs(pump_pb2.PullBinlogReq(clusterID=CLUSTER).SerializeToString())
        await asyncio.gather(anext(batch), anext(old))
        shown = {stream["protocol"]: stream for stream in (await one.pump())["pullers"]}
        assert shown["entity"]["position"] == 11
        assert shown["entity"]["lag_s"] == 60.0
        assert shown["batch"]["lag_s"] == 60.0
        assert shown["batch"]["waits_for"] == commit_ts + 5
        assert shown["batch"]["credit_bytes"] < 0
        await old.aclose()  # type: ignore[attr-defined]
        await batch.aclose()  # type: ignore[attr-defined]
        assert (await one.pump())["pullers"] == []


async def test_pulls_are_timed_and_one_of_another_cluster_has_failed(tmp_path: Path) -> None:
    def count(label: str) -> float:
        return sample(f'binlog_pump_rpc_duration_seconds_count{{label="{label}",method="PullBinlogs"}}')

    async with page(tmp_path) as one:
        await put_pair(one.one.storage, 10, 11)
        failed, done = count("fail"), count("succ")
        with pytest.raises(Exception, match="cluster ID are mismatch"):
            await anext(one.pullers.pull_binlogs(pump_pb2.PullBinlogReq(clusterID=5).SerializeToString()))
        assert (count("fail"), count("succ")) == (failed + 1, done)
        stream = one.pullers.pull_binlogs(pump_pb2.PullBinlogReq(clusterID=CLUSTER).SerializeToString())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert (count("fail"), count("succ")) == (failed + 1, done + 1)


async def test_series_that_alerts_watch_are_there_before_the_first_error(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        text = (await one.ask("GET", "/metrics")).body.decode()
        for kind in ("write_binlog", "write_binlog_batch", "batch_write_kv", "read_value"):
            assert f'binlog_pump_storage_error_count{{type="{kind}"}}' in text
        for kind in ("turned_on", "turned_off", "catch_up"):
            assert f'binlog_pump_storage_slow_chaser_count{{type="{kind}"}}' in text
        assert "binlog_pump_storage_query_tikv_count " in text
        assert "binlog_drainer_slow_chaser_catchup_time_seconds_count " in text
        assert 'binlog_pump_stage_lag_bytes{stage="indexed"} 0.0' in text


async def test_the_slow_chaser_and_new_files_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("turned_on", "catch_up", "turned_off", "recovery")

    def chaser() -> list[float]:
        return [sample(f'binlog_pump_storage_slow_chaser_count{{type="{kind}"}}') for kind in kinds]

    rotate = 'binlog_pump_storage_write_binlog_duration_time_count{type="rotate"}'
    caught_up = "binlog_drainer_slow_chaser_catchup_time_seconds_count"
    limits = StorageLimits(index_queue_bytes_max=1000, segment_bytes_max=10_000)
    async with page(tmp_path, limits=limits) as one:
        storage = one.one.storage
        await storage.replayed.wait()
        before, rotated, took = chaser(), sample(rotate), sample(caught_up)
        await put_pair(storage, 10, 11)
        await wait_watermark(storage, 11)
        assert chaser() == before
        write, go_on = storage.index.write, threading.Event()

        def stalled(*arguments: Any) -> None:
            assert go_on.wait(PATIENCE_S)
            write(*arguments)

        monkeypatch.setattr(storage.index, "write", stalled)
        for start_ts in range(100, 200, 10):
            await put_pair(storage, start_ts, start_ts + 1, bytes(2000))
        assert storage.is_chasing
        assert chaser() == [before[0] + 1, *before[1:]]
        go_on.set()
        await wait_watermark(storage, 191)
        await until(lambda: not storage.is_chasing)
        assert chaser() == [before[0] + 1, before[1] + 1, before[2] + 1, before[3]]
        assert sample(caught_up) == took + 1
        assert sample(rotate) >= rotated + 1
