"""A Go pump under a PD of its own, for the benchmarks that measure it in turns with ours.

Its cluster is PD's, so calls to it carry PD's cluster id, and timestamps that PD's clock has not passed: a
prewrite that looks old to a Go pump is asked of TiKV, and there is none here.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from binlog_playground.cluster.etcd_server import EtcdServer
from binlog_playground.cluster.supervisor import Process, Supervisor
from tests.benchmarks.door.pumps import POLL_S, READY_S, Pump, until_ready
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import Unavailable
from tidb_binlog.net.port import LOOPBACK, free_ports
from tidb_binlog.upstream.tidb.pd.oracle import PdOracle
from tidb_binlog.upstream.tidb.pd.pd import PdClient

PEER: Final = "Go"
PD_PROGRAM: Final = "pd-server"
_ROOM: Final = '[storage]\nstop-write-at-available-space = "1 GiB"\n'


def pd_of(program: Path) -> Path:
    """The PD that is started with the Go pump `program`: it lies beside it."""
    return program.absolute().with_name(PD_PROGRAM)


@asynccontextmanager
async def peer_pump(program: Path) -> AsyncIterator[tuple[Pump, int]]:
    """A Go pump that takes writes, and PD's cluster id; nothing is left of either."""
    with tempfile.TemporaryDirectory(prefix="binlog-bench-") as name:
        directory = Path(name)
        supervisor = Supervisor(directory)
        try:
            client_port, peer_port, pump_port = free_ports(3)
            endpoint = f"http://{LOOPBACK}:{client_port}"
            pd = supervisor.add(
                PD_PROGRAM,
                [
                    str(pd_of(program)),
                    "--name=pd",
                    f"--data-dir={directory / 'pd'}",
                    f"--client-urls={endpoint}",
                    f"--peer-urls=http://{LOOPBACK}:{peer_port}",
                ],
                _environ(),
            )
            pd.start()
            cluster_id, now_ts = await _until_elected(pd, endpoint)
            pump = _pump(supervisor, program, endpoint, f"{LOOPBACK}:{pump_port}")
            pump.start()
            await until_ready(pump, f"{LOOPBACK}:{pump_port}")
            yield Pump(pump, f"{LOOPBACK}:{pump_port}", tls=False, first_ts=now_ts), cluster_id
        finally:
            supervisor.kill_all()


def _pump(supervisor: Supervisor, program: Path, endpoint: str, address: str) -> Process:
    config = supervisor.directory / "pump.toml"
    config.write_text(_ROOM)
    command = [
        str(program.absolute()),
        f"--addr={address}",
        f"--advertise-addr={address}",
        f"--pd-urls={endpoint}",
        f"--data-dir={supervisor.directory / 'pump'}",
        "--node-id=peer",
        f"--config={config}",
    ]
    return supervisor.add("peer", command, _environ())


def _environ() -> dict[str, str]:
    """Variables named ETCD_* would speak to the etcd within PD, proxies stand before loopback for Go."""
    names = {name for name in os.environ if name.startswith("ETCD_") or name.lower().endswith("_proxy")}
    return {name: value for name, value in EtcdServer.environ().items() if name not in names}


async def _until_elected(pd: Process, endpoint: str) -> tuple[int, int]:
    """Cluster id and a timestamp. Raises `Unavailable`, or `ProcessDied` if it ends."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + READY_S
    while True:
        if pd.died:
            raise pd.death()
        try:
            client = await PdClient.connect(endpoint)
            break
        except Unavailable:
            if clock.monotonic_s() > end_s:
                raise
            await asyncio.sleep(POLL_S)
    oracle = PdOracle(client)
    try:
        return client.cluster_id, await oracle.timestamp()
    finally:
        await oracle.close()
        await client.close()
