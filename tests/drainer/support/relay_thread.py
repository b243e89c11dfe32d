"""The process that writes the relay log as a thread of the test: what the test puts in place of the disk, the
clock or the pauses is there on both sides."""

from __future__ import annotations

import socket
import threading

from common.clock import ManualClock
from common.errors import BinlogError
from drainer.formats.binlog_directory import Broken
from drainer.relay import process as relay_process


class RelayThread:
    """Serves the other end of its socket pair as `relay_process.main` does."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self._thread = threading.Thread(target=relay_process.serve, args=(other, ManualClock()), daemon=True)
        self._thread.start()

    def death(self) -> BinlogError:
        self._thread.join()
        return Broken("the thread that writes the relay log ended")

    def end(self) -> None:
        self.socket.close()
        self._thread.join()
