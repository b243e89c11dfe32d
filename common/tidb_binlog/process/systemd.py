"""systemd: notifies the service manager how this process is (sd_notify), where one asked for it.

In     NOTIFY_SOCKET (a path, or an abstract name after "@"), WATCHDOG_USEC and WATCHDOG_PID
Out    datagrams: READY=1, STATUS=, RELOADING=1, STOPPING=1, WATCHDOG=1, EXTEND_TIMEOUT_USEC=
Why    `Type=notify` units start what depends on them when the node serves, not when it was forked; the
       watchdog ends a process whose event loop is stuck, which no port check of another process can detect
Never  fails or delays the node: what cannot be sent is logged once and dropped
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final, Self

from tidb_binlog.observe import log

_STATUS_CHARS_MAX: Final = 500
_logger = log.get("systemd")


class Notifier:
    """Where to send to; `Notifier()` sends nowhere. `watchdog_s`: the silence that ends us, 0: none."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self.watchdog_s = watchdog_s if address else 0.0
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._failed = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], pid: int) -> Self:
        """What the service manager left for the process `pid`; another one's watchdog is not ours."""
        period = environ.get("WATCHDOG_USEC", "")
        owner = environ.get("WATCHDOG_PID", "")
        ours = period.isascii() and period.isdigit() and owner in ("", str(pid))
        return cls(environ.get("NOTIFY_SOCKET", ""), int(period) / 1e6 if ours else 0.0)

    @property
    def is_on(self) -> bool:
        """Whether anybody listens."""
        return bool(self._address)

    def ready(self, status: str) -> bool:
        """The start is over. False if that could not be said now: the manager would wait in vain."""
        return self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(_status(status))

    def reloading(self, monotonic_s: float) -> None:
        """The configuration is read again, since then; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s * 1e6)}")

    def stopping(self, status: str) -> None:
        """The end has begun."""
        self._send("STOPPING=1", _status(status))

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """The start or the end may take so long from now on."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def _send(self, *lines: str) -> bool:
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._failed:
                _logger.warning("the service manager cannot be notified", socket=self._address, error=error)
            self._failed = True
            return False
        self._failed = False
        return True


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:_STATUS_CHARS_MAX]
