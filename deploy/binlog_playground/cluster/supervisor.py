"""Supervisor: child processes, started, killed, restarted and stopped by their own group, and never orphaned.

Every child is the leader of a group of its own (Ctrl-C in the terminal does not reach it), writes into a log
file of its own, and is on a leash: it dies with the thread that started it, so children are started from the
main thread only. The supervisor never searches processes by name and never touches one that it did not start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidb_binlog.errors import BinlogError

LEASH = Path(__file__).with_name("leash.py")
STOP_DEADLINE_S = 10.0
POLL_S = 0.01


class ProcessDied(BinlogError):
    """A child ended that should be running."""


class Process:
    """One child process that can be started again after it ended."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.starts = 0  # how often it was started
        self._environ = None if environ is None else dict(environ)  # None: ours
        self._child: subprocess.Popen[bytes] | None = None  # the last one, running or not
        self._asked_to_end = False  # since its last start, so that its end is no death

    @property
    def pid(self) -> int:
        """Process id of the running child, 0 when there is none."""
        return self._child.pid if self._child is not None and self.is_running else 0

    @property
    def is_running(self) -> bool:
        """Say whether there is a child that has not ended."""
        return self._child is not None and self._child.poll() is None

    @property
    def died(self) -> bool:
        """It ended without having been asked to."""
        return self._child is not None and not self.is_running and not self._asked_to_end

    @property
    def state(self) -> str:
        """One word for the operator: running, stopped, killed, exit N, signal N, idle."""
        if self._child is None:
            return "idle"
        if self.is_running:
            return "running"
        code = self._child.returncode
        if self._asked_to_end:
            return "killed" if code == -signal.SIGKILL else "stopped"
        return f"signal {-code}" if code < 0 else f"exit {code}"

    def start(self) -> None:
        """Start it (again). From the main thread only: the leash follows the thread."""
        assert not self.is_running
        self._asked_to_end = False
        self.starts += 1
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *self.argv]
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self._environ,
            )

    def kill(self) -> None:
        """kill -9 of the whole group, and wait until it is gone."""
        self._end(signal.SIGKILL, STOP_DEADLINE_S)

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> int | None:
        """SIGTERM, then kill -9 after `deadline_s`; returns the exit code, None if it never ran."""
        self._end(signal.SIGTERM, deadline_s)
        return None if self._child is None else self._child.returncode

    def wait(self, deadline_s: float) -> int:
        """Wait for it to end by itself; `ProcessDied` (naming it) when it does not in time."""
        assert self._child is not None
        self._asked_to_end = True
        try:
            return self._child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessDied(
                f"{self.name} did not end within {deadline_s:g} s", hint=str(self.log)
            ) from None

    def signal(self, number: int) -> None:
        """Send a signal to the child alone (for example SIGSTOP)."""
        if self._child is not None and self.is_running:
            self._child.send_signal(number)

    def tail(self, lines: int = 5) -> str:
        """Last non-empty lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 32768))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def death(self) -> ProcessDied:
        """The error that says that it died."""
        return ProcessDied(
            f"{self.name} ended by itself ({self.state}): {self.tail(1) or 'its log is empty'}",
            hint=f"see {self.log}",
        )

    def _end(self, number: int, deadline_s: float) -> None:
        child = self._child
        if child is None or child.poll() is not None:
            return
        self._asked_to_end = True
        self._signal_group(child, number)
        try:
            child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._signal_group(child, signal.SIGKILL)
            child.wait()

    @staticmethod
    def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            pass


class Supervisor:
    """All children of one playground, in the order in which they were started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[Process] = []

    def add(self, name: str, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Process:
        """A process logging to `logs/<name>.log`; it is not started yet."""
        return self.adopt(Process(name, argv, self.log_path(name), environ))

    def adopt(self, process: Process) -> Process:
        """Supervise a process that other code made."""
        self.processes.append(process)
        return process

    def log_path(self, name: str) -> Path:
        """Name the file that a process of this name logs into."""
        return self.directory / "logs" / f"{name}.log"

    def dead(self) -> list[Process]:
        """Children that ended without having been asked to."""
        return [process for process in self.processes if process.died]

    def states(self) -> dict[str, str]:
        """Give the state of each process in a word, by name."""
        return {process.name: process.state for process in self.processes}

    def kill_all(self) -> None:
        """kill -9 of every child: nothing survives this call."""
        for process in reversed(self.processes):
            process.kill()
