from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from binlog_playground.cluster.etcd_server import EtcdServer
from tidb_binlog.errors import PortTaken, Unavailable
from tidb_binlog.etcd.client import EtcdClient

pytestmark = pytest.mark.integration


async def test_data_survive_stop_and_kill_on_the_same_port(tmp_path: Path) -> None:
    lines: list[str] = []
    server = EtcdServer.start(tmp_path / "e", log=lines.append)
    try:
        endpoint = server.endpoint
        assert lines == [f"etcd is up at {endpoint}"]
        assert stat.S_IMODE((tmp_path / "e").stat().st_mode) == 0o700
        client = await EtcdClient.connect(endpoint)
        await client.put(b"/k", b"v")
        for end in (server.stop, server.kill):
            pid = server.pid
            end()
            assert server.pid == 0
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            with pytest.raises(Unavailable):
                await client.get(b"/k")
            server.restart()
            server.restart()
            assert server.endpoint == endpoint
            fresh = await EtcdClient.connect(endpoint)
            found = await fresh.get(b"/k")
            assert found is not None
            assert found.value == b"v"
            await fresh.close()
        await client.close()
    finally:
        server.stop()
        server.stop()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken, match="the port is taken"):
            EtcdServer.start(tmp_path, port=other.getsockname()[1])


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("this is not a directory")
    with pytest.raises(Unavailable, match=r"etcd ended with code .* \(see .*etcd\.log\)"):
        EtcdServer.start(tmp_path)
