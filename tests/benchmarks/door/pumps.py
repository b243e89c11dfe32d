"""Pumps for benchmarks, with an etcd and no more around them: the client makes its own timestamps."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import http_get
from binlog_playground.cluster.etcd_server import EtcdServer
from binlog_playground.cluster.supervisor import Process, Supervisor
from tests.benchmarks.door.children import TLS_FILES, Round, load_round
from tests.rig import ROOT
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone import StandaloneUpstream

PAYLOAD_BYTES: Final = 300
FIRST_TS: Final = tso.compose(1_767_225_600_000)
TS_A_ROUND: Final = 1 << 24
"""A pump takes no timestamp that is more than some seconds (a second: 2^28) above the clock, which stands."""
READY_S: Final = 30.0
POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Pump:
    """A running one."""

    process: Process
    address: str
    tls: bool

    def round(self, cluster_id: int, number: int, in_flight: int, seconds: float) -> Round:
        """`number` has to be another one each time: timestamps must not come again."""
        first_ts = FIRST_TS + number * TS_A_ROUND
        tls = ("--tls", *TLS_FILES) if self.tls else ()
        options = ("--in-flight", in_flight, "--seconds", seconds, *tls)
        return load_round(
            self.process.pid, self.address, *options, "--write", cluster_id, first_ts, PAYLOAD_BYTES
        )


class Pumps:
    """Pumps of one cluster, all with TLS or all without: it is also what they speak to etcd."""

    def __init__(self, directory: Path, etcd: EtcdServer, tls: bool) -> None:
        self.directory = directory
        self._etcd = etcd
        self._tls = tls
        self.supervisor = Supervisor(directory)

    @property
    def endpoint(self) -> str:
        """Of their etcd."""
        return self._etcd.endpoint

    async def start(self, name: str = "pump") -> Pump:
        address = f"{LOOPBACK}:{free_ports(1)[0]}"
        arguments = [
            f"--addr={address}",
            f"--advertise-addr={address}",
            f"--pd-urls={self._etcd.endpoint}",
            f"--data-dir={self.directory / name}",
            f"--node-id={name}",
        ]
        if self._tls:
            arguments += [
                f"--ssl-{name}={path}" for name, path in zip(("ca", "cert", "key"), TLS_FILES, strict=True)
            ]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = self.supervisor.add(f"pump-{name}", [sys.executable, "-m", "pump", *arguments], environ)
        process.start()
        await until_ready(process, address, tls=self._tls)
        return Pump(process, address, self._tls)


async def until_ready(process: Process, address: str, *, tls: bool = False) -> None:
    """Until the pump listens. Raises `Unavailable`, or `ProcessDied` if it ends."""
    # With TLS the status page asks for a certificate; that it listens says enough.
    host, _, port = address.rpartition(":")
    clock = SystemClock()
    end_s = clock.monotonic_s() + READY_S
    while True:
        if process.died:
            raise process.death()
        try:
            if tls:
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
            else:
                await asyncio.to_thread(http_get, f"http://{address}/status")
            return
        except (OSError, Unavailable):
            if clock.monotonic_s() > end_s:
                raise
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def cluster(tls: bool) -> AsyncIterator[tuple[Pumps, int]]:
    """An etcd for pumps, and the cluster id; nothing is left of it."""
    ca, cert, key = TLS_FILES
    files = TlsConfig(ca, cert, key) if tls else None
    with tempfile.TemporaryDirectory(prefix="binlog-bench-") as name:
        etcd = await asyncio.to_thread(EtcdServer.start, Path(name) / "etcd", tls=files)
        pumps = Pumps(Path(name), etcd, tls)
        try:
            upstream = await StandaloneUpstream.connect(etcd.endpoint, tls=files)
            try:
                # The client makes its own timestamps, so the cluster's clock must stand below them.
                await upstream.oracle.pin(FIRST_TS - 1)
                yield pumps, upstream.cluster_id
            finally:
                await upstream.close()
        finally:
            pumps.supervisor.kill_all()
            etcd.stop()
