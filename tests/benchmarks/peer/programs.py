"""Go's programs as nodes of a standalone cluster: what is measured of ours is measured of theirs alike.

They ask PD and TiKV for things: `stand_in` answers, and they find our nodes in etcd, as we find theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from binlog_playground.cluster.cluster import KEPT_DAYS, Node
from binlog_playground.cluster.mariadb import MariaDbServer
from binlog_playground.cluster.supervisor import Supervisor
from drainer.mysql.connection import Target
from tests.benchmarks.door.children import Child
from tests.benchmarks.settings import Settings
from tidb_binlog.net.port import LOOPBACK, free_ports

PUMP: Final = "pump"
DRAINER: Final = "drainer"
REPARO: Final = "reparo"
BINLOGCTL: Final = "binlogctl"
PROGRAMS: Final = (PUMP, DRAINER, REPARO, BINLOGCTL)
READY_PATH: Final = "/status"
"""Answers when a node has opened what it stores."""
_ROOM: Final = '[storage]\nstop-write-at-available-space = "1 GiB"\n'


def program(directory: Path | None, name: str) -> Path | None:
    """None where it is not to be measured."""
    path = None if directory is None else directory.absolute() / name
    return path if path is not None and path.is_file() and os.access(path, os.X_OK) else None


def missing(directory: Path) -> list[str]:
    return [name for name in PROGRAMS if program(directory, name) is None]


class Programs:
    """Of one cluster. `endpoint`: what they take for PD; `directory`: where their data directories are."""

    def __init__(self, programs: Path, supervisor: Supervisor, endpoint: str) -> None:
        self._programs = programs
        self._supervisor = supervisor
        self.directory = supervisor.directory
        self.endpoint = endpoint

    def pump(self, name: str = "peer-pump") -> Node:
        """One that is not started yet; its data directory has its name."""
        return self._node(PUMP, name, _ROOM, f"--gc={KEPT_DAYS}")

    def drainer(self, syncer: str, name: str = "peer-drainer") -> Node:
        """The same with a configuration from [syncer] on, from the beginning of everything."""
        return self._node(DRAINER, name, syncer, "--initial-commit-ts=0")

    def mysql_drainer(self, server: MariaDbServer | Target, syncer: str = "") -> Node:
        """The same with a server as its downstream, and more lines of [syncer]."""
        return self.drainer(
            f'[syncer]\ndb-type = "mysql"\n{syncer}\n[syncer.to]\nhost = "{server.host}"\n'
            f'port = {server.port}\nuser = "{server.user}"\npassword = "{server.password}"\n'
        )

    def binlogctl(self, *arguments: str) -> tuple[str, ...]:
        """A command."""
        return (str(self._programs / BINLOGCTL), "-pd-urls", self.endpoint, *arguments)

    def _node(self, program: str, name: str, config: str, flag: str) -> Node:
        (port,) = free_ports(1)
        address = f"{LOOPBACK}:{port}"
        file = self.directory / f"{name}.toml"
        file.touch(mode=0o600)
        file.write_text(config)
        command = [
            str(self._programs / program),
            f"--addr={address}",
            f"--advertise-addr={address}",
            f"--pd-urls={self.endpoint}",
            f"--data-dir={self.directory / name}",
            f"--node-id={name}",
            f"--config={file}",
            flag,
        ]
        process = self._supervisor.add(name, command, environ())
        return Node(name, process, address, f"http://{address}{READY_PATH}")


@contextmanager
def programs(
    settings: Settings, name: str, supervisor: Supervisor, etcd_endpoint: str
) -> Iterator[Programs | None]:
    """Go's programs on the cluster, None where that of `name` is not to be measured; the supervisor ends what
    was started."""
    path = program(settings.peer, name)
    if path is None:
        yield None
        return
    with Child("peer.stand_in", etcd_endpoint) as stand_in:
        yield Programs(path.parent, supervisor, f"http://{stand_in.said('listening')['address']}")


def environ() -> dict[str, str]:
    """Proxies stand before loopback for Go."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
