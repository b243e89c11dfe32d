"""Daemons as processes, forked from one that has loaded their programs: they begin at once.

Drives  multiprocessing's fork server, which is started with the first process and ends with the tests
Why     loading is most of what a start costs, and tests start hundreds. Where the command itself is under
        test (`python -m pump`, its exit code, its last line), it is run as it is
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["pump.program", "drainer.program", "drainer.reparo.program", "binlogctl.program"]
)
_LOCK = threading.Lock()  # an exit code is read once, by whoever asks first


class Forked:
    """What tests use of `subprocess.Popen`. `program` is a package with a `__main__.main`.

    Output goes to the end of `log`, or where the first one's went; that of standard output to `out`, if it is
    given. The environment is this process's as it is now, and `environ`.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        log: Path | None = None,
        out: Path | None = None,
        **environ: str,
    ) -> None:
        given = (program, list(arguments), log, out or log, {**os.environ, **environ})
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


def run(
    program: str, *arguments: str, seconds: float = 90.0, **environ: str
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what it prints."""
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory) / "out", Path(directory) / "err"
        process = Forked(program, arguments, err, out, **environ)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        return subprocess.CompletedProcess([program, *arguments], code, out.read_text(), err.read_text())


def _run(
    program: str, arguments: list[str], log: Path | None, out: Path | None, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for standard, path in ((1, out), (2, log)):
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.dup2(descriptor, standard)
            os.close(descriptor)
    sys.argv = [program, *arguments]
    with contextlib.ExitStack() as stack:
        if "BINLOG_LATE_THREADS" in environment:
            from tests.fakes import late_threads  # a tenth of a second of imports

            draw = f"{environment[late_threads.SEED]} {environment.get('PYTEST_CURRENT_TEST')} {program}"
            stack.enter_context(late_threads.late(late_threads.Delays(draw)))
        importlib.import_module(f"{program}.__main__").main()
