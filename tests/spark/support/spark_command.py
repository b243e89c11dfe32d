"""`binlog-spark` in a session of its own, of which a driver or the processes of its tasks are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.architecture.source import ROOT

DAEMONS: Final = "SPARK_DAEMON_JAVA_OPTS"


def executors_start_as(variables: Mapping[str, str]) -> dict[str, str]:
    """Settings for a session whose executors' JVMs are to start as those of daemons do."""
    options = variables.get(DAEMONS)
    return {"spark.executor.extraJavaOptions": options} if options else {}


class SparkCommand:
    """What it says goes to the end of `log`."""

    def __init__(
        self, arguments: Sequence[str], log: Path, *, variables: Mapping[str, str] | None = None
    ) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "drainer.spark", *arguments],
                stdout=file,
                stderr=file,
                env=variables,
                cwd=ROOT,
                start_new_session=True,
            )

    def workers(self) -> list[int]:
        """The processes in which its tasks run Python: those that a daemon has forked."""
        daemons = _pids(self.process.pid, b"pyspark.worker")
        return [pid for pid in daemons if int(_read(pid, "stat").rpartition(b")")[2].split()[1]) in daemons]

    def kill_all(self) -> None:
        kill_session(self.process.pid)
        self.process.wait()


def kill_session(leader: int) -> None:
    """All processes of a command, of which the first one may be gone."""
    for pid in _pids(leader):
        with contextlib.suppress(ProcessLookupError):  # it ends by itself
            os.kill(pid, signal.SIGKILL)


def executors(leader: int) -> list[int]:
    """JVMs of a command that run tasks and nothing else."""
    return _pids(leader, b"CoarseGrainedExecutorBackend")


def drivers(leader: int) -> list[int]:
    """The other one, if there is one now."""
    return _pids(leader, b"org.apache.spark.deploy.SparkSubmit")


def _pids(leader: int, word: bytes = b"") -> list[int]:
    """None for 0, which is no process, but the session of the kernel's and of those from outside."""
    if not leader:
        return []
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if _session_of(pid) == leader and word in _read(pid, "cmdline")]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b") ? 0"


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
