"""Relay child: starts the process that writes the relay log, and ends it.

Drives  the operating system
Owns    one process and this end of the socket pair
Stops   `end` closes this end and waits until the process is gone, with it the locks of the directory
Tests   tests/drainer/relay/test_process.py
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from common.errors import BinlogError
from drainer.formats.binlog_directory import Broken

END_S: Final = 5.0
BUFFER_BYTES: Final = 1 << 20
_ROOT: Final = str(Path(__file__).resolve().parents[2])


class RelayChild:
    """Started from a thread that lives as long: the process dies with that thread."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        with other:
            for end in (self.socket, other):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            path = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "drainer.relay.process", str(other.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def death(self) -> BinlogError:
        """What to say when its end is closed and it said nothing. May block until it is gone."""
        code = self._ended()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return Broken(
            f"the process that writes the relay log (pid {self.pid}) {how}",
            hint="see the kernel's log and what it wrote last, then start again: nothing is lost",
        )

    def end(self) -> None:
        """Let it go; blocks until it is gone."""
        self.socket.close()
        self._ended()

    def _ended(self) -> int:
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
