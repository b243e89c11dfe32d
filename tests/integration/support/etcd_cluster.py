"""Three etcd members as one cluster; any of them may die, stand still and come back."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from binlog_playground.cluster.etcd_server import EtcdServer
from tidb_binlog.net.port import free_ports


class Member(EtcdServer):
    """One of several. It is healthy only with others, so its start does not wait for that."""

    def __init__(self, data_dir: Path, name: str, port: int, peers: dict[str, int]) -> None:
        super().__init__(data_dir, port, peers[name])
        self.name = name
        self._peers = peers

    def command(self) -> list[str]:
        everyone = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self._peers.items())
        replaced = ("--name=", "--initial-cluster=")
        return [
            *(part for part in super().command() if not part.startswith(replaced)),
            f"--name={self.name}",
            f"--initial-cluster={everyone}",
        ]

    def _wait_until_healthy(self) -> None:
        return

    @property
    def member_id(self) -> int:
        """Raises `OSError` while it does not answer."""
        return int(self._status()["header"]["member_id"])

    @property
    def leads(self) -> bool:
        status = self._status()
        return status.get("leader") == status["header"]["member_id"]

    def _status(self) -> dict[str, dict[str, str]]:
        url = f"{self.endpoint}/v3/maintenance/status"
        request = urllib.request.Request(url, data=b"{}", method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=2) as reply:
            found: dict[str, dict[str, str]] = json.loads(reply.read())
            return found

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class EtcdCluster:
    """Made stopped: `start`."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(2 * size)
        names = [f"m{number}" for number in range(size)]
        peers = dict(zip(names, ports[size:], strict=True))
        self.members = [
            Member(directory / name, name, port, peers) for name, port in zip(names, ports, strict=False)
        ]
        self.endpoints = ",".join(member.endpoint for member in self.members)

    def start(self, members: Sequence[Member] | None = None) -> None:
        for member in members or self.members:
            member.restart()

    def leader(self) -> Member | None:
        """None while there is none."""
        for member in self.members:
            try:
                if member.pid and member.leads:
                    return member
            except OSError:
                continue
        return None

    def stop(self) -> None:
        for member in self.members:
            if member.pid:
                member.thaw()
            member.kill()
