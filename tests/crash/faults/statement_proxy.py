"""A proxy in front of a MySQL-like server that counts commands, and strikes at one of them.

A command is a client's packet with sequence number 0. When the chosen one comes, it is passed on or not, and
from then on nothing goes either way on any connection: as if the client's process had been gone. Or the
client is frozen: nothing is passed on until `thaw`, then the chosen command and everything after it.

Owns    a listening port, and two threads for each connection
Stops   `close`
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final

from tidb_binlog.net.port import LOOPBACK

_HEADER: Final = 4
_QUIT: Final = 1


class StatementProxy:
    """`port` is its own. Nothing is counted before `arm`."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._at = 0
        self._passes = False
        self._word = b""
        self._on_strike: Callable[[], None] = lambda: None
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self.commands = 0
        self.struck = threading.Event()
        self._unheard: socket.socket | None = None
        self._hides = False
        self._freezes = False
        self._thawed = threading.Event()
        self.at = b""
        """The beginning of the command at which it struck."""
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(
        self,
        at: int,
        *,
        passes: bool = False,
        freezes: bool = False,
        hides: bool = False,
        word: bytes = b"",
        on_strike: Callable[[], None] = lambda: None,
    ) -> None:
        """Strike at the `at`-th command from now on that begins with `word`, before it or (`passes`) right
        after it. `freezes`: hold it and the rest back. `hides`: the server does not hear until `close`, or
        its answer, that the client is gone, which ends a statement that waits for a lock."""
        self._drop()
        with self._lock:
            self.struck.clear()
            self.commands, self._at, self._passes, self._on_strike = 0, at, passes, on_strike
            self._word, self._freezes, self._hides, self._unheard = word, freezes, hides, None
            self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def close(self) -> None:
        self.struck.set()
        self.thaw()
        self._listener.close()
        self._drop()

    def _drop(self) -> None:
        """End what is left of former clients."""
        with self._lock:
            left, self._open = self._open, set()
        for one in left:
            _end(one)

    @property
    def _is_gone(self) -> bool:
        return self.struck.is_set() and not self._freezes

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open |= {client, server}
                for run, arguments in (
                    (self._to_server, (client, server)),
                    (self._to_client, (server, client)),
                ):
                    threading.Thread(target=run, args=arguments, daemon=True).start()

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (piece := server.recv(1 << 16)) and not self._is_gone:
                client.sendall(piece)
        self._end(client, server)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        waiting = b""
        with contextlib.suppress(OSError):
            while piece := client.recv(1 << 16):
                waiting += piece
                while len(waiting) >= _HEADER:
                    end = _HEADER + int.from_bytes(waiting[:3], "little")
                    if len(waiting) < end:
                        break
                    packet, waiting = waiting[:end], waiting[end:]
                    if not self._pass(packet, server):
                        break
                if self._is_gone:
                    break
        self._end(client, *(() if server is self._unheard else (server,)))

    def _pass(self, packet: bytes, server: socket.socket) -> bool:
        """One packet at a time: what comes after the chosen command on another connection is too late."""
        with self._lock:
            if self._is_gone:
                return False
            text = packet[_HEADER + 1 :]
            is_command = packet[3] == 0 and packet[_HEADER] != _QUIT and text.startswith(self._word)
            self.commands += is_command
            if is_command and self.commands == self._at:
                self.at = text[:60]
                if self._passes:
                    server.sendall(packet)
                if self._hides:
                    self._unheard = server
                self.struck.set()
                self._on_strike()
                if not self._freezes:
                    return False
                self._thawed.wait()  # with the lock: all others wait too
            server.sendall(packet)
            return True

    def _end(self, *both: socket.socket) -> None:
        with self._lock:
            self._open -= set(both)
        for one in both:
            _end(one)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
