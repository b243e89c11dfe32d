"""The processes of the door's benchmarks: servers and clients, each with CPU and memory of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.attacks.session import Target
from tests.benchmarks.door.server import DOOR, GRPCIO, HOST
from tests.benchmarks.measure import cpu_s, percentile
from tests.rig import ROOT
from tidb_binlog.errors import Unavailable

TLS_DIRECTORY: Final = ROOT / "tests" / "golden" / "tls"
TLS_FILES: Final = (
    str(TLS_DIRECTORY / "ca.pem"),
    str(TLS_DIRECTORY / "node.pem"),
    str(TLS_DIRECTORY / "node.key"),
)
KINDS: Final = (DOOR, GRPCIO)
END_S: Final = 15.0


class Child:
    """A Python process that says what it does in lines of JSON."""

    def __init__(
        self, module: str, *arguments: object, complaints: IO[bytes] | int = subprocess.PIPE
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            cwd=ROOT,
        )
        self._module = module

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def said(self, event: str) -> dict[str, Any]:
        """Its next line, which must be `event`. Raises `Unavailable` with what it said instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        document: dict[str, Any] = json.loads(line) if line else {}
        if document.get("event") != event:
            why = self._process.stderr.read().decode().strip() if self._process.stderr is not None else ""
            raise Unavailable(f"{self._module} ended early: {why.rpartition(chr(10))[2] or line!r}")
        return document

    def end_of_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> None:
        """Until it ends by itself. Raises `Unavailable` when it then says that something was wrong."""
        if self._process.wait(END_S):
            self.said("no line comes any more, only what it complains about")

    def stop(self) -> None:
        """SIGTERM, then kill -9; nothing is left of it."""
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class Server:
    """A running `door.server`."""

    child: Child
    port: int
    tls: tuple[str, str, str] | None

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def tls_arguments(self) -> tuple[str, ...]:
        return ("--tls", *self.tls) if self.tls else ()

    @property
    def target(self) -> Target:
        return Target(HOST, self.port, self.tls)

    def rss_mib(self) -> float:
        return memory_mib(self.pid, "VmRSS")


@contextmanager
def server(kind: str, *, tls: bool = False) -> Iterator[Server]:
    """It ends with the block. What it logs is not kept: attacks make it say much."""
    files = TLS_FILES if tls else None
    with Child("door.server", kind, *(("--tls", *files) if files else ())) as child:
        port = child.said("listening")["port"]
        assert child._process.stderr is not None
        _discard(child._process.stderr)
        yield Server(child, port, files)


def _discard(stream: IO[bytes]) -> None:
    """Read it to its end, so that the child never waits for room in the pipe."""

    def read() -> None:
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            while stream.read(1 << 16):
                pass

    threading.Thread(target=read, daemon=True).start()


def memory_mib(pid: int, name: str) -> float:
    """VmRSS or VmHWM of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise Unavailable(f"process {pid} has ended")


def forget_peak(pid: int) -> None:
    """Let VmHWM begin again at what is resident now. Raises OSError where that is not allowed."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@dataclass(frozen=True, slots=True)
class Round:
    """One measured stretch of one server under one client."""

    requests_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    client_cpu_us: float


def load_round(pid: int, *arguments: object) -> Round:
    """Run `h2_load` with `arguments`; CPU is that of process `pid`."""
    with Child("door.h2_load", *arguments) as client:
        client.said("begin")
        before_s = cpu_s(pid)
        seen = client.said("end")
        spent_s = cpu_s(pid) - before_s
        client.wait()
    requests = seen["requests"]
    return Round(
        requests / seen["seconds"],
        spent_s / requests * 1e6,
        seen["p50_ms"],
        seen["p99_ms"],
        seen["client_cpu_us"],
    )


def median(values: list[float]) -> float:
    return percentile(values, 0.5)


def median_round(rounds: list[Round]) -> Round:
    """Each figure's own median."""
    return Round(
        median([one.requests_per_s for one in rounds]),
        median([one.cpu_us for one in rounds]),
        median([one.p50_ms for one in rounds]),
        median([one.p99_ms for one in rounds]),
        median([one.client_cpu_us for one in rounds]),
    )
