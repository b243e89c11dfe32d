"""Pumps and the etcd they need, without anything else around them; nothing is left of it.

A pump may be given a data directory that is there already, flags, and another module to run as (with
its first arguments).
"""

from __future__ import annotations

import asyncio
import http.client
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import Node
from binlog_playground.cluster.etcd_server import EtcdServer
from binlog_playground.cluster.supervisor import Supervisor
from tests.benchmarks.pump.prepared import CLUSTER_ID, FIRST_TS
from tests.rig import ROOT
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports
from tidb_binlog.upstream.standalone import StandaloneUpstream

READY_S: Final = 120.0
POLL_S: Final = 0.005


class PumpNodes:
    """Nodes of one cluster, whose id is `prepared.CLUSTER_ID`. Started from the main thread only."""

    def __init__(self, directory: Path, etcd: EtcdServer, upstream: StandaloneUpstream) -> None:
        self.directory = directory
        self.upstream = upstream
        self.supervisor = Supervisor(directory)
        self.etcd_endpoint = etcd.endpoint

    def add(self, name: str, *flags: str, module: Sequence[str] = ("pump",)) -> Node:
        """One that is not started yet; its data directory has its name."""
        (port,) = free_ports(1)
        address = f"{LOOPBACK}:{port}"
        arguments = [
            f"--addr={address}",
            f"--advertise-addr={address}",
            f"--pd-urls={self.etcd_endpoint}",
            f"--data-dir={self.directory / name}",
            f"--node-id={name}",
            *flags,
        ]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = self.supervisor.add(name, [sys.executable, "-m", *module, *arguments], environ)
        return Node(name, process, address, f"http://{address}/status")

    def clock_mover(self) -> Callable[[], None]:
        """For a thread: lets the clock that stands go above what clients have made, so that it is served."""
        loop, later = asyncio.get_running_loop(), FIRST_TS + (1 << 29)

        def move() -> None:
            asyncio.run_coroutine_threadsafe(self.upstream.oracle.pin(later), loop).result()

        return move

    def start(self, name: str, *flags: str, module: Sequence[str] = ("pump",)) -> Node:
        """One that takes writes."""
        node = self.add(name, *flags, module=module)
        node.process.start()
        until_ready(node)
        return node


def until_ready(node: Node, path: str = "/readyz") -> None:
    """Until it answers with 200. Raises `ProcessDied` or `Unavailable` when it never does."""
    end_s = time.monotonic() + READY_S
    while not is_ready(node, path):
        if node.process.died:
            raise node.process.death()
        if time.monotonic() > end_s:
            raise Unavailable(
                f"{node.name} is not ready after {READY_S:g} s: {node.process.tail(1)}",
                hint=f"see {node.process.log}",
            )
        time.sleep(POLL_S)


def is_ready(node: Node, path: str) -> bool:
    connection = http.client.HTTPConnection(node.address, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@asynccontextmanager
async def pump_nodes(*, clock_stands: bool = True) -> AsyncIterator[PumpNodes]:
    """The etcd of a cluster; its clock stands below all timestamps that clients make themselves."""
    with tempfile.TemporaryDirectory(prefix="binlog-bench-") as name:
        etcd = await asyncio.to_thread(EtcdServer.start, Path(name) / "etcd")
        try:
            upstream = await StandaloneUpstream.connect(etcd.endpoint, cluster_id=CLUSTER_ID)
            nodes = PumpNodes(Path(name), etcd, upstream)
            try:
                if clock_stands:
                    await upstream.oracle.pin(FIRST_TS - 1)
                yield nodes
            finally:
                nodes.supervisor.kill_all()
                await upstream.close()
        finally:
            etcd.stop()
