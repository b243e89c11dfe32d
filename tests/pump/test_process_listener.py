"""What a pump process serves: one port, either server, mutual TLS, guarded administration."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from tests import certificates
from tests.attacks import frames
from tests.attacks.frames import DATA, END_HEADERS, END_STREAM, HEADERS, frame, message
from tests.common.door.support.peers import Raw
from tests.pump.support.process import PumpProcess, Start
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog, rpc
from tidb_binlog.cluster import node
from tidb_binlog.cluster.node import NodeStatus
from tidb_binlog.cluster.registry import DRAINERS
from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone import StandaloneUpstream
from tidb_binlog.wire import pump_pb2

pytestmark = pytest.mark.integration


@pytest.fixture
def pump(pump: Start) -> Start:
    """Makes pumps of one name."""
    return partial(pump, "-node-id=p1")


@pytest.fixture
def cluster_id(upstream: StandaloneUpstream) -> int:
    return upstream.cluster_id


async def write(client: rpc.Client, cluster_id: int, payload: bytes) -> None:
    request = pump_pb2.WriteBinlogReq(clusterID=cluster_id, payload=payload)
    await client.unary("/binlog.Pump/WriteBinlog", request.SerializeToString(), 10.0)


def ask(
    address: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


async def test_the_same_pages_on_an_address_of_their_own(
    pump: Callable[..., PumpProcess], upstream: StandaloneUpstream, free_port: Callable[[], int]
) -> None:
    cluster_id = upstream.cluster_id
    status = f"127.0.0.1:{free_port()}"
    process = pump(f"-status-addr={status}")
    process.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await asyncio.to_thread(ask, status, "/readyz")) == (200, "ok\n"):
                    break
            except OSError:
                pass
            await asyncio.sleep(0.05)
    client = rpc.Client(process.address)
    # Drawn ones: below a watermark that was drawn before, a puller may have passed over them.
    start_ts, commit_ts = [await upstream.oracle.timestamp() for _ in range(2)]
    await write(client, cluster_id, binlog.prewrite(start_ts, b"k", b"v"))
    await write(client, cluster_id, binlog.commit(start_ts, commit_ts, b"k"))
    with pytest.raises(rpc.RpcStatus, match="cluster ID are mismatch"):
        await write(client, cluster_id + 1, binlog.commit(start_ts, commit_ts, b"k"))
    request = pump_pb2.PullBinlogReq(clusterID=cluster_id)
    async with asyncio.timeout(PATIENCE_S):
        async for data in client.server_stream("/binlog.Pump/PullBinlogs", request.SerializeToString()):
            if pump_pb2.PullBinlogResp.FromString(data).entity.meta.commitTs == commit_ts:
                break
    await client.close()
    assert await asyncio.to_thread(ask, process.address, "/readyz") == (200, "ok\n")
    own = json.loads((await asyncio.to_thread(ask, status, "/status"))[1])["pump"]
    assert own["node_id"] == "p1"
    metrics = (await asyncio.to_thread(ask, status, "/metrics"))[1]
    assert 'binlog_pump_rpc_duration_seconds_count{label="succ",method="WriteBinlog"} 2.0' in metrics
    assert "/binlog.Pump/WriteBinlog" in metrics
    assert process.stop() == 0


async def test_administration_is_guarded_and_debug_is_off(pump: Callable[..., PumpProcess]) -> None:
    process = pump()
    process.arguments.remove("-debug-routes")
    await process.start_and_wait()
    address = process.address
    assert ask(address, "/healthz") == (200, "ok\n")
    code, text = ask(address, "/debug/binlog/11")
    assert (code, "debug-routes = true" in text) == (403, True)
    for headers in ({"Host": "evil.example:8250"}, {"Origin": "http://evil.example"}):
        code, text = ask(address, "/state/p1/pause", "PUT", headers)
        assert code == 403
        assert text
    assert ask(address, "/state/p1/pause", "PUT")[0] == 200
    assert process.wait() == 0


async def test_a_port_with_tls(free_port: Callable[[], int], tmp_path: Path) -> None:
    """All that the port speaks wants a certificate of the authority, with a name that is allowed."""
    authority = certificates.authority()
    tls = certificates.write(tmp_path / "tls", ca=[authority], node=certificates.leaf("node", ca=authority))
    other = certificates.write(tmp_path / "other", ca=[authority], node=certificates.leaf("x", ca=authority))
    server = EtcdServer.start(tmp_path / "etcd", tls=tls)
    flags = [f"-ssl-ca={tls.ca}", f"-ssl-cert={tls.cert}", f"-ssl-key={tls.key}", "-cert-allowed-cn=node"]
    process = PumpProcess(tmp_path / "pump", server.endpoint, free_port, "-node-id=p1", *flags)
    host, _, port = process.address.rpartition(":")

    def page(config: TlsConfig) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(
            host, int(port), timeout=PATIENCE_S, context=config.client_context()
        )
        try:
            connection.request("GET", "/readyz")
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    try:
        process.start()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if (await asyncio.to_thread(page, tls))[0] == 200:
                        break
                except OSError:
                    await asyncio.sleep(0.05)
        upstream = await StandaloneUpstream.connect(server.endpoint, tls=tls)
        client = rpc.Client(process.address, tls=tls)
        await write(client, upstream.cluster_id, binlog.prewrite(10, b"k", b"v"))
        await client.close()
        await upstream.close()
        for refused in (TlsConfig(tls.ca), other):
            with pytest.raises((OSError, ssl.SSLError, http.client.HTTPException)):
                page(refused)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(process.address, "/readyz")
        assert 'certificate of CN \\"x\\" is not in cert-allowed-cn' in process.log.read_text()
        assert process.stop() == 0
    finally:
        process.end()
        server.stop()


async def test_a_drainer_of_the_registry_finds_a_place_among_readers_of_all_addresses(
    pump: Callable[..., PumpProcess], etcd_clean: str, cluster_id: int, tmp_path: Path
) -> None:
    registry = await connect_registry(etcd_clean)
    await registry.put(DRAINERS, NodeStatus("d1", "127.0.0.99:8249", node.PAUSED), None)
    (tmp_path / "pump.toml").write_text("pull-streams = 4\n")
    process = pump(f"-config={tmp_path / 'pump.toml'}")
    await process.start_and_wait()
    port = int(process.address.rpartition(":")[2])
    request = pump_pb2.PullBatchesReq(cluster_id=cluster_id, silence_ms=100).SerializeToString()
    async with AsyncExitStack() as stack:

        async def is_served(source: str) -> bool:
            raw = await stack.enter_async_context(Raw.to(port, source=source))
            headers = frames.request_block("/binlog.PumpBatch/PullBatches")
            await raw.send(frame(HEADERS, END_HEADERS, 1, headers) + frame(DATA, 0, 1, message(request)))
            return not (await raw.until(HEADERS))[1] & END_STREAM

        assert [await is_served(f"127.0.0.{host}") for host in range(10, 15)] == [True] * 4 + [False]
        async with asyncio.timeout(PATIENCE_S):
            while not await is_served("127.0.0.99"):
                await asyncio.sleep(0.1)
    assert "pull stream ended for one of another address" in process.log.read_text(), "and waited for none"
    await registry.close()
    assert process.stop() == 0
