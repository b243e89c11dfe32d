"""Daemons as processes, forked from one that has loaded their programs: they begin at once.

Drives  multiprocessing's fork server, which is started with the first process and ends with the tests
Why     loading is most of what a start costs, and tests start hundreds. Where the command itself is under
        test (`python -m pump`, its exit code, its last line), it is run as it is
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["pump.program", "drainer.program"])
_LOCK = threading.Lock()  # an exit code is read once, by whoever asks first


class Forked:
    """What tests use of `subprocess.Popen`. `program` is a package with a `__main__.main`.

    Output goes to the end of `log`, or where the first one's went. The environment is this process's as it
    is now.
    """

    def __init__(self, program: str, arguments: Sequence[str], log: Path | None = None) -> None:
        given = (program, list(arguments), log, dict(os.environ))
        self._process = _FORKS.Process(target=_run, args=given, daemon=True)
        with _LOCK:
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        with _LOCK:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        connection.wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(program: str, arguments: list[str], log: Path | None, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if log is not None:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.argv = [program, *arguments]
    importlib.import_module(f"{program}.program").main()
