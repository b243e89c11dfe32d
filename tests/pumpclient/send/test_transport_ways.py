"""Ways to a real pump: its socket, TLS, many binlogs a message; the cluster id from PD."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import pumpclient
from binlog_playground.cluster.etcd_server import EtcdServer
from pumpclient.pumps.health import PumpState
from pumpclient.pumps.socket_pump import LOCAL_PUMP
from pumpclient.send.batching import LARGE_BYTES
from tests import certificates
from tests.fakes.cluster import FakeCluster
from tests.fakes.pd import FakePd
from tests.pump.support.process import PumpProcess
from tests.pumpclient.support.kills import connected, log_of
from tidb_binlog.errors import ConfigError
from tidb_binlog.upstream.standalone import StandaloneUpstream

pytestmark = pytest.mark.integration


@asynccontextmanager
async def running(pump: PumpProcess) -> AsyncIterator[None]:
    try:
        await pump.start_and_wait()
        yield
    finally:
        pump.end()


async def test_a_pump_behind_a_socket_and_the_cluster_id_from_pd(
    etcd_clean: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    socket = f"unix://{tmp_path}/pump.sock"
    pump = PumpProcess(tmp_path / "pump", etcd_clean, free_port, f"-socket={socket}")
    async with running(pump):
        upstream = await StandaloneUpstream.connect(etcd_clean)
        cluster = FakeCluster()
        cluster.cluster_id = upstream.cluster_id
        pd = await FakePd.start(cluster)
        try:
            async with await pumpclient.connect(pd.endpoints, socket=socket) as client:
                assert client.strategy == "local unix"
                start_ts = await upstream.oracle.timestamp()
                assert await client.write_prewrite(start_ts, b"k", b"v" * LARGE_BYTES)
                assert await client.write_commit(start_ts, start_ts + 1, b"k")
                assert [(view.pump_id, view.state) for view in client.pumps()] == [
                    (LOCAL_PUMP, PumpState.USABLE)
                ]
                with pytest.raises(ConfigError, match="cannot replace local unix"):
                    client.set_strategy("hash")
        finally:
            await pd.close()
            await upstream.close()
    assert log_of(pump.directory) == ({start_ts}, {(start_ts, start_ts + 1)})


async def test_what_a_socket_may_not_be(etcd_clean: str) -> None:
    with pytest.raises(ConfigError, match="bad socket format"):
        await pumpclient.connect(etcd_clean, socket="http://127.0.0.1:8250")
    with pytest.raises(ConfigError, match="needs a socket"):
        await pumpclient.connect(etcd_clean, strategy="local unix")


async def test_tls_to_etcd_and_pumps(tmp_path: Path, free_port: Callable[[], int]) -> None:
    authority = certificates.authority()
    tls = certificates.write(tmp_path / "tls", ca=[authority], node=certificates.leaf("node", ca=authority))
    etcd = EtcdServer.start(tmp_path / "etcd", tls=tls)
    flags = (f"-ssl-ca={tls.ca}", f"-ssl-cert={tls.cert}", f"-ssl-key={tls.key}", "-node-id=p1")
    socket = f"unix://{tmp_path}/pump.sock"
    pump = PumpProcess(tmp_path / "pump", etcd.endpoint, free_port, f"-socket={socket}", *flags)
    try:
        await (await StandaloneUpstream.connect(etcd.endpoint, tls=tls)).close()
        pump.start()
        async with await connected(etcd.endpoint, tls) as client:
            assert await client.write_prewrite(5, b"k", b"v")
            assert await client.write_commit(5, 6, b"k")
            assert await client.write_prewrite(7, b"k", b"v" * LARGE_BYTES)
        async with await pumpclient.connect(etcd.endpoint, socket=socket, tls=tls) as client:
            assert await client.write_prewrite(9, b"k", b"v")  # nothing of TLS on this host's own file
    finally:
        pump.end()
        etcd.stop()
    prewrites, commits = log_of(pump.directory)
    assert (prewrites, commits) == ({5, 7, 9}, {(5, 6)})
