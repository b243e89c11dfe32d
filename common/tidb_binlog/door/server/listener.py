"""Listener: the listening port. Accepts connections, gives each its wire, keeps time for all, stops in order.

Owns   the listening sockets, every connection, one timer
Holds  at most so many connections, in all and of one address; at most so many TLS handshakes at once: one too
       many ends the oldest of the address that has most. An address is what one peer has, of IPv6 a /64.
       Connections leave files to the rest of the process
Stops  takes no new connections, drains the open ones, cancels after the grace what is left
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidb_binlog.clock import Clock, SystemClock, look_at
from tidb_binlog.door.calls.methods import methods_of
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Guard, Peer, Routes
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.door.network import network_of
from tidb_binlog.door.protocol_detection import PLAIN_ON_TLS_PORT
from tidb_binlog.door.server.connection_transport import ConnectionTransport
from tidb_binlog.door.server.fair_share import FairShare
from tidb_binlog.door.server.stats import STATS
from tidb_binlog.net.port import check_port_free, check_socket_free, port_taken, socket_unusable
from tidb_binlog.net.tls import ServerTls
from tidb_binlog.observe import log
from tidb_binlog.rpc.service import Service

TICK_S: Final = 0.1
LOOK_S: Final = 0.5
"""Between two looks at the connections at most: all but deadlines of calls is a matter of seconds."""
_BACKLOG: Final = 1024
_SOCKET_MODE: Final = 0o660
_ACCEPTS_A_TURN: Final = 64
_HANDSHAKES_A_TURN: Final = 2  # each takes a millisecond or more, for which all others wait
_NO_FILES_PAUSE_S: Final = 0.2
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG_AGAIN_S: Final = 60.0
_CANCELLED_S: Final = 5.0
_LOGGED_MAX: Final = 1024

_logger = log.get("door")


class Server:
    """A running door. `port` is the real one, also when 0 was asked for."""

    def __init__(
        self,
        services: Sequence[Service],
        routes: Routes,
        *,
        tls: ServerTls | None,
        limits: Limits,
        guard: Guard,
        clock: Clock,
        budget: Budget | None,
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.budget = budget or Budget(limits)
        self.methods = methods_of(services)
        self.routes = routes
        self.guard = guard
        self.tasks: set[asyncio.Task[None]] = set()
        self.fair_share = FairShare()
        self.stopping = False
        self.port = 0
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._socket_file: tuple[str, int] | None = None  # path and inode
        self.connections = 0  # past the handshake or in it
        self.wires: set[ConnectionTransport] = set()  # past it
        self.handshakes: dict[asyncio.Task[None], ConnectionTransport] = {}  # the oldest first
        self._arrived: set[ConnectionTransport] = set()  # all of them
        self._addresses: Counter[str] = Counter()  # how many each has
        self._logged_s: dict[tuple[str, str], float] = {}
        self._random = random.Random()
        self._timer: asyncio.TimerHandle | None = None
        self.next_tick_s = float("inf")
        self._gone = asyncio.Event()
        self._connections_max = _connections(limits)
        STATS.count(self.methods.values())

    def change_limits(self, limits: Limits) -> None:
        """For connections that come from now on, and for how many may be there. The budget is its owner's."""
        self.limits = limits
        self._connections_max = _connections(limits)

    # -- listening -------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        """Raises `OSError`."""
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                listener = socket.socket(family, kind, protocol)
                self._sockets.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6 and len(infos) > 1:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.setblocking(False)
                listener.bind((address[0], self.port or port, *address[2:]))
                listener.listen(_BACKLOG)
                self.port = listener.getsockname()[1]
        except BaseException:
            self._close_listeners()
            raise
        self._begin_accepting()

    def listen_unix(self, path: str) -> None:
        """On a socket file that the group may use too. Raises `OSError`."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(listener)
        try:
            listener.setblocking(False)
            listener.bind(path)
            self._socket_file = (path, os.stat(path).st_ino)
            os.chmod(path, _SOCKET_MODE)
            listener.listen(_BACKLOG)
        except BaseException:
            self._close_listeners()
            raise
        self._begin_accepting()

    def _begin_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.add_reader(listener.fileno(), self._accept, listener)
        self._tick()

    def offer(self, services: Sequence[Service]) -> None:
        """Serve these from now on in place of what was served, on open connections too. The same methods: an
        open connection remembers which there are, and each of them."""
        offered = methods_of(services)
        assert offered.keys() == self.methods.keys(), "other methods than were served so far"
        for path, method in offered.items():
            self.methods[path].become(method)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_A_TURN if self._tls is None else _HANDSHAKES_A_TURN):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                self._pause_accepting(listener, error)
                return
            self._take(accepted, str(address[0]) if address else "")

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        """Without files left, the listener stays readable: asking again at once would only burn a core."""
        loop = asyncio.get_running_loop()
        self.log_refused(Peer(""), "files", f"cannot accept connections: {error.strerror}; raise LimitNOFILE")
        loop.remove_reader(listener.fileno())

        def again() -> None:
            if listener.fileno() >= 0:
                loop.add_reader(listener.fileno(), self._accept, listener)

        loop.call_later(_NO_FILES_PAUSE_S, again)

    def _take(self, accepted: socket.socket, address: str) -> None:
        STATS.accepted += 1
        limits, network = self.limits, network_of(address)
        refused = ""
        if self.connections >= self._connections_max:
            refused = "connections" if self._connections_max == limits.connections_max else "files"
        elif self._addresses[network] >= limits.connections_per_address_max:
            refused = "connections_per_address"
        if refused:
            self.log_refused(Peer(address), refused, "its connection was closed: too many are open")
            accepted.close()
            return
        wire = ConnectionTransport(self, Peer(address, verified=self._tls is not None), network)
        self._arrived.add(wire)
        self._addresses[network] += 1
        self.connections += 1
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None and len(self.handshakes) >= limits.handshakes_max:
            self._end_a_handshake()
        task = asyncio.get_running_loop().create_task(self._begin(accepted, wire), name="accept")
        self.handshakes[task] = wire
        task.add_done_callback(lambda task: self._begun(task, accepted, wire))

    def _end_a_handshake(self) -> None:
        """The oldest of the address that has most: the one that holds many open pays for it."""
        most = Counter(wire.address for wire in self.handshakes.values()).most_common(1)[0][0]
        oldest = next(task for task, wire in self.handshakes.items() if wire.address == most)
        del self.handshakes[oldest]
        oldest.cancel()
        self.log_refused(Peer(most), "handshakes", "too many TLS handshakes at once: its oldest was ended")

    async def _begin(self, accepted: socket.socket, wire: ConnectionTransport) -> None:
        """Give the connection a transport, through the TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: wire, accepted)
            else:
                await loop.connect_accepted_socket(
                    lambda: wire,
                    accepted,
                    ssl=self._tls.context(),
                    ssl_handshake_timeout=self.limits.handshake_s,
                )
        except (OSError, ssl.SSLError) as error:
            if self._tls is not None:
                STATS.handshakes_failed += 1
                self.log_refused(wire.peer, "handshake", _handshake_reason(error))

    def _begun(self, task: asyncio.Task[None], accepted: socket.socket, wire: ConnectionTransport) -> None:
        """In a callback, because a task that is cancelled before its first step runs nothing of itself."""
        self.handshakes.pop(task, None)
        if wire not in self.wires:
            accepted.close()
            self._leave(wire)

    # -- connections -----------------------------------------------------------------------------

    def opened(self, wire: ConnectionTransport) -> None:
        """Before anything that the peer sent is read."""
        self.wires.add(wire)
        now_s = self.clock.monotonic_s()
        self.tick_at(self._look_s(now_s), now_s)
        why = None if self._tls is None else self._tls.refusal(wire.certificate())
        if why is not None:
            STATS.handshakes_failed += 1
            self.log_refused(wire.peer, "certificate", why)
            wire.abort()
        elif self._tls is not None:
            wire.peer = replace(wire.peer, denied=self._tls.denied(wire.certificate()))

    def closed(self, wire: ConnectionTransport) -> None:
        self.wires.discard(wire)
        self._leave(wire)
        if not self.wires:
            self._gone.set()

    def _leave(self, wire: ConnectionTransport) -> None:
        if wire not in self._arrived:
            return
        self._arrived.remove(wire)
        wire.leave()
        address = wire.address
        self.connections -= 1
        self._addresses[address] -= 1
        if self._addresses[address] <= 0:
            del self._addresses[address]

    def log_refused(self, peer: Peer, limit: str, why: str) -> None:
        """Count it, and log it once a minute for each peer and limit."""
        STATS.refuse(limit)
        now_s = self.clock.monotonic_s()
        key = (network_of(peer.address), limit)
        if now_s - self._logged_s.get(key, -_LOG_AGAIN_S) < _LOG_AGAIN_S:
            return
        if len(self._logged_s) >= _LOGGED_MAX:
            self._logged_s.clear()
        self._logged_s[key] = now_s
        _logger.warning("peer was refused", peer=peer.address, limit=limit, why=why)

    def jitter(self) -> float:
        return self._random.uniform(0.9, 1.1)

    def _tick(self) -> None:
        now_s = self.clock.monotonic_s()
        next_s = self._look_s(now_s)
        for wire in list(self.wires):
            wire.tick(now_s)
            if wire.connection is not None:
                next_s = min(next_s, wire.connection.next_tick_s)
        self.next_tick_s = float("inf")
        self.tick_at(next_s, now_s)

    def _look_s(self, now_s: float) -> float:
        """When the connections are looked at again: not at all while there are none."""
        loop = asyncio.get_running_loop()
        return now_s + look_at(LOOK_S) - loop.time() if self.wires else float("inf")

    def tick_at(self, moment_s: float, now_s: float) -> None:
        """A connection has something to do then; it is called at most `TICK_S` later."""
        moment_s = max(moment_s, now_s + TICK_S)
        if moment_s < self.next_tick_s:
            if self._timer is not None:
                self._timer.cancel()
            self.next_tick_s = moment_s
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + moment_s - now_s, self._tick)

    # -- the end ---------------------------------------------------------------------------------

    def _close_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener.fileno())
            listener.close()
        self._sockets.clear()
        if self._socket_file is not None:
            path, inode = self._socket_file
            self._socket_file = None
            try:
                if os.stat(path).st_ino == inode:  # and not a successor's
                    os.unlink(path)
            except OSError:
                pass

    async def stop(self, grace_s: float) -> None:
        """Take no new connections, let running calls end for `grace_s` seconds, then cancel. Idempotent."""
        if self.stopping:
            return
        self.stopping = True
        self._close_listeners()
        for task, wire in list(self.handshakes.items()):
            # What is open already ends below: uvloop, cancelled just then, would close it and tell nobody.
            if wire not in self.wires:
                task.cancel()
        for wire in list(self.wires):
            wire.drain()
        if self.wires:
            self._gone.clear()
            try:
                await asyncio.wait_for(self._gone.wait(), grace_s)
            except TimeoutError:
                pass
        for wire in list(self.wires):
            wire.abort()
        # Cancelled handlers, and the transports' last callbacks.
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=_CANCELLED_S)
            for task in late:
                _logger.error("handler does not end, although it was cancelled", method=task.get_name())
        if self.wires:
            self._gone.clear()
            await self._gone.wait()
        if self._timer is not None:
            self._timer.cancel()
        STATS.retire(self.methods.values())


def _connections(limits: Limits) -> int:
    """How many may be there at once: what the system lets us have, without the files for the rest."""
    files = _files()
    return min(limits.connections_max, files - min(limits.files_reserved, files // 2))


def _files() -> int:
    """Files that this process may open; raised as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return soft


def _handshake_reason(error: BaseException) -> str:
    text = str(error)
    if "HTTP_REQUEST" in text or "WRONG_VERSION_NUMBER" in text or "HTTPS_PROXY_REQUEST" in text:
        return PLAIN_ON_TLS_PORT.reason
    return f"TLS handshake failed: {text or type(error).__name__}"


async def serve(
    services: Sequence[Service],
    routes: Routes | None,
    host: str,
    port: int,
    *,
    tls: ServerTls | None = None,
    limits: Limits | None = None,
    guard: Guard | None = None,
    clock: Clock | None = None,
    budget: Budget | None = None,
    flag: str = "--addr",
) -> Server:
    """Start serving. `port` 0 takes a free one; `flag` set it; `budget`: of all doors of the process.
    Raises `PortTaken`."""
    check_port_free(host, port, flag)
    server = _server(services, routes, tls, limits, guard, clock, budget)
    try:
        await server.listen(host, port)
    except OSError as error:
        raise port_taken(host, port, error, flag) from None
    return server


async def serve_unix(
    services: Sequence[Service],
    path: str,
    *,
    limits: Limits | None = None,
    clock: Clock | None = None,
    budget: Budget | None = None,
    flag: str = "--socket",
) -> Server:
    """Start serving gRPC, and no HTTP, on a socket file; one that a dead process left is removed.

    Without TLS: nothing leaves the host, and the file's rights say who may connect.

    Raises `PortTaken` if a living process listens there, `ConfigError` if the path cannot be one.
    """
    check_socket_free(path, flag)
    server = _server(services, None, None, limits, None, clock, budget)
    try:
        server.listen_unix(path)
    except OSError as error:
        raise socket_unusable(path, error, flag) from None
    return server


def _server(
    services: Sequence[Service],
    routes: Routes | None,
    tls: ServerTls | None,
    limits: Limits | None,
    guard: Guard | None,
    clock: Clock | None,
    budget: Budget | None,
) -> Server:
    return Server(
        services,
        routes or Routes(),
        tls=tls,
        limits=limits or Limits(),
        guard=guard or AdminGuard(),
        clock=clock or SystemClock(),
        budget=budget,
    )
