"""Cluster: a private one of etcd, Pumps, a Drainer and MariaDB as processes in one scratch directory.

Owns    the directory's layout, the ports, the configuration files
Stops   `stop` ends every process; `remove` deletes the directory
Never   listens on anything but loopback, or uses a port or file of another cluster
Tests   tests/deploy/binlog_playground/test_run.py
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from binlog_playground.cluster.etcd_server import EtcdServer
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Process, Supervisor
from tidb_binlog.clock import Clock
from tidb_binlog.errors import Unavailable
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.net.port import LOOPBACK, free_port, free_ports
from tidb_binlog.upstream.standalone import StandaloneUpstream

READY_DEADLINE_S = 120.0
POLL_S = 0.02
STOP_DEADLINE_S = 15.0
# Those of the documentation's commands; MariaDB beside the one that a host may have.
ETCD_PORT = 2379
MARIADB_PORT = 3307
DRAINER_PORT = 8249
PUMP_PORT = 8250
KEPT_DAYS = 3650  # what was recorded long ago is not old
PUMP_FLOOR = "256MiB"  # a machine with little room left can try it, too

# No proxy of the environment may come between us and loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def http_get(url: str, timeout_s: float = 10.0) -> bytes:
    """Body of a GET; `Unavailable` when there is none with status 200."""
    return http_request(urllib.request.Request(url), timeout_s)


def http_request(request: urllib.request.Request, timeout_s: float) -> bytes:
    """Body of the answer to any request; `Unavailable` when there is none with status 200."""
    try:
        with _opener.open(request, timeout=timeout_s) as reply:
            body: bytes = reply.read()
            return body
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unavailable(f"{request.full_url} does not answer: {error}") from None


@dataclass(frozen=True, slots=True)
class Node:
    """A Pump or a Drainer: its process, gRPC address and status page."""

    name: str
    process: Process
    address: str
    status_url: str

    async def status(self) -> dict[str, Any]:
        """Its /status document; `Unavailable` while it does not answer."""
        body = await asyncio.to_thread(http_get, self.status_url)
        try:
            document: dict[str, Any] = json.loads(body)
        except ValueError:
            raise Unavailable(f"{self.status_url} does not answer with JSON") from None
        return document


class Cluster:
    """Everything that runs. Start the parts in order: `start_base`, `start_pumps`, `start_drainer`.

    `usual_ports`: those of the documentation, where they are free; else ports that nobody else looks for.
    """

    def __init__(self, clock: Clock, *, usual_ports: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="binlog-playground-"))
        self.supervisor = Supervisor(self.directory)  # of all processes, those of the servers too
        self.mariadb = MariaDbServer()  # the Drainer's downstream
        self.pumps: list[Node] = []
        self._pumps_begun = 0  # numbers, and so names, are never used twice
        self.drainer: Node | None = None  # the last one that was begun
        self.etcd: Process | None = None
        self.etcd_endpoint = ""
        self.upstream: StandaloneUpstream | None = None  # our own connection, until `close`
        self._clock = clock
        self._usual_ports = usual_ports

    @property
    def nodes(self) -> list[Node]:
        """List the Pumps, and the Drainer if there is one."""
        return [*self.pumps, *([self.drainer] if self.drainer is not None else [])]

    def _port(self, usual: int) -> int:
        return free_port(usual) if self._usual_ports else free_ports(1)[0]

    async def start_base(self, cluster_id: int | None) -> StandaloneUpstream:
        """Start etcd and MariaDB, found the cluster."""
        etcd_port, peer_port = self._port(ETCD_PORT), *free_ports(1)
        server = EtcdServer(self.directory / "etcd", etcd_port, peer_port)
        server.data_dir.mkdir(mode=0o700)
        self.etcd_endpoint = server.endpoint
        self.etcd = self.supervisor.add("etcd", server.command(), server.environ())
        self.etcd.start()
        log = self.supervisor.log_path("mariadb")
        self.mariadb.port = self._port(MARIADB_PORT)
        self.mariadb.prepare(self.directory / "mariadb", log)
        assert self.mariadb.process is not None
        self.supervisor.adopt(self.mariadb.process)
        await self.until_etcd_answers()
        self.upstream = await StandaloneUpstream.connect(server.endpoint, cluster_id=cluster_id)
        self.mariadb.launch()
        await self.until(self.mariadb.process, self.mariadb.ping)
        return self.upstream

    async def until_etcd_answers(self) -> None:
        """After it was away."""
        assert self.etcd is not None
        await self.until(self.etcd, lambda: http_get(f"{self.etcd_endpoint}/health"))

    async def start_pumps(self, count: int) -> None:
        """Start Pumps, in addition to those there are, and wait until each is registered and answers."""
        begun = [self._prepare_pump(self._pumps_begun + number) for number in range(1, count + 1)]
        self._pumps_begun += count
        for node in begun:
            node.process.start()
            self.pumps.append(node)
        for node in begun:
            await self.until_ready(node)

    def _prepare_pump(self, number: int) -> Node:
        name = f"pump-{number}"
        address = f"{LOOPBACK}:{self._port(PUMP_PORT + number - 1)}"
        arguments = [
            f"--addr={address}",
            f"--advertise-addr={address}",
            f"--pd-urls={self.etcd_endpoint}",
            f"--data-dir={self.directory / name}",
            f"--node-id={name}",
            f"--gc={KEPT_DAYS}",
            f"--stop-write-at-available-space={PUMP_FLOOR}",
        ]
        return Node(name, self._python(name, "pump", arguments), address, f"http://{address}/status")

    async def start_drainer(self, name: str = "drainer", syncer: str = "") -> Node:
        """Start the Drainer with the private MariaDB as its downstream. `syncer`: more lines of [syncer]."""
        return await self.begin_drainer(self.prepare_drainer(name, syncer))

    def prepare_drainer(self, name: str = "drainer", syncer: str = "", *, sections: str = "") -> Node:
        """The same Drainer with its configuration, not started yet. `sections`: more of them."""
        server = self.mariadb
        return self._prepare_drainer(
            name,
            f'[syncer]\ndb-type = "mysql"\nworker-count = 2\ndisjoint-shards = true\n{syncer}\n'
            f'[syncer.to]\nhost = "{server.host}"\nport = {self._downstream_port}\n'
            f'user = "{server.drainer_user}"\npassword = "{server.password}"\n{sections}',
        )

    @property
    def _downstream_port(self) -> int:
        return self.mariadb.port

    async def start_archiver(self, name: str, syncer: str = "", *, db_type: str = "file") -> Node:
        """Start a Drainer that archives into its data directory, or writes to another kind of downstream.
        `syncer`: more lines from [syncer] on."""
        return await self.begin_drainer(
            self._prepare_drainer(name, f'[syncer]\ndb-type = "{db_type}"\n{syncer}\n')
        )

    def _prepare_drainer(self, name: str, sections: str) -> Node:
        address = f"{LOOPBACK}:{self._port(DRAINER_PORT)}"
        config = self.config_of(name)
        config.touch(mode=0o600)
        config.write_text(
            "# Configuration of the playground's Drainer.\n"
            f'node-id = "{name}"\n'
            f'addr = "{address}"\n'
            f'pd-urls = "{self.etcd_endpoint}"\n'
            f'data-dir = "{self.directory / name}"\n'
            f"initial-commit-ts = 0\n\n{sections}"
        )
        arguments = [f"--config={config}", f"--node-id={name}"]
        return Node(name, self._python(name, "drainer", arguments), address, f"http://{address}/status")

    async def begin_drainer(self, node: Node) -> Node:
        """Start one that is prepared, and wait until it answers."""
        self.drainer = node
        node.process.start()
        await self.until_ready(node)
        return node

    def config_of(self, name: str) -> Path:
        """The file of a Drainer."""
        return self.directory / f"{name}.toml"

    async def until_ready(self, node: Node) -> None:
        """Wait until its status page answers."""
        await self.until(node.process, lambda: http_get(node.status_url))

    async def until(self, process: Process, probe: Callable[[], object]) -> None:
        """Wait until a process answers: until `probe`, in a thread, raises no `Unavailable`."""
        end_s = self._clock.monotonic_s() + READY_DEADLINE_S
        while True:
            if process.died:
                raise process.death()
            try:
                await asyncio.to_thread(probe)
            except Unavailable as error:
                if self._clock.monotonic_s() > end_s:
                    said = process.tail(2) or error
                    raise Unavailable(
                        f"{process.name} is not ready after {READY_DEADLINE_S:g} s: {said}",
                        hint=f"see {process.log}",
                    ) from None
                await asyncio.sleep(POLL_S)
            else:
                return

    def command(self, name: str, module: str, arguments: list[str]) -> Process:
        """A program of the project that may end by itself, so nobody supervises it; not started yet."""
        # -P: not the modules of the directory that this was started in.
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        argv = [sys.executable, "-P", "-m", module, *arguments]
        return Process(name, argv, self.supervisor.log_path(name), environ)

    def _python(self, name: str, module: str, arguments: list[str]) -> Process:
        return self.supervisor.adopt(self.command(name, module, arguments))

    async def close(self) -> None:
        """End our own connections."""
        if self.upstream is not None:
            await self.upstream.close()
            self.upstream = None

    def stop(self, *, at_once: bool = False) -> None:
        """End all processes: Drainer and Pumps cleanly, or everything with kill -9."""
        if not at_once:
            for node in reversed(self.nodes):
                node.process.stop(STOP_DEADLINE_S)
        self.supervisor.kill_all()  # the rest holds nothing that outlives the scratch directory

    def remove(self, *, keep_logs: bool = False) -> Path | None:
        """Delete the scratch directory, but for the logs if wanted; where these are."""
        logs = self.directory / "logs"
        if keep_logs and logs.is_dir():
            for entry in self.directory.iterdir():
                if entry != logs:
                    shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
            return logs
        shutil.rmtree(self.directory, ignore_errors=True)
        return None
