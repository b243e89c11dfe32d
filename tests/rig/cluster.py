"""Cluster of the rig: that of the playground, and what faults and programs need beside it.

Owns    a proxy in front of MariaDB, a small disk, a program that subscribes
Never   changes what a Drainer's file says but for its routes
"""

from __future__ import annotations

import asyncio
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from binlog_playground.cluster.cluster import Cluster, Node, http_request
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Process
from drainer.spark.arguments import size_bytes
from drainer.spark.replay.plan import SMALL_BYTES
from tests.rig import small_disk
from tests.rig.proxy import Proxy
from tests.rig.small_disk import SmallDisk
from tests.spark.support import spark_command
from tidb_binlog.clock import Clock

RELAY_DISK_MIB = 96
RELOAD_S = 30.0
EXECUTORS = "local-cluster[2,1,512]"

Routes = Mapping[tuple[str, str], str]
"""Targets in the same database by (schema, table)."""


def http_put(url: str, timeout_s: float) -> bytes:
    """Body of a PUT without one of its own; `Unavailable` when there is none with status 200."""
    return http_request(urllib.request.Request(url, method="PUT"), timeout_s)


async def start_application(cluster: Cluster) -> MariaDbServer:
    """Start another MariaDB, for a program; what it has committed decides what is published."""
    server = MariaDbServer()
    server.prepare(cluster.directory / "application", cluster.supervisor.log_path("application"))
    assert server.process is not None
    cluster.supervisor.adopt(server.process)
    server.launch()
    await cluster.until(server.process, server.ping)
    connection = server.open()
    try:
        connection.run(b"SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    finally:
        connection.close()
    return server


class RigCluster(Cluster):
    """A cluster that can be broken."""

    def __init__(self, clock: Clock, *, usual_ports: bool = False) -> None:
        super().__init__(clock, usual_ports=usual_ports)
        self.subscriber: Process | None = None
        self.proxy: Proxy | None = None
        """What the Drainer connects to instead of MariaDB, once faults are prepared."""
        self.small_disk: SmallDisk | None = None
        """Below the relay log, where this user may mount one."""
        self.streams = False
        """A stream of binlog-spark is in the Drainer's place."""
        self.has_executors = False
        """Its batches are large enough for Spark."""
        self._left_behind: list[int] = []
        self._drainer_text = ""
        """The Drainer's file without its routes."""

    @property
    def _downstream_port(self) -> int:
        return self.proxy.port if self.proxy else self.mariadb.port

    async def prepare_faults(self) -> None:
        """A proxy between the Drainer and MariaDB, and where possible a small disk under its relay log."""
        self.proxy = Proxy(self.mariadb.host, self.mariadb.port)
        await self.proxy.start()
        if small_disk.possible():
            disk = SmallDisk(self.directory / "relay-disk", RELAY_DISK_MIB)
            disk.make()
            self.small_disk = disk

    async def start_routed_drainer(self, routes: Routes, *, sections: str = "") -> Node:
        """Start the Drainer with routes, and with its relay log on the small disk; `sections`: more."""
        relay = f'[syncer.relay]\nlog-dir = "{self.small_disk.directory}"\n' if self.small_disk else ""
        node = self.prepare_drainer(sections=sections + relay)
        self._drainer_text = self.config_of(node.name).read_text()
        self.write_routes(node.name, routes)
        return await self.begin_drainer(node)

    async def start_stream(self, small: str, routes: Routes) -> Node:
        """Start a stream of binlog-spark in the Drainer's place; its executors have JVMs of their own."""
        node = self.prepare_drainer()
        self._drainer_text = self.config_of(node.name).read_text()
        self.write_routes(node.name, routes)
        arguments = ["stream", f"--config={self.config_of(node.name)}", "--name", node.name, "--small", small]
        arguments += ["--master", EXECUTORS, "--output", "json"]
        settings = {"spark.driver.memory": "1g", "spark.executor.memory": "512m"}
        settings |= spark_command.executors_start_as(os.environ)
        arguments += [f"--conf={key}={text}" for key, text in settings.items()]
        self.streams, self.has_executors = True, size_bytes(small) < SMALL_BYTES
        return await self.begin_drainer(
            replace(node, process=self._python(node.name, "drainer.spark", arguments))
        )

    def jvms(self) -> tuple[list[int], list[int]]:
        """The stream's executors and its driver's JVM, as process ids."""
        assert self.drainer is not None
        pid = self.drainer.process.pid
        return spark_command.executors(pid), spark_command.drivers(pid)

    def leave_behind(self) -> None:
        """The stream is to be killed without its JVM, which is to be gone at the end."""
        assert self.drainer is not None
        self._left_behind.append(self.drainer.process.pid)

    def write_routes(self, name: str, routes: Routes) -> None:
        """Into the file of a Drainer, which takes them with a reload or its next start."""
        rules = (
            "\n[[syncer.table-migrate-rule]]\n"
            f'source = {{ schema = "{schema}", table = "{table}" }}\n'
            f'target = {{ schema = "{schema}", table = "{target}" }}\n'
            for (schema, table), target in routes.items()
        )
        config = self.config_of(name)
        changed = config.with_suffix(".new")
        changed.touch(mode=0o600)
        changed.write_text(self._drainer_text + "".join(rules))
        changed.replace(config)

    async def reload_drainer(self) -> None:
        """Have it read its file. Raises `Unavailable` when it does not answer, or refuses."""
        assert self.drainer is not None
        await asyncio.to_thread(http_put, f"http://{self.drainer.address}/reload", RELOAD_S)

    @property
    def mirror(self) -> Path:
        """The file that the subscribing program keeps."""
        return self.directory / "mirror.sqlite"

    def start_subscriber(self) -> None:
        """Start a program that reads all changes into the mirror."""
        arguments = [self.etcd_endpoint, str(self.mirror)]
        self.subscriber = self._python("subscriber", "tests.rig.subscriber", arguments)
        self.subscriber.start()

    async def close(self) -> None:
        """End our own connections, and what was left behind."""
        for pid in self._left_behind:
            spark_command.kill_session(pid)
        if self.proxy is not None:
            await self.proxy.close()
        await super().close()

    def remove(self, *, keep_logs: bool = False) -> Path | None:
        """Delete the scratch directory, but for the logs if wanted; where these are."""
        if self.small_disk is not None:
            self.small_disk.remove()
        return super().remove(keep_logs=keep_logs)
