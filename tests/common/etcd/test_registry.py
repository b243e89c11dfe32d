from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from tests import certificates
from tests.waiting import PATIENCE_S
from tidb_binlog.cluster.node import OFFLINE, ONLINE, PAUSED, NodeStatus
from tidb_binlog.cluster.registry import (
    DRAINERS,
    PUMPS,
    ClusterView,
    EntryChanged,
    alive_key,
    check_node_id,
    status_key,
)
from tidb_binlog.errors import ConfigError, Conflict, Rejected, Unavailable
from tidb_binlog.etcd import client as etcd_client
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry, connect_registry
from tidb_binlog.net.tls import TlsConfig

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.integration


def status(node_id: str, state: str = ONLINE, max_commit_ts: int = 7) -> NodeStatus:
    return NodeStatus(node_id, "10.0.0.5:8250", state, max_commit_ts, 412518831338292471)


@pytest.fixture
async def registry(etcd_clean: str) -> AsyncIterator[EtcdRegistry]:
    registry = await connect_registry(etcd_clean)
    yield registry
    await registry.close()


@pytest.fixture
async def client(etcd_clean: str) -> AsyncIterator[EtcdClient]:
    client = await EtcdClient.connect(etcd_clean)
    yield client
    await client.close()


async def test_keys_and_json_are_those_of_the_go_nodes(registry: EtcdRegistry, client: EtcdClient) -> None:
    await registry.put(PUMPS, status("host-a:8250", max_commit_ts=412518831548007863), None)
    await registry.put(DRAINERS, status("host-b:8249"), 0)
    found = await client.get(b"/tidb-binlog/v1/pumps/host-a:8250")
    assert found is not None
    assert found.value == (
        b'{"nodeId":"host-a:8250","host":"10.0.0.5:8250","state":"online","isAlive":false,"score":0,'
        b'"label":null,"maxCommitTS":412518831548007863,"updateTS":412518831338292471}'
    )
    assert await client.get(b"/tidb-binlog/v1/drainers/host-b:8249") is not None


async def test_a_go_listing_finds_only_statuses(registry: EtcdRegistry, client: EtcdClient) -> None:
    """An old node lists `<root>/pumps/` and fails on every value that is not a status."""
    await registry.announce(PUMPS, "p", 10)
    await registry.put(PUMPS, status("p"), None)
    for kind in (PUMPS, DRAINERS):
        _, pairs = await client.range(f"/tidb-binlog/v1/{kind}/".encode())
        for pair in pairs:
            assert NodeStatus.from_json(pair.value).node_id == pair.key.decode().rsplit("/", 1)[1]


async def test_put_is_compare_and_set(registry: EtcdRegistry) -> None:
    with pytest.raises(Conflict, match="does not exist"):
        await registry.put(PUMPS, status("p"), 5)
    created = await registry.put(PUMPS, status("p"), None)
    with pytest.raises(Conflict, match=f"has revision {created}, not 0"):
        await registry.put(PUMPS, status("p", PAUSED), None)
    changed = await registry.put(PUMPS, status("p", PAUSED), created)
    assert changed > created
    with pytest.raises(Conflict):
        await registry.put(PUMPS, status("p", OFFLINE), created)
    entry = (await registry.view()).pumps["p"]
    assert (entry.status, entry.mod_revision) == (status("p", PAUSED), changed)


async def test_of_concurrent_writers_one_wins(registry: EtcdRegistry, etcd_clean: str) -> None:
    others = [await connect_registry(etcd_clean) for _ in range(4)]
    results = await asyncio.gather(
        *(other.put(PUMPS, status("p", max_commit_ts=number), 0) for number, other in enumerate(others)),
        return_exceptions=True,
    )
    assert [type(result) for result in results if isinstance(result, BaseException)] == [EntryChanged] * 3
    for other in others:
        await other.close()


@pytest.mark.parametrize("node_id", ["", "a/b", "/", " a", "a\n", "a\x00b"])
async def test_impossible_node_ids_are_refused(registry: EtcdRegistry, node_id: str) -> None:
    with pytest.raises(ConfigError, match="choose another --node-id"):
        await registry.put(PUMPS, status(node_id), None)
    with pytest.raises(ConfigError):
        await registry.announce(PUMPS, node_id, 10)
    check_node_id("host-a:8250")


async def test_foreign_entries_are_skipped_with_a_warning(
    registry: EtcdRegistry, client: EtcdClient, caplog: pytest.LogCaptureFixture
) -> None:
    await registry.put(PUMPS, status("good"), None)
    bad = {
        b"garbage": b"not json",
        b"bytes": b"\xff\xfe",
        b"deep": b"[" * 100_000,
        b"empty": b"{}",
        b"types": b'{"nodeId":"types","maxCommitTS":{}}',
        b"list": b"[]",
        b"infinite": b'{"nodeId":"infinite","maxCommitTS":1e999}',
        b"huge": b'{"nodeId":"huge","maxCommitTS":1%s}' % (b"0" * 400),
        b"surrogate": b'{"nodeId":"surrogate","host":"\\ud800:1"}',
        b"a/b": status("b").to_json(),
        b"liar": status("other").to_json(),
        b"\xff\xff": status("x").to_json(),
    }
    for name, value in bad.items():
        await client.put(status_key(PUMPS, "") + name, value)
    view = await registry.view()
    assert set(view.pumps) == {"good"}
    await registry.view()
    warnings = [record for record in caplog.records if record.message == "registry entry ignored"]
    assert len(warnings) == len(bad)  # once each, not once a look


async def test_alive_follows_the_lease(registry: EtcdRegistry, client: EtcdClient) -> None:
    announcement = await registry.announce(PUMPS, "ours", 10)
    await registry.put(PUMPS, status("ours"), None)
    await client.put(status_key(PUMPS, "go"), status("go").to_json())
    view = await registry.view()
    assert (view.pumps["ours"].alive, view.pumps["go"].alive) == (True, None)
    await client.txn([], [etcd_client.delete(alive_key(PUMPS, "ours"))])  # as when the lease runs out
    assert (await registry.view()).pumps["ours"].alive is False
    await announcement.withdraw()
    await announcement.withdraw()


async def test_a_go_node_that_takes_over_is_not_called_dead(
    registry: EtcdRegistry, client: EtcdClient
) -> None:
    announcement = await registry.announce(PUMPS, "p", 10)
    await registry.put(PUMPS, status("p"), None)
    await announcement.withdraw()
    assert (await registry.view()).pumps["p"].alive is False
    await client.put(status_key(PUMPS, "p"), status("p").to_json())
    assert (await registry.view()).pumps["p"].alive is None


async def test_an_operators_correction_keeps_what_is_known(registry: EtcdRegistry, etcd_clean: str) -> None:
    announcement = await registry.announce(PUMPS, "p", 10)
    revision = await registry.put(PUMPS, status("p"), None)
    other = await connect_registry(etcd_clean)
    revision = await other.put(PUMPS, status("p", PAUSED), revision)
    assert (await other.view()).pumps["p"].alive is True
    await announcement.withdraw()
    await other.put(PUMPS, status("p", OFFLINE), revision)
    assert (await other.view()).pumps["p"].alive is False
    await other.close()


async def test_a_living_process_keeps_its_id(registry: EtcdRegistry, etcd_clean: str) -> None:
    await registry.announce(PUMPS, "p", 10)
    other = await connect_registry(etcd_clean)
    with pytest.raises(Conflict) as caught:
        await other.announce(PUMPS, "p", 10)
    assert f"pump p is already running: process {os.getpid()} on " in str(caught.value)
    assert "--node-id" in caught.value.hint
    await other.announce(DRAINERS, "p", 10)
    await registry.close()
    await other.announce(PUMPS, "p", 10)
    await other.close()


HOLDER = """
    import asyncio, sys
    from tidb_binlog.etcd.registry import connect_registry

    async def main():
        registry = await connect_registry(sys.argv[1])
        await registry.announce("pumps", "p", 600)
        print("announced", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


async def test_the_id_of_a_killed_process_is_free_at_once(registry: EtcdRegistry, etcd_clean: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), etcd_clean],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "announced\n"
        with pytest.raises(Conflict, match=f"process {process.pid} on "):
            await registry.announce(PUMPS, "p", 10)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    async with asyncio.timeout(PATIENCE_S):
        await registry.announce(PUMPS, "p", 10)


async def test_a_holder_on_another_machine_is_waited_for(registry: EtcdRegistry, client: EtcdClient) -> None:
    lease = await client.grant(2)
    await client.put(
        alive_key(PUMPS, "p"),
        b'{"host":"far","pid":1,"space":"other","started":"1","token":"t"}',
        lease.id,
    )
    await asyncio.wait_for(registry.announce(PUMPS, "p", 10), PATIENCE_S)  # it never extends its lease
    await client.put(
        alive_key(PUMPS, "q"), b'{"host":"far","pid":1,"space":"other","started":"1","token":"t"}'
    )
    with pytest.raises(Conflict, match="process 1 on far"):
        await registry.announce(PUMPS, "q", 1)


async def test_a_lost_lease_is_announced_anew(registry: EtcdRegistry, client: EtcdClient) -> None:
    announcement = await registry.announce(PUMPS, "p", 10)
    await registry.put(PUMPS, status("p"), None)
    await announcement.keep_alive()
    await client.revoke(announcement.lease)  # type: ignore[attr-defined]
    assert (await registry.view()).pumps["p"].alive is False
    await announcement.keep_alive()
    assert (await registry.view()).pumps["p"].alive is True
    await client.revoke(announcement.lease)  # type: ignore[attr-defined]
    other = await connect_registry(client.addresses)
    await other.announce(PUMPS, "p", 10)
    with pytest.raises(Conflict, match="already running"):
        await announcement.keep_alive()
    await other.close()


async def test_a_lease_from_before_a_change_of_leader_is_out_of_use(tmp_path: Path) -> None:
    """An old leader that wakes up ends, through the new one, the leases that it knew."""
    server = EtcdServer.start(tmp_path)
    registry = await connect_registry(server.endpoint)
    watching = await connect_registry(server.endpoint)
    client = await EtcdClient.connect(server.endpoint)
    try:
        announcement = await registry.announce(PUMPS, "p", 60)
        first = await registry.put(PUMPS, status("p"), None)
        known = announcement.lease  # type: ignore[attr-defined]
        await announcement.keep_alive()
        assert announcement.lease == known  # type: ignore[attr-defined]
        server.kill()
        server.restart()  # elects itself anew
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(Unavailable):
                    await announcement.keep_alive()
                    break
        async with aclosing(watching.watch()) as watch:
            await anext(watch)
            await client.revoke(known)
            assert (await registry.view()).pumps["p"].alive is True
            await announcement.keep_alive()
            await registry.put(PUMPS, status("p", PAUSED), first)
            view = await _until(watch, lambda view: view.pumps["p"].mod_revision > first)
            assert view.pumps["p"].alive is True
        await announcement.withdraw()
        assert (await registry.view()).pumps["p"].alive is False
    finally:
        for user in (registry, watching, client):
            await user.close()
        server.stop()


async def test_the_lease_of_a_move_that_failed_ends_with_the_announcement(
    registry: EtcdRegistry, client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may have been put all the same: the answer was lost."""
    announcement = await registry.announce(PUMPS, "p", 60)
    await registry.put(PUMPS, status("p"), None)
    announcement._term -= 1  # type: ignore[attr-defined]
    txn = registry._client.txn

    async def unheard(*arguments: Any, **options: Any) -> None:
        await txn(*arguments, **options)
        raise Unavailable("the answer is lost")

    monkeypatch.setattr(registry._client, "txn", unheard)
    with pytest.raises(Unavailable):
        await announcement.keep_alive()
    monkeypatch.undo()
    assert (await registry.view()).pumps["p"].alive is True
    await announcement.withdraw()
    assert (await registry.view()).pumps["p"].alive is False


async def _until(watch: AsyncIterator[ClusterView], wanted: Callable[[ClusterView], bool]) -> ClusterView:
    async with asyncio.timeout(PATIENCE_S):
        async for view in watch:
            if wanted(view):
                return view
    raise AssertionError("the watch ended")


async def test_watch_gives_the_view_and_every_change(registry: EtcdRegistry, client: EtcdClient) -> None:
    revision = await registry.put(PUMPS, status("p"), None)
    async with aclosing(registry.watch()) as watch:
        assert set((await anext(watch)).pumps) == {"p"}
        await registry.put(PUMPS, status("p", PAUSED), revision)
        view = await anext(watch)
        assert (view.pumps["p"].status.state, view.revision > revision) == (PAUSED, True)
        await registry.put(DRAINERS, status("d"), None)
        assert set((await anext(watch)).drainers) == {"d"}
        await client.put(b"/tidb-binlog/v1/elsewhere", b"x")  # changes no node: nobody is woken
        await client.txn([], [etcd_client.delete(status_key(PUMPS, "p"))])
        assert set((await anext(watch)).pumps) == set()


async def test_watch_sees_a_lease_end(registry: EtcdRegistry, etcd_clean: str) -> None:
    async with aclosing(registry.watch()) as watch:
        await anext(watch)
        other = await connect_registry(etcd_clean)
        await other.announce(PUMPS, "p", 10)
        await other.put(PUMPS, status("p"), None)
        await _until(watch, lambda view: "p" in view.pumps and view.pumps["p"].alive is True)
        await other.close()
        await _until(watch, lambda view: view.pumps["p"].alive is False)


async def test_watch_survives_an_outage_of_etcd(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = EtcdServer.start(tmp_path)
    registry = await connect_registry(server.endpoint)
    try:
        revision = await registry.put(PUMPS, status("p"), None)
        async with aclosing(registry.watch()) as watch:
            await anext(watch)
            server.kill()
            waiting = asyncio.create_task(_until(watch, lambda view: "q" in view.pumps))
            await asyncio.sleep(0.5)
            server.restart()
            fresh = await connect_registry(server.endpoint)
            await fresh.put(PUMPS, status("p", PAUSED), revision)
            await fresh.put(PUMPS, status("q"), None)
            view = await waiting
            assert view.pumps["p"].status.state == PAUSED
            await fresh.close()
        broken = [record for record in caplog.records if "registry watch broken" in record.message]
        assert len(broken) == 1
    finally:
        await registry.close()
        server.stop()


async def test_a_watch_that_is_open_while_its_registry_closes_warns_of_nothing(
    etcd_clean: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = await connect_registry(etcd_clean)
    async with aclosing(registry.watch()) as watch:
        await anext(watch)
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await registry.close()
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        waiting.cancel()
        await asyncio.wait({waiting})
    assert "registry watch broken" not in caplog.text


async def test_a_watch_of_a_server_that_stands_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open and says nothing: an answer to pings is missing."""
    monkeypatch.setattr(etcd_client, "_PING_S", 1.0)
    monkeypatch.setattr("tidb_binlog.rpc.client._QUICK_PONG_S", 0.5)
    server = EtcdServer.start(tmp_path)
    client = await EtcdClient.connect(server.endpoint)
    try:
        async with aclosing(client.watch(b"/", 1)) as watch:
            assert (await anext(watch))[1] == []
            os.kill(server.pid, signal.SIGSTOP)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(Unavailable):
                    await anext(watch)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        await client.close()
        server.stop()


async def test_a_watch_from_before_a_compaction_says_so(client: EtcdClient) -> None:
    first = await client.put(b"/k", b"1")
    last = await client.put(b"/k", b"2")
    compact = etcd_client.messages.LeaseRevokeRequest(
        ID=last
    ).SerializeToString()  # a CompactionRequest on the wire
    await client._endpoints[0].unary("/etcdserverpb.KV/Compact", compact, PATIENCE_S)
    with pytest.raises(etcd_client.Compacted):
        async for _ in client.watch(b"/k", first):
            pass


async def test_over_mutual_tls(tmp_path: Path) -> None:
    directory = ROOT / "tests" / "golden" / "tls"
    tls = TlsConfig(str(directory / "ca.pem"), str(directory / "node.pem"), str(directory / "node.key"))
    server = EtcdServer.start(tmp_path, tls=tls)
    try:
        registry = await connect_registry(server.endpoint, tls=tls)
        await registry.put(PUMPS, status("p"), None)
        assert set((await registry.view()).pumps) == {"p"}
        await registry.close()
        for refused in (None, TlsConfig(tls.ca)):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await connect_registry(server.endpoint, tls=refused, timeout_s=2.0)
    finally:
        server.stop()


async def test_certificates_are_read_again_when_the_connection_is_lost(tmp_path: Path) -> None:
    """Both sides change to certificates of another authority; nobody restarts but etcd."""
    sans = ["127.0.0.1", "localhost"]
    first, second = certificates.authority("first"), certificates.authority("second")
    files = tmp_path / "tls"
    files.mkdir()
    tls = certificates.write(files, ca=[first], node=certificates.leaf("node", ca=first, sans=sans))
    server = EtcdServer.start(tmp_path / "etcd", tls=tls)
    try:
        registry = await connect_registry(server.endpoint, tls=tls, timeout_s=2.0)
        await registry.put(PUMPS, status("p"), None)
        server.stop()
        certificates.write(files, ca=[second], node=certificates.leaf("node", ca=second, sans=sans))
        server.restart()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    assert set((await registry.view()).pumps) == {"p"}
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
        await registry.close()
    finally:
        server.stop()


async def test_etcd_not_there_is_said(free_port: Callable[[], int]) -> None:
    port = free_port()
    with pytest.raises(Unavailable) as caught:
        await connect_registry(f"http://127.0.0.1:{port}", timeout_s=3600)  # at once, not in the end
    assert str(caught.value) == (
        f"etcd at 127.0.0.1:{port} cannot be reached (start etcd, or correct its address)"
    )
    with pytest.raises(Unavailable, match="https needs ssl-ca, ssl-cert and ssl-key"):
        await connect_registry(f"https://127.0.0.1:{port}")


async def test_a_silent_endpoint_is_unavailable_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=address):
            await connect_registry(address, timeout_s=0.5)


async def test_what_is_not_etcd_is_named() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(Rejected, match=f"{port} is not etcd: .*address of etcd"):
            await connect_registry(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


async def test_the_next_endpoint_is_used(etcd_clean: str, free_port: Callable[[], int]) -> None:
    registry = await connect_registry(f"http://127.0.0.1:{free_port()}, {etcd_clean}")
    await registry.put(PUMPS, status("p"), None)
    assert set((await registry.view()).pumps) == {"p"}
    await registry.close()


async def test_closed_registry_is_unavailable(registry: EtcdRegistry) -> None:
    await registry.close()
    await registry.close()
    with pytest.raises(Unavailable, match="is closed"):
        await registry.view()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "address of PD or etcd is empty"),
        ("ftp://h:1", "scheme must be http or https"),
        ("http://h:1/", "must not contain a path"),
        ("http://h", 'does not have the form "host:port"'),
        ("h:x", 'does not have the form "host:port"'),
    ],
)
def test_malformed_endpoints(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        etcd_client.parse_endpoints(text)


def test_endpoint_forms() -> None:
    assert etcd_client.parse_endpoints("http://a:1, b:2,https://[::1]:3,") == ["a:1", "b:2", "[::1]:3"]


async def test_the_clocks_of_etcds_hosts(etcd: str, free_port: Callable[[], int]) -> None:
    client = await EtcdClient.connect(f"{etcd},127.0.0.1:{free_port()}")
    before_s = time.time()
    there_s, absent = await client.clocks(5.0)
    assert there_s is not None
    assert int(before_s) <= there_s <= time.time()
    assert absent is None
    await client.close()
