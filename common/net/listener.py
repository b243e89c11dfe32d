"""Listener: what a daemon serves, gRPC and HTTP, on one port.

rpc-server = "door"     gRPC and HTTP on addr (`common.door`); HTTP on status-addr too, if it is set; gRPC on
                        a unix socket, if the daemon has one
rpc-server = "grpcio"   gRPC on addr by grpcio's server; HTTP on status-addr, by a door without services

A daemon that has to wait for others before it can work listens first, with services that say so, and offers
the real ones later.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common import door, rpc
from common.config import option
from common.door import AdminGuard, Budget, Limits, Routes
from common.errors import ConfigError
from common.net.port import STATUS_PORT_STEP, check_port_free, check_socket_free, split_address
from common.net.tls import TlsConfig
from common.rpc import Service

DOOR: Final = "door"
GRPCIO: Final = "grpcio"


@dataclass(frozen=True, slots=True)
class ListenConfig(Limits):
    """The options of a daemon that concern its port. The daemon says what `listen` and `advertised` are."""

    rpc_server: str = option(
        DOOR, key="rpc-server", flag="rpc-server", help="door, or grpcio with HTTP on status-addr"
    )
    status_addr: str = option(
        "",
        key="status-addr",
        flag="status-addr",
        help="host:port of HTTP alone (default: none; with grpcio the host of addr, port + 100)",
    )
    admin_from: tuple[str, ...] = option(
        (),
        key="admin-from",
        flag="admin-from",
        kind="list",
        help="networks that may change this node's state over HTTP, besides this host and mutual TLS",
    )
    debug_routes: bool = option(
        False,
        key="debug-routes",
        flag="debug-routes",
        kind="bool",
        help="serve /debug/..., which shows what is stored",
    )
    ssl_ca: str = option(
        "", key="security.ssl-ca", flag="ssl-ca", help="authority of all certificates; empty: no TLS"
    )
    ssl_cert: str = option("", key="security.ssl-cert", flag="ssl-cert", help="our certificate")
    ssl_key: str = option("", key="security.ssl-key", flag="ssl-key", help="our private key")
    cert_allowed_cn: tuple[str, ...] = option(
        (),
        key="security.cert-allowed-cn",
        flag="cert-allowed-cn",
        kind="list",
        help="common names of the clients that may connect; empty: all of the authority",
    )

    @property
    def listen(self) -> str:
        raise NotImplementedError

    @property
    def advertised(self) -> str:
        raise NotImplementedError

    def check_listener(self) -> None:
        """Raises `ConfigError`."""
        self.check()
        if self.rpc_server not in (DOOR, GRPCIO):
            raise ConfigError(f"rpc-server {self.rpc_server!r} is not known", hint="use door or grpcio")
        if self.rpc_server == GRPCIO and self.cert_allowed_cn:
            raise ConfigError(
                "grpcio's server does not look at cert-allowed-cn", hint='set rpc-server = "door"'
            )
        split_address("addr", self.listen)
        split_address("advertise-addr", self.advertised)
        _ = self.status_address, self.tls
        if self.unix_path and self.rpc_server == GRPCIO:
            raise ConfigError(
                "socket is set, but grpcio's server serves none here", hint='set rpc-server = "door"'
            )
        AdminGuard(self.admin_from)

    @property
    def unix_path(self) -> str:
        """Where gRPC is served besides; "" for nowhere. Raises `ConfigError`."""
        return ""

    @property
    def tls(self) -> TlsConfig | None:
        """Raises `ConfigError`."""
        return TlsConfig.from_paths(
            self.ssl_ca, self.ssl_cert, self.ssl_key, self.cert_allowed_cn, section="security"
        )

    @property
    def status_address(self) -> tuple[str, int] | None:
        """Where HTTP alone is served; None if nowhere."""
        if self.status_addr:
            return split_address("status-addr", self.status_addr)
        if self.rpc_server == DOOR:
            return None
        host, port = split_address("addr", self.listen)
        return host, min(port + STATUS_PORT_STEP, 65535) if port else 0


class Listener:
    """What listens. `port` is gRPC's."""

    def __init__(self) -> None:
        self.port = 0
        self._doors: list[door.Server] = []  # for gRPC, or for HTTP alone
        self._calls: list[door.Server] = []  # of these, the ones for gRPC
        self._grpc: rpc.Server | None = None
        self._settings: ListenConfig | None = None

    async def start(
        self, settings: ListenConfig, services: Sequence[Service], routes: Routes, *, preliminary: bool
    ) -> None:
        """Raises `PortTaken`, `ConfigError`."""
        self._settings = settings
        tls = settings.tls
        limits = settings.effective()
        budget = Budget(limits)  # of the process: all its doors share it
        host, port = split_address("addr", settings.listen)
        names = {host, split_address("advertise-addr", settings.advertised)[0], socket.gethostname()}
        guard = AdminGuard(settings.admin_from, names)
        server_tls = tls.server_tls() if tls else None

        async def open_door(served: Sequence[Service], host: str, port: int, flag: str) -> int:
            server = await door.serve(
                served,
                routes,
                host,
                port,
                tls=server_tls,
                limits=limits,
                guard=guard,
                budget=budget,
                flag=flag,
            )
            self._doors.append(server)
            return server.port

        if settings.rpc_server == DOOR:
            self.port = await open_door(services, host, port, "--addr")
            if settings.unix_path:
                self._doors.append(
                    await door.serve_unix(services, settings.unix_path, limits=limits, budget=budget)
                )
            self._calls = list(self._doors)
        elif not preliminary:
            await self._serve_grpcio(services)
        status = settings.status_address
        if status is not None:
            await open_door((), *status, "--status-addr")

    async def _serve_grpcio(self, services: Sequence[Service]) -> None:
        settings = self._settings
        assert settings is not None
        host, port = split_address("addr", settings.listen)
        self._grpc = await rpc.serve(
            services,
            host,
            port,
            tls=settings.tls,
            receive_bytes_max=settings.effective().message_bytes_max,
        )
        self.port = self._grpc.port

    async def offer(self, services: Sequence[Service]) -> None:
        """Serve these instead of the preliminary ones. Raises `PortTaken` (grpcio only)."""
        for server in self._calls:
            server.offer(services)
        if not self._calls:
            # grpcio's server cannot change what it serves; until now nobody was let in.
            await self._serve_grpcio(services)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let the running ones end for `grace_s` seconds, then cancel them. Idempotent."""
        if self._grpc is not None:
            await self._grpc.stop(grace_s)
        for server in self._doors:
            await server.stop(grace_s)


def check_free(settings: ListenConfig) -> None:
    """Raise `PortTaken` when nobody could listen there now: the commonest mistake, told before all else."""
    check_port_free(*split_address("addr", settings.listen))
    if settings.status_address is not None:
        check_port_free(*settings.status_address, "--status-addr")
    if settings.unix_path:
        check_socket_free(settings.unix_path)


async def listen(
    settings: ListenConfig, services: Sequence[Service], routes: Routes, *, preliminary: bool = False
) -> Listener:
    """Begin to serve; routes may be added later. `preliminary`: `offer` will follow.

    Raises `PortTaken`, `ConfigError`.
    """
    listener = Listener()
    try:
        await listener.start(settings, services, routes, preliminary=preliminary)
    except BaseException:
        await listener.stop(0.0)
        raise
    return listener
