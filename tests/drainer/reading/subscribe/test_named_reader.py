"""A named reader in a real registry: its entry, its name, its port, and what pumps do with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from drainer.reading.subscribe.named_reader import (
    NamedReader,
    NameTaken,
    ReaderAddress,
    ReaderStopped,
    open_reader,
)
from drainer.reading.subscribe.reader_position import NotGiven
from pump.membership.notify_drainers import Notices
from tests import certificates
from tests.fakes.etcd_keys import lease_of
from tests.waiting import PATIENCE_S
from tidb_binlog import rpc, tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import (
    DRAINERS,
    ClusterView,
    NodeEntry,
    Registry,
    alive_key,
    status_key,
)
from tidb_binlog.errors import ConfigError, PortTaken, Unavailable
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.net.port import free_ports
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.wire import drainer_pb2

pytestmark = pytest.mark.integration

NOW_TS = tso.from_wall_s(1_700_000_000.0)
ROOT = Path(__file__).parents[4]


async def nothing() -> None:
    """A collector that knows every pump."""


class Life:
    """One process of a program: connection, reader, and the task that keeps it there."""

    def __init__(self, registry: EtcdRegistry, reader: NamedReader) -> None:
        self.registry = registry
        self.reader = reader
        self.running = asyncio.create_task(reader.run())

    async def end(self) -> None:
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError, NameTaken, ReaderStopped):
            await self.running
        await self.reader.close()
        await self.registry.close()


Begin = Callable[..., Awaitable[Life]]


@pytest.fixture
async def begin(etcd_clean: str) -> AsyncIterator[Begin]:
    lives: list[Life] = []

    async def make(
        name: str = "index",
        start_ts: int = 0,
        *,
        address: ReaderAddress | None = None,
        tls: TlsConfig | None = None,
    ) -> Life:
        registry = await connect_registry(etcd_clean)
        try:
            reader = await open_reader(
                name,
                registry,
                etcd_clean,
                now_ts=lambda: NOW_TS,
                clock=SystemClock(),
                doing=lambda: "reads shop.*",
                address=address,
                tls=tls,
            )
        except BaseException:
            await registry.close()
            raise
        if start_ts:
            reader.begin(start_ts, nothing)
        lives.append(Life(registry, reader))
        return lives[-1]

    yield make
    for life in lives:
        await life.end()


async def entry(life: Life, name: str = "index") -> NodeEntry:
    return (await life.registry.view()).drainers[name]


async def stored(life: Life, ts: int) -> NodeEntry:
    """The entry once it has this position."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await entry(life)).status.max_commit_ts != ts:
            await asyncio.sleep(0.01)
    return found


async def test_the_entry_is_a_drainers_and_go_reads_it(begin: Begin, etcd_clean: str) -> None:
    life = await begin(start_ts=100)
    found = await stored(life, 100)
    assert found.alive is True
    client = await EtcdClient.connect(etcd_clean)
    raw = await client.get(status_key(DRAINERS, "index"))
    await client.close()
    assert raw is not None
    document = json.loads(raw.value)
    host = document.pop("host")
    assert host.startswith("127.0.0.1:"), "the address that etcd's server sees"
    assert document == {
        "nodeId": "index",
        "state": "online",
        "isAlive": False,
        "score": 0,
        "label": {"labels": {"kind": "reader"}},  # Go: Label struct{Labels map[string]string}
        "maxCommitTS": 100,
        "updateTS": NOW_TS,
    }
    assert found.status.is_reader


async def test_done_moves_the_position_within_a_second_and_at_the_close(begin: Begin) -> None:
    life = await begin(start_ts=100)
    reader = life.reader
    reader.given(110)
    reader.given(120)
    reader.passed(150)
    reader.done(110)
    await stored(life, 110)
    with pytest.raises(NotGiven):
        reader.done(130)
    reader.done(120)
    await stored(life, 150)
    reader.passed(160)  # nothing is written in the tables that it reads
    await stored(life, 160)
    reader.given(170)
    reader.done(170)
    await life.reader.close()
    found = await entry(life)
    assert (found.status.max_commit_ts, found.status.state, found.alive) == (170, node.PAUSED, False)
    assert found.status.is_reader
    again = await begin()
    assert again.reader.stored_ts == 170


async def test_one_process_a_name(begin: Begin) -> None:
    first = await begin(start_ts=100)
    with pytest.raises(NameTaken, match=r"index is another process's: .* already running") as refused:
        await begin()
    assert (refused.value.exit_code, "give this reader another name" in str(refused.value)) == (5, True)
    found = await entry(first)
    assert (found.status.state, found.alive) == (node.ONLINE, True), "who was refused changed nothing"
    assert (await begin("other")).reader.stored_ts == 0


async def test_a_drainers_name_is_not_taken(begin: Begin, etcd_clean: str) -> None:
    registry = await connect_registry(etcd_clean)
    left = NodeStatus("d1", "h:8249", node.PAUSED, 77, 77)
    await registry.put(DRAINERS, left, None)
    with pytest.raises(NameTaken, match="d1 is a Drainer's node id"):
        await begin("d1")
    assert (await registry.view()).drainers["d1"].status == left
    await registry.close()


async def test_names_and_addresses_that_cannot_be(begin: Begin) -> None:
    with pytest.raises(ConfigError, match="name 'a/b' is not possible"):
        await begin("a/b")
    with pytest.raises(ConfigError, match="'nonsense' is not host:port"):
        await begin(address=ReaderAddress("nonsense"))
    life = await begin(address=ReaderAddress(f"127.0.0.1:{free_ports(1)[0]}"))
    taken = (await entry(life)).status.host
    with pytest.raises(PortTaken, match="the port is taken"):
        await begin("other", address=ReaderAddress(taken))
    shown = await begin("behind", address=ReaderAddress("0.0.0.0:0", "reader.example:7000"))
    assert (await entry(shown, "behind")).status.host == "reader.example:7000"


class Oracle:
    async def timestamp(self) -> tso.Ts:
        return NOW_TS


async def test_pumps_notify_it_and_wait_until_the_stream_knows_them(begin: Begin) -> None:
    life = await begin()
    knows = asyncio.Event()
    view = await life.registry.view()
    said: list[str] = []
    notices = Notices(life.registry, Oracle(), None, said.append)
    joining = asyncio.create_task(notices.until_confirmed())

    async def notify() -> None:
        knows.set()

    await asyncio.sleep(0)
    assert not joining.done(), "the stream has not begun"
    life.reader.begin(100, notify)
    async with asyncio.timeout(PATIENCE_S):
        await joining
    assert knows.is_set()
    assert said[-1] == ""
    assert list(view.drainers) == ["index"]


async def test_a_pump_that_joins_follows_it_to_another_address(
    begin: Begin, free_port: Callable[[], int]
) -> None:
    """Whoever was killed and is back has a lease, and another port: the first one answers nobody any more."""
    life = await begin()
    failing = asyncio.Event()
    gone = NodeStatus("index", f"127.0.0.1:{free_port()}", node.ONLINE, 0, NOW_TS)

    class Moving:
        async def view(self) -> ClusterView:
            view = await life.registry.view()
            if not failing.is_set():
                view.drainers["index"] = replace(view.drainers["index"], status=gone)
            return view

    def said(line: str) -> None:
        if gone.host in line:
            failing.set()

    async def notify() -> None:
        """The stream knows it."""

    life.reader.begin(100, notify)
    async with asyncio.timeout(PATIENCE_S):
        await Notices(cast("Registry", Moving()), Oracle(), None, said).until_confirmed()
    assert failing.is_set()


async def test_over_tls_only_the_cluster_gets_in(begin: Begin, tmp_path: Path) -> None:
    ca = certificates.authority()
    tls = certificates.write(tmp_path / "node", ca=[ca], node=certificates.leaf("node", ca=ca))
    registry_life = await begin("plain")  # etcd itself is in the clear here
    reader = await open_reader(
        "safe", registry_life.registry, "http://127.0.0.1:1", now_ts=lambda: 1, clock=SystemClock(), tls=tls
    )
    reader.begin(5, nothing)
    host = (await entry(registry_life, "safe")).status.host
    request = drainer_pb2.NotifyReq().SerializeToString()
    allowed, stranger = rpc.Client(host, tls=tls), rpc.Client(host)
    await allowed.unary("/binlog.Cistern/Notify", request, 5.0)
    with pytest.raises(Unavailable):
        await stranger.unary("/binlog.Cistern/Notify", request, 5.0)
    await allowed.close()
    await stranger.close()
    await reader.close()


async def take_name(client: EtcdClient, endpoint: str) -> None:
    key = alive_key(DRAINERS, "index")
    lease = await lease_of(endpoint, key)
    await client.put(key, b'{"host": "elsewhere", "pid": 1, "token": "x"}')
    await client.revoke(lease)


async def test_a_reader_whose_name_went_to_another_ends(begin: Begin, etcd_clean: str) -> None:
    life = await begin(start_ts=100)
    client = await EtcdClient.connect(etcd_clean)
    await take_name(client, etcd_clean)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(NameTaken):
            await life.running
    await said_to_whatever_is_called(life)
    await client.close()


async def said_to_whatever_is_called(life: Life) -> None:
    """Nothing is stored: nobody may take it for stored."""
    life.reader.given(200)
    for _ in range(2):
        with pytest.raises(NameTaken, match="index is another process's"):
            life.reader.done(200)
        with pytest.raises(NameTaken):
            await life.reader.store()


async def test_who_slept_through_the_loss_of_its_name_stores_nothing(begin: Begin, etcd_clean: str) -> None:
    """The program asks for the store before any beat could tell."""
    life = await begin(start_ts=100)
    life.running.cancel()
    await asyncio.wait({life.running})
    client = await EtcdClient.connect(etcd_clean)
    await take_name(client, etcd_clean)
    with pytest.raises(NameTaken):
        await life.reader.store()
    await said_to_whatever_is_called(life)
    found = await entry(life)
    assert found.status.max_commit_ts < 200
    await client.close()


DIES = """
import asyncio, os, signal, sys
from tidb_binlog.clock import SystemClock
from tidb_binlog.etcd.registry import connect_registry
from drainer.reading.subscribe.named_reader import open_reader

async def main():
    registry = await connect_registry(sys.argv[1])
    reader = await open_reader("index", registry, sys.argv[1], now_ts=lambda: 1, clock=SystemClock())
    async def notify(): pass
    reader.begin(reader.stored_ts or 100, notify)
    running = asyncio.create_task(reader.run())
    reader.given(200)
    reader.done(200)
    await reader.store()
    reader.given(210)
    print("stored", flush=True)
    await running

asyncio.run(main())
"""


async def test_killed_it_goes_on_after_the_last_done(begin: Begin, etcd_clean: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DIES, etcd_clean),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"stored\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    life = await begin()
    assert life.reader.stored_ts == 200
