"""A pump and a drainer beside etcd's own troubles: its leader dies, it loses its quorum, forgets its history,
is not there at all. Nobody ends, nobody alive is called dead, all come back; the dead are called so in time.

    python -m tests.integration.test_registry_life 60

keeps the quorum away for so many seconds, instead of somewhat longer than a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pumpclient
from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.operate.control.standby import lease_s
from tests.forked import Forked
from tests.integration.support.etcd_cluster import EtcdCluster, Member
from tests.waiting import PATIENCE_S, until
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.heartbeat import LEASE_MIN_S
from tidb_binlog.cluster.node import ONLINE, NodeStatus
from tidb_binlog.cluster.registry import PUMPS, NodeEntry, status_key
from tidb_binlog.errors import BinlogError
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.port import free_ports

pytestmark = pytest.mark.integration

QUORUM_LOST_S = float(os.environ.get("BINLOG_QUORUM_LOST_S", LEASE_MIN_S + 1.5))
GO_PUMP = NodeStatus("go:8250", "10.0.0.1:8250", ONLINE, 5, 5)


@dataclass
class Nodes:
    """A pump and a drainer as processes, and a look at the registry."""

    cluster: EtcdCluster
    directory: Path
    mariadb: MariaDbServer
    processes: dict[str, Forked] = field(default_factory=dict)

    def start(self, name: str, *arguments: str) -> None:
        given = [
            *(f"--pd-urls={self.cluster.endpoints}", f"--node-id={name}"),
            *(f"--addr=127.0.0.1:{free_ports(1)[0]}", f"--data-dir={self.directory / name}"),
            *(f"--log-file={self.directory / name}.log", *arguments),
        ]
        self.processes[name] = Forked(name, given)

    def start_both(self) -> None:
        self.start("pump", "--start-wait=60s", "--heartbeat-interval=500ms")
        config = self.directory / "drainer.toml"
        config.write_text(
            "initial-commit-ts = 0\n[syncer.to]\n"
            f'host = "127.0.0.1"\nport = {self.mariadb.port}\n'
            f'user = "{self.mariadb.user}"\npassword = "{self.mariadb.password}"\n'
        )
        self.start("drainer", f"--config={config}")

    async def entries(self) -> dict[str, NodeEntry]:
        registry = await connect_registry(self.cluster.endpoints)
        try:
            view = await registry.view()
        finally:
            await registry.close()
        return {**view.pumps, **view.drainers}

    async def until_alive(self, *names: str) -> None:
        """Until each is online with a lease and has beaten again; and no process has ended."""
        first: dict[str, int] = {}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.check_running()
                with contextlib.suppress(BinlogError):
                    found = await self.entries()
                    well = {name for name in names if name in found and found[name].alive}
                    for name in well:
                        first.setdefault(name, found[name].mod_revision)
                    if all(
                        name in well
                        and found[name].status.state == ONLINE
                        and found[name].mod_revision > first[name]
                        for name in names
                    ):
                        return
                await asyncio.sleep(0.1)

    def check_running(self) -> None:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended with {process.poll()}"

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
async def nodes(tmp_path: Path, mariadb: MariaDbServer) -> AsyncIterator[Nodes]:
    nodes = Nodes(EtcdCluster(tmp_path), tmp_path, mariadb)
    try:
        yield nodes
    finally:
        nodes.stop()
        nodes.cluster.stop()
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP DATABASE IF EXISTS tidb_binlog")


async def leader_of(cluster: EtcdCluster) -> Member:
    leader: Member = await until(lambda: asyncio.to_thread(cluster.leader), "a leader")
    return leader


async def beats_of_a_go_pump(nodes: Nodes) -> None:
    """A node without a lease: its entry is all there is."""
    client = await EtcdClient.connect(nodes.cluster.endpoints)
    try:
        await client.put(status_key(PUMPS, GO_PUMP.node_id), GO_PUMP.to_json())
    finally:
        await client.close()


async def never_dead(nodes: Nodes) -> None:
    """Watch as a client and a drainer do: nobody who runs is ever shown without its lease."""
    registry = await connect_registry(nodes.cluster.endpoints)
    try:
        async for view in registry.watch():
            for entry in (*view.pumps.values(), *view.drainers.values()):
                assert entry.alive is not False, f"{entry.status.node_id} is called dead"
                assert entry.alive is None or entry.status.node_id != GO_PUMP.node_id
    finally:
        await registry.close()


async def writes(nodes: Nodes) -> None:
    """The pump takes binlogs from a client that found it in the registry."""
    async with await pumpclient.connect(nodes.cluster.endpoints) as client:
        await client.write_prewrite(7, b"k", b"")
        assert await client.write_rollback(7)


async def test_etcd_in_trouble_costs_nobody_his_place(nodes: Nodes) -> None:
    cluster = nodes.cluster
    # All of etcd is down when they start.
    nodes.start_both()
    await asyncio.sleep(1.0)
    nodes.check_running()
    cluster.start()
    await nodes.until_alive("pump", "drainer")
    await beats_of_a_go_pump(nodes)
    watching = asyncio.create_task(never_dead(nodes))
    try:
        # The leader dies, and comes back as one of the others.
        leader = await leader_of(cluster)
        leader.kill()
        await nodes.until_alive("pump", "drainer")
        cluster.start([leader])
        # The leader stands still: its connections stay open and say nothing. When it wakes up, the drainer's
        # lease has run out by its reckoning.
        frozen = await leader_of(cluster)
        frozen.freeze()
        thaw_s = SystemClock().monotonic_s() + lease_s(0)
        await nodes.until_alive("pump", "drainer")
        await asyncio.sleep(thaw_s - SystemClock().monotonic_s())
        frozen.thaw()
        # What a watch would need to go on is compacted away while two of three are gone.
        client = await EtcdClient.connect(cluster.endpoints)
        revision, _ = await client.range(b"\0")
        await client.close()
        stays = await leader_of(cluster)  # asked once: who has just woken up may think that it leads, too
        gone = [member for member in cluster.members if member is not stays]
        for member in gone:
            member.kill()
        away_s = SystemClock().monotonic_s()
        while SystemClock().monotonic_s() - away_s < QUORUM_LOST_S:
            nodes.check_running()
            await asyncio.sleep(0.2)
        cluster.start(gone)
        await nodes.until_alive("pump", "drainer")
        await compact(cluster, revision)
        await nodes.until_alive("pump", "drainer")
        await writes(nodes)
        assert not watching.done(), watching
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    # And who is killed is called dead in time, while the Go pump is only not known to live.
    nodes.processes["pump"].kill()
    nodes.processes.pop("pump").wait()
    await until(lambda: is_called_dead(nodes, "pump"))
    found = await nodes.entries()
    assert found["drainer"].alive
    assert found[GO_PUMP.node_id].alive is None


async def is_called_dead(nodes: Nodes, name: str) -> bool:
    return not (await nodes.entries())[name].alive


async def compact(cluster: EtcdCluster, revision: int) -> None:
    def post() -> None:
        import urllib.request

        request = urllib.request.Request(
            f"{cluster.members[0].endpoint}/v3/kv/compaction", data=b'{"revision": %d}' % revision
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S).read()

    await asyncio.to_thread(post)


if __name__ == "__main__":
    os.environ["BINLOG_QUORUM_LOST_S"] = sys.argv[1] if len(sys.argv) > 1 else "60"
    sys.exit(pytest.main(["-q", __file__]))
