"""A pump's way in and out as a process: whoever comes late, leaves early, or never answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from pump.membership.registration import Registration
from pump.storage.data_dir import DataDir
from tests.fakes import grpcio_server
from tests.fakes.etcd_keys import lease_of
from tests.pump.support.process import PumpClient, PumpProcess, Start
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog, rpc, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, PUMPS, NodeEntry, alive_key
from tidb_binlog.errors import BinlogError, Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.serving.starting import Starting
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.upstream.upstream_time import UpstreamTime

pytestmark = pytest.mark.integration


@pytest.fixture
def pump(pump: Start) -> Start:
    """Makes pumps of one name, which beat quickly."""
    return partial(pump, "-node-id=p1", "-heartbeat-interval=200ms")


class Nodes:
    """The registry, and nodes in it that are nothing but entries."""

    def __init__(self, registry: EtcdRegistry) -> None:
        self.registry = registry

    async def of(self, kind: str, node_id: str) -> NodeEntry:
        return (await self.registry.view()).of(kind)[node_id]

    async def pump(self, node_id: str = "p1") -> NodeStatus:
        return (await self.of(PUMPS, node_id)).status

    async def write(self, kind: str, status: NodeStatus) -> None:
        entry = (await self.registry.view()).of(kind).get(status.node_id)
        await self.registry.put(kind, status, entry.mod_revision if entry else None)

    async def drainer(self, node_id: str, host: str = "127.0.0.1:1", *, checkpoint: int = 0) -> None:
        """A living one."""
        await self.registry.announce(DRAINERS, node_id, 600)
        await self.write(DRAINERS, NodeStatus(node_id, host, node.ONLINE, checkpoint))

    async def reaches(self, node_id: str, checkpoint: int) -> None:
        status = (await self.of(DRAINERS, node_id)).status
        await self.write(DRAINERS, replace(status, max_commit_ts=checkpoint))


@pytest.fixture
async def nodes(etcd_clean: str) -> AsyncIterator[Nodes]:
    registry = await connect_registry(etcd_clean)
    yield Nodes(registry)
    await registry.close()


@contextlib.asynccontextmanager
async def drainer_at(port: int, calls: list[str]) -> AsyncIterator[int]:
    """What answers a pump that says it is there."""

    async def notify(_: bytes) -> bytes:
        calls.append("notify")
        return b""

    server = await grpcio_server.serve(
        [rpc.Service("binlog.Cistern", unary={"Notify": notify})], "127.0.0.1", port
    )
    try:
        yield server.port
    finally:
        await server.stop(0)


async def put(process: PumpProcess, action: str) -> tuple[int, str]:
    status, body = await asyncio.to_thread(process.http, f"/state/p1/{action}", "PUT")
    return status, json.loads(body)["message"]


async def page_says(process: PumpProcess, path: str, text: str) -> None:
    """Return when the page holds the text."""
    page: tuple[int, str] = (0, "")
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):
                    page = await asyncio.to_thread(process.http, path)
                    if text in page[1]:
                        return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{page}\n{process.log.read_text()}") from None


# -- close -----------------------------------------------------------------------------------------


async def test_close_waits_until_every_drainer_has_everything(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    process = pump()
    await process.start_and_wait()
    await nodes.drainer("d1")
    client = PumpClient(process.address, upstream.cluster_id)
    open_ts = await upstream.transactions.begin(ttl_s=PATIENCE_S)
    await client.write(binlog.prewrite(open_ts, b"k", b"v"))
    assert await put(process, "close") == (200, "apply action close success!")

    published = await nodes.pump()
    assert published.state == node.CLOSING
    assert (await nodes.of(PUMPS, "p1")).alive
    with pytest.raises(rpc.RpcStatus, match="no online: closing"):
        await client.write(binlog.prewrite(open_ts + 1, b"k", b"v"))
    await page_says(process, "/status", "1 open prewrites")
    assert await asyncio.to_thread(process.http, "/readyz") == (503, "closing\n")
    assert (await put(process, "close"))[0] == 409
    assert (await put(process, "pause"))[0] == 409

    # The end of what is open is taken, and everybody is served as before.
    commit_ts = await upstream.transactions.commit(open_ts)
    await client.write(binlog.commit(open_ts, commit_ts, b"k"))
    await page_says(process, "/status", "drainers: d1")
    leaving = (await process.status())["pump"]["leaving"]
    assert leaving["stage"] == "reading"
    assert leaving["target_ts"] > commit_ts
    assert leaving["drainers"][0]["node_id"] == "d1"
    async with asyncio.timeout(PATIENCE_S):
        async for _, payloads, watermark in client.pull_batches(0, wait=leaving["target_ts"]):
            if watermark >= leaving["target_ts"]:
                break
            assert len(payloads) == 1
        async for _, mark_ts, _ in client.pull_binlogs(commit_ts):
            assert mark_ts >= leaving["target_ts"] or mark_ts > commit_ts
            if mark_ts >= leaving["target_ts"]:  # a drainer of the old protocol gets there too
                break
    async with asyncio.timeout(PATIENCE_S):
        while (beat := await nodes.pump()).update_ts == published.update_ts:
            await asyncio.sleep(0.05)
    assert (beat.state, beat.max_commit_ts >= leaving["target_ts"]) == (node.CLOSING, True)
    assert (await nodes.of(PUMPS, "p1")).alive

    await nodes.reaches("d1", leaving["target_ts"] - 1)
    await asyncio.sleep(0.5)
    assert (await nodes.pump()).state == node.CLOSING
    await nodes.reaches("d1", leaving["target_ts"])
    assert await asyncio.to_thread(process.wait) == 0
    assert (await nodes.pump()).state == node.OFFLINE
    assert not (await nodes.of(PUMPS, "p1")).alive
    assert "close waits" in process.log.read_text()
    await client.close()


async def test_close_with_nobody_to_read_is_refused(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    process = pump()
    await process.start_and_wait()
    await nodes.write(DRAINERS, NodeStatus("gone", "127.0.0.1:1", node.OFFLINE))
    code, message = await put(process, "close")
    assert code == 409
    assert "no drainer is registered" in message
    assert "close?force=true" in message
    assert (await nodes.pump()).state == node.ONLINE
    assert process.http("/readyz")[0] == 200
    assert process.stop() == 0


async def test_a_waiting_close_ends_by_force_or_by_a_signal(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    await nodes.write(DRAINERS, NodeStatus("d1", "127.0.0.1:1", node.PAUSED))
    process = pump()
    await process.start_and_wait()
    assert (await put(process, "close"))[0] == 200
    await page_says(process, "/status", "drainers: d1")
    # A signal: the data is kept, and so is the pump's place.
    assert await asyncio.to_thread(process.stop) == 0
    assert (await nodes.pump()).state == node.PAUSED
    await process.start_and_wait()
    assert (await nodes.pump()).state == node.ONLINE
    assert (await put(process, "close"))[0] == 200
    await page_says(process, "/status", "it is paused")
    # What a kill leaves says closing; the next start is online again.
    process.kill()
    assert (await nodes.pump()).state == node.CLOSING
    await process.start_and_wait()
    assert (await nodes.pump()).state == node.ONLINE
    assert (await put(process, "close"))[0] == 200
    assert await put(process, "close?force=true") == (200, "apply action close success!")
    assert await asyncio.to_thread(process.wait) == 0
    assert (await nodes.pump()).state == node.OFFLINE
    assert "close was forced" in process.log.read_text()


# -- start -----------------------------------------------------------------------------------------


async def test_a_pump_that_starts_before_etcd_waits_and_says_so(
    free_port: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    server = EtcdServer.start(tmp_path / "etcd")
    server.kill()
    process = PumpProcess(tmp_path / "pump", server.endpoint, free_port, "-node-id=p1")
    try:
        process.start()
        await page_says(process, "/readyz", "waits: PD or etcd at")
        assert process.http("/healthz") == (200, "ok\n")
        assert process.http("/readyz")[0] == 503
        client = PumpClient(process.address, 1)
        with pytest.raises(Unavailable, match="pump is starting: waits: PD or etcd at"):
            await client.write(binlog.prewrite(10, b"k", b"v"))
        with pytest.raises(Unavailable):
            await anext(client.pull_batches(0))
        server.restart()
        await process.until_up()
        await client.close()
        upstream = await StandaloneUpstream.connect(server.endpoint)
        client = PumpClient(process.address, upstream.cluster_id)
        await client.write(binlog.prewrite(10, b"k", b"v"))
        await client.close()
        await upstream.close()
        log = process.log.read_text()
        assert log.count("the start waits") == 1
        assert "the start continues" in log
        assert await asyncio.to_thread(process.stop) == 0
        told: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(manager.recv(4096).decode())
        assert any(lines.startswith("STATUS=starting: waits: PD or etcd at") for lines in told)
        ready = told.index("READY=1\nSTATUS=online as p1")
        assert told.index("STOPPING=1\nSTATUS=stopping") > ready
        assert "EXTEND_TIMEOUT_USEC=60000000" in told[:ready]
    finally:
        manager.close()
        process.end()
        server.stop()


async def test_a_start_does_not_wait_for_ever(pump: Start, free_port: Callable[[], int]) -> None:
    process = pump("-start-wait=500ms", endpoint=f"http://127.0.0.1:{free_port()}")
    process.start()
    assert await asyncio.to_thread(process.wait) == 3
    text = process.log.read_text()
    assert "the start waits: PD or etcd at" in text
    assert "pump: error: PD or etcd at" in text


async def test_a_new_pump_waits_for_a_living_drainer_that_comes_late(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes, free_port: Callable[[], int]
) -> None:
    port = free_port()
    await nodes.drainer("late", f"127.0.0.1:{port}")
    # Gone without a word: a Go drainer whose heart has not beaten for long.
    old_ts = await upstream.oracle.timestamp() - (130_000 << tso.LOGICAL_BITS)
    await nodes.write(DRAINERS, NodeStatus("go", "127.0.0.1:1", node.ONLINE, 0, old_ts))
    process = pump()
    process.start()
    await page_says(process, "/readyz", "late (")
    client = PumpClient(process.address, upstream.cluster_id)
    with pytest.raises(rpc.RpcStatus, match="no online: offline"):
        await client.write(binlog.prewrite(10, b"k", b"v"))
    calls: list[str] = []
    async with drainer_at(port, calls):
        await process.until_up()
    assert calls == ["notify"]
    await client.write(binlog.prewrite(10, b"k", b"v"))
    await client.close()
    log = process.log.read_text()
    assert "has not beaten for 120 s" in log
    assert process.stop() == 0


async def test_a_start_that_is_broken_off_leaves_the_place_as_it_was(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    process = pump()
    await nodes.drainer("silent")
    process.start()
    await page_says(process, "/readyz", "silent (")
    assert (await nodes.pump()).state == node.PAUSED, "not online before those that live know it"
    assert await asyncio.to_thread(process.stop) == 0
    assert (await nodes.pump()).state == node.OFFLINE, "it was never there"
    # It waits as long as the drainer lives, and not a moment longer.
    process.start()
    await page_says(process, "/readyz", "silent (")
    await nodes.write(DRAINERS, NodeStatus("silent", "127.0.0.1:1", node.OFFLINE))
    await process.until_up()
    assert "drainer need not be notified" in process.log.read_text()
    assert process.stop() == 0
    # Now it has been there: what it stored may be wanted, so it is never offline by accident.
    await nodes.write(DRAINERS, NodeStatus("silent", "127.0.0.1:1", node.ONLINE))
    process.start()
    async with asyncio.timeout(PATIENCE_S):
        while (await nodes.pump()).state != node.ONLINE:
            await asyncio.sleep(0.02)
    assert await asyncio.to_thread(process.stop) == 0
    assert (await nodes.pump()).state == node.PAUSED


async def test_a_new_pump_that_was_killed_before_all_knew_it_tells_them_all_again(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    process = pump()
    await nodes.drainer("silent")
    for _ in range(2):
        process.start()
        await page_says(process, "/readyz", "silent (")
        assert (await nodes.pump()).state == node.PAUSED
        process.kill()
    process.start()
    await page_says(process, "/readyz", "silent (")
    client = PumpClient(process.address, upstream.cluster_id)
    with pytest.raises(rpc.RpcStatus, match="no online: offline"):
        await client.write(binlog.prewrite(10, b"k", b"v"))
    await nodes.write(DRAINERS, NodeStatus("silent", "127.0.0.1:1", node.OFFLINE))
    await process.until_up()
    assert (await nodes.pump()).state == node.ONLINE
    await client.close()
    await nodes.write(DRAINERS, NodeStatus("silent", "127.0.0.1:1", node.ONLINE))
    process.kill()
    await process.start_and_wait()  # known by now
    assert process.stop() == 0


class Replies:
    """A registry whose first answers to writes are lost, though they are done; `away`: so many are not."""

    def __init__(self, registry: EtcdRegistry, lost: int) -> None:
        self._registry, self._lost = registry, lost
        self.away = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    async def put(self, kind: str, status: NodeStatus, expected: int | None) -> int:
        if self.away:
            self.away -= 1
            raise Unavailable("etcd is away")
        revision = await self._registry.put(kind, status, expected)
        if self._lost:
            self._lost -= 1
            raise Unavailable("etcd does not answer")
        return revision


async def test_a_new_pump_whose_first_registration_has_no_answer_is_not_known_for_that(
    upstream: StandaloneUpstream, nodes: Nodes, tmp_path: Path
) -> None:
    calls: list[str] = []
    data_dir = DataDir(str(tmp_path))
    time = UpstreamTime(upstream.oracle, SystemClock())
    replies = Replies(nodes.registry, 2)
    registration = Registration(
        replies,  # type: ignore[arg-type]
        time,
        "p1",
        "127.0.0.1:9",
        watermark=lambda: 99,
        last_commit_ts=lambda: 17,
        heartbeat_s=60.0,
        clock=SystemClock(),
        tls=None,
        confirmation=data_dir,
    )
    async with drainer_at(0, calls) as port:
        await nodes.drainer("d1", f"127.0.0.1:{port}")
        starting = Starting(60.0, SystemClock(), lambda _: None)
        await starting.wait_for(registration.register)
        assert (await nodes.pump()).state == node.PAUSED
        assert (registration.state, data_dir.is_unknown) == (node.OFFLINE, True)
        await registration.leave()  # stopped before all know it
        last = await nodes.pump()
        assert (last.state, last.max_commit_ts) == (node.OFFLINE, 17), "no reader misses what it never had"
        await starting.wait_for(registration.register)
        await registration.go_online(lambda _: None)
    assert calls == ["notify"]
    assert (registration.state, data_dir.is_unknown) == (node.ONLINE, False)
    assert (await nodes.pump()).state == node.ONLINE
    time.heard(later := time.now_ts + (86_400_000 << tso.LOGICAL_BITS))
    assert registration.status().update_ts >= later, "the upstream's clock was set"
    await registration.begin_leaving("close")
    replies.away = 2
    await registration.retire()
    last = await nodes.pump()
    assert (last.state, last.max_commit_ts) == (node.OFFLINE, 17), "a reader goes by what the pump had"
    replies.away = 1
    await registration.leave()
    assert (await nodes.pump()).state == node.OFFLINE, "nobody waits for it"
    data_dir.close()


# -- a directory without a name --------------------------------------------------------------------


async def test_a_go_pump_s_directory_without_its_id_takes_the_place_at_this_address(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    process = pump()
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    start_ts = await upstream.transactions.begin(ttl_s=PATIENCE_S)
    await client.write(binlog.prewrite(start_ts, b"k", b"v"))
    await client.close()
    assert process.stop() == 0
    address = process.address
    (process.directory / ".node").unlink()  # as a Go pump leaves it
    process.arguments = [flag for flag in process.arguments if "node-id" not in flag]
    await nodes.write(PUMPS, NodeStatus("go", address, node.PAUSED, 5, 5))
    process.start()
    assert await asyncio.to_thread(process.wait) == 1
    text = process.log.read_text()
    assert f"pump go and p1 is registered at {address}" in text
    assert "--node-id=go" in text
    await nodes.write(PUMPS, NodeStatus("go", address, node.OFFLINE, 5, 5))
    await process.start_and_wait()
    assert (await nodes.pump()).state == node.ONLINE
    assert sorted((await nodes.registry.view()).pumps) == ["go", "p1"]
    assert "taking the place of the pump that is registered at this address" in process.log.read_text()
    assert process.stop() == 0


async def test_a_go_pump_that_lives_keeps_its_name_and_a_dead_one_does_not(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes
) -> None:
    """Go pumps have no lease: their beats and their port tell."""
    with socket.create_server(("127.0.0.1", 0)) as go_port:
        entry = NodeStatus("p1", f"127.0.0.1:{go_port.getsockname()[1]}", node.ONLINE, 5, 5)

        async def beats() -> None:
            status = entry
            while True:
                status = replace(status, update_ts=status.update_ts + 1)
                await nodes.write(PUMPS, status)
                await asyncio.sleep(0.3)

        beating = asyncio.create_task(beats())
        process = pump()
        process.directory.mkdir()
        (process.directory / ".node").write_text("p1")  # its own: one that begins with nothing is no heir
        process.start()
        assert await asyncio.to_thread(process.wait) == 5
        assert f"a node at {entry.host} beats under this name" in process.log.read_text()
        beating.cancel()
        await asyncio.wait({beating})
        left = await nodes.pump()
        assert (left.host, left.state) == (entry.host, node.ONLINE)
    # Killed: nobody answers at its address, and it is not watched again.
    await process.start_and_wait()
    assert process.log.read_text().count("watching whether it beats") == 1
    assert (await nodes.pump()).host == process.address
    assert process.stop() == 0


async def test_a_pump_that_loses_its_name_stops_and_leaves_the_entry_alone(
    pump: Start, upstream: StandaloneUpstream, nodes: Nodes, etcd_clean: str
) -> None:
    process = pump()
    await process.start_and_wait()
    # As after a pause that was longer than its lease: somebody else has the name.
    client = await EtcdClient.connect(etcd_clean)
    key = alive_key(PUMPS, "p1")
    lease = await lease_of(etcd_clean, key)
    owner = b'{"host":"elsewhere","pid":1,"space":"","started":"","token":"t"}'
    await client.put(key, owner, (await client.grant(600)).id)
    await client.revoke(lease)
    await nodes.write(PUMPS, NodeStatus("p1", "elsewhere:8250", node.ONLINE, 7, 7))
    assert await asyncio.to_thread(process.wait) == 5
    text = process.log.read_text()
    assert "pump: error: pump p1 is already running: process 1 on elsewhere" in text
    assert (await nodes.pump()).host == "elsewhere:8250"
    await client.close()


# -- unix socket -----------------------------------------------------------------------------------


async def test_a_unix_socket_serves_calls_and_is_cleared_away(
    pump: Start, upstream: StandaloneUpstream, tmp_path: Path
) -> None:
    path = tmp_path / "pump.sock"
    process = pump(f"-socket=unix://{path}")
    await process.start_and_wait()
    client = PumpClient(f"unix:{path}", upstream.cluster_id)
    start_ts, commit_ts = [await upstream.oracle.timestamp() for _ in range(2)]
    await client.write(binlog.prewrite(start_ts, b"k", b"v"))
    await client.write(binlog.commit(start_ts, commit_ts))
    async with asyncio.timeout(PATIENCE_S):
        async for headers, _, _ in client.pull_batches(0):
            assert [header.commit_ts for header in headers] == [commit_ts]
            break
    await client.close()
    other = pump(f"-socket={path}", directory="other")
    other.start()
    assert await asyncio.to_thread(other.wait) == 8
    assert f"cannot listen on {path}: another process does" in other.log.read_text()
    process.kill()
    assert path.exists()
    await process.start_and_wait()  # in place of what the dead one left
    assert process.stop() == 0
    assert not path.exists()
    lost = pump(f"-socket={tmp_path / 'none' / 'pump.sock'}", directory="lost")
    lost.start()
    assert await asyncio.to_thread(lost.wait) == 1
    assert "No such file or directory" in lost.log.read_text()


async def test_second_signal_does_not_wait(pump: Start, upstream: StandaloneUpstream) -> None:
    """The first one lets a client finish; the second one does not."""
    process = pump()
    await process.start_and_wait()
    client = PumpClient(process.address, upstream.cluster_id)
    pulling = asyncio.ensure_future(anext(client.pull_batches(1 << 62)))
    await asyncio.sleep(0.2)
    assert process.child is not None
    process.child.send_signal(signal.SIGSTOP)  # so that both are there before it acts
    process.child.send_signal(signal.SIGTERM)
    process.child.send_signal(signal.SIGINT)
    process.child.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(process.wait) == 130
    with pytest.raises(BinlogError):
        await pulling
    await client.close()
