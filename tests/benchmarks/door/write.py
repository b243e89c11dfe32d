"""`door.write.*`: durable writes to a pump with the door, beside the same pump with grpcio's server.

The client is `h2_load` on one connection, so that what differs is the server. Pumps of their own, without a
cluster around them: etcd and nothing else.
"""

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

from common import tso
from common.clock import SystemClock
from common.errors import Unavailable
from common.net.port import LOOPBACK, free_ports
from common.net.tls import TlsConfig
from common.upstream.standalone import StandaloneUpstream
from deploy.playground.cluster.cluster import PACKAGE_ROOT, http_get
from deploy.playground.cluster.etcd_server import EtcdServer
from deploy.playground.cluster.supervisor import Process, Supervisor
from tests.benchmarks.door.children import TLS_FILES, Round, load_round, median_round
from tests.benchmarks.door.server import DOOR, GRPCIO
from tests.benchmarks.measure import peak_rss_mib
from tests.benchmarks.report import Result
from tests.benchmarks.settings import Settings

RPC_SERVER_OPTION: Final = "--rpc-server"
PAYLOAD_BYTES: Final = 300
ROUNDS: Final = 3
FIRST_TS: Final = tso.compose(1_767_225_600_000)
TS_A_ROUND: Final = 1 << 30
READY_S: Final = 30.0
POLL_S: Final = 0.02
PEER_US: Final = {1: 172.6, 8: 62.0, 64: 33.7, 256: 26.3}
"""CPU of the Go pump for a write, by calls in flight: same load, same machine, another day."""


@dataclass(frozen=True, slots=True)
class Pump:
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

    async def start(self, kind: str, name: str = "") -> Pump:
        """`name` tells it from another one of its kind."""
        name = name or kind
        address, status_address = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        arguments = [
            f"--addr={address}",
            f"--advertise-addr={address}",
            f"--pd-urls={self._etcd.endpoint}",
            f"--data-dir={self.directory / name}",
            f"--node-id={name}",
            f"{RPC_SERVER_OPTION}={kind}",
        ]
        if kind == DOOR:
            status_address = address  # one port for everything
        else:
            arguments.append(f"--status-addr={status_address}")
        if self._tls:
            arguments += [
                f"--ssl-{name}={path}" for name, path in zip(("ca", "cert", "key"), TLS_FILES, strict=True)
            ]
        environ = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
        process = self.supervisor.add(f"pump-{name}", [sys.executable, "-m", "pump", *arguments], environ)
        process.start()
        await self._until_ready(process, status_address)
        return Pump(process, address, self._tls)

    async def _until_ready(self, process: Process, status_address: str) -> None:
        # With TLS the status page asks for a certificate; that it listens says enough.
        host, _, port = status_address.rpartition(":")
        clock = SystemClock()
        end_s = clock.monotonic_s() + READY_S
        while True:
            if process.died:
                raise process.death()
            try:
                if self._tls:
                    _, writer = await asyncio.open_connection(host, int(port))
                    writer.close()
                else:
                    await asyncio.to_thread(http_get, f"http://{status_address}/status")
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


async def measure(name: str, in_flight: int, settings: Settings) -> Result:
    """Door and grpcio in turns, each on its own pump."""
    seconds = settings.seconds / ROUNDS / 2
    rounds: dict[str, list[Round]] = {DOOR: [], GRPCIO: []}
    async with cluster(tls=False) as (pumps, cluster_id):
        started = {kind: await pumps.start(kind) for kind in rounds}
        for number in range(ROUNDS):
            for kind, pump in started.items():
                rounds[kind].append(
                    await asyncio.to_thread(pump.round, cluster_id, number, in_flight, seconds)
                )
        rss = peak_rss_mib(started[DOOR].process.pid)
    ours, other = median_round(rounds[DOOR]), median_round(rounds[GRPCIO])
    return Result(
        name=name,
        value=ours.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=ours.cpu_us,
        p50_ms=ours.p50_ms,
        p99_ms=ours.p99_ms,
        peak_rss_mib=rss,
        compared_to=f"CPU with grpcio's server, {other.cpu_us:.0f} us",
        ratio=ours.cpu_us / other.cpu_us,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, {in_flight} in flight, median of {ROUNDS}"
            f" rounds in turns; grpcio {other.requests_per_s:,.0f}/s, p50 {other.p50_ms:.2g} ms, p99"
            f" {other.p99_ms:.2g} ms; client {ours.client_cpu_us:.1f} us of CPU a call; the Go pump on"
            f" this load {PEER_US[in_flight]} us"
        ),
    )


async def measure_tls(name: str, in_flight: int, settings: Settings) -> Result:
    """The door with TLS and without, in turns."""
    seconds = settings.seconds / ROUNDS / 2
    clear: list[Round] = []
    secret: list[Round] = []
    async with cluster(tls=False) as (plain, plain_id), cluster(tls=True) as (pumps, cluster_id):
        plain_pump, pump = await plain.start(DOOR), await pumps.start(DOOR)
        for number in range(ROUNDS):
            clear.append(await asyncio.to_thread(plain_pump.round, plain_id, number, in_flight, seconds))
            secret.append(await asyncio.to_thread(pump.round, cluster_id, number, in_flight, seconds))
        rss = peak_rss_mib(pump.process.pid)
    ours, other = median_round(secret), median_round(clear)
    return Result(
        name=name,
        value=ours.requests_per_s,
        unit="requests/s",
        cpu_us_per_unit=ours.cpu_us,
        p50_ms=ours.p50_ms,
        p99_ms=ours.p99_ms,
        peak_rss_mib=rss,
        compared_to=f"CPU in clear text, {other.cpu_us:.1f} us",
        ratio=ours.cpu_us / other.cpu_us,
        note=(
            f"{PAYLOAD_BYTES}-byte prewrites and their commits, {in_flight} in flight, median of {ROUNDS}"
            f" rounds in turns; clear {other.requests_per_s:,.0f}/s; P-256 certificates on both sides"
        ),
    )


def write_64(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.64", 64, settings))


def write_256(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.256", 256, settings))


def write_8(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.8", 8, settings))


def write_1(settings: Settings) -> Result:
    return asyncio.run(measure("door.write.unary.1", 1, settings))


def tls_64(settings: Settings) -> Result:
    return asyncio.run(measure_tls("door.write.tls.64", 64, settings))
