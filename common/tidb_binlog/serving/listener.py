"""Listener: what a daemon serves, gRPC and HTTP, on one port.

gRPC and HTTP on addr (`tidb_binlog.door`); HTTP on status-addr too, if it is set; gRPC on a unix socket, if
the daemon has one.

A daemon that has to wait for others before it can work listens first, with services that say so, and offers
the real ones later.

Tests  tests/pump/test_process_listener.py
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TypeVar

from tidb_binlog.config.declaring import options
from tidb_binlog.door.http.admin_guard import AdminGuard
from tidb_binlog.door.http.routes import Routes
from tidb_binlog.door.limits import Budget, Limits
from tidb_binlog.door.server.listener import Server, serve, serve_unix
from tidb_binlog.net.permission import Permission
from tidb_binlog.net.port import check_port_free, check_socket_free, split_address
from tidb_binlog.net.tls import ServerTls
from tidb_binlog.rpc import Service
from tidb_binlog.serving.node_config import NodeConfig
from tidb_binlog.serving.reload import Commit, Reload

N = TypeVar("N", bound=NodeConfig)


class Listener:
    """What listens. `port` is gRPC's."""

    def __init__(self) -> None:
        self.port = 0
        self._doors: list[Server] = []  # for gRPC, or for HTTP alone
        self._calls: list[Server] = []  # of these, the ones for gRPC
        self._settings: NodeConfig | None = None
        self._budget: Budget | None = None
        self._guard = AdminGuard()
        self._tls: ServerTls | None = None

    async def start(self, settings: NodeConfig, services: Sequence[Service], routes: Routes) -> None:
        """Raises `PortTaken`, `ConfigError`."""
        self._settings = settings
        tls = settings.tls
        limits = settings.effective()
        self._budget = budget = Budget(limits)  # of the process: all its doors share it
        host, port = split_address("addr", settings.listen)
        names = {host, split_address("advertise-addr", settings.advertised)[0], socket.gethostname()}
        self._guard = guard = AdminGuard(settings.admin_from, names)
        self._tls = server_tls = tls.server_tls() if tls else None
        if server_tls is not None:
            server_tls.restrict(settings.cert_permissions)

        async def open_door(served: Sequence[Service], host: str, port: int, flag: str) -> int:
            server = await serve(
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

        self.port = await open_door(services, host, port, "--addr")
        if settings.unix_path:
            self._doors.append(await serve_unix(services, settings.unix_path, limits=limits, budget=budget))
        self._calls = list(self._doors)
        status = settings.status_address
        if status is not None:
            await open_door((), *status, "--status-addr")

    def offer(self, services: Sequence[Service]) -> None:
        """Serve these instead of the first ones."""
        for server in self._calls:
            server.offer(services)

    def take_reloads(self, reload: Reload[N]) -> None:
        """Let a reload change who may come and what he may cost: connections that come then, and what all
        have together at once."""

        def limits(fresh: N) -> Commit:
            limits_now = fresh.effective()

            def change() -> None:
                assert self._budget is not None
                self._budget.change(limits_now)
                for door in self._doors:
                    door.change_limits(limits_now)

            return change

        def admins(fresh: N) -> Commit:
            AdminGuard(fresh.admin_from)  # raises what is wrong
            return lambda: self._guard.admit(fresh.admin_from)

        def names(fresh: N) -> Commit:
            tls = self._tls
            permissions = fresh.cert_permissions  # raises what is wrong, also of cert-allowed-cn

            def change() -> None:
                if tls is not None:
                    tls.allow(fresh.cert_allowed_cn)
                    tls.restrict(permissions)

            return change

        reload.add(options(Limits), limits)
        reload.add(["admin_from"], admins)
        reload.add(["cert_allowed_cn", *(f"cert_{permission}_cn" for permission in Permission)], names)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let the running ones end for `grace_s` seconds, then cancel them. Idempotent."""
        for server in self._doors:
            await server.stop(grace_s)


def check_free(settings: NodeConfig) -> None:
    """Raise `PortTaken` when a process could not listen there now: the commonest mistake, reported before all
    else."""
    check_port_free(*split_address("addr", settings.listen))
    if settings.status_address is not None:
        check_port_free(*settings.status_address, "--status-addr")
    if settings.unix_path:
        check_socket_free(settings.unix_path)


async def listen(settings: NodeConfig, services: Sequence[Service], routes: Routes) -> Listener:
    """Begin to serve; routes may be added later, and `offer` may follow.

    Raises `PortTaken`, `ConfigError`.
    """
    listener = Listener()
    try:
        await listener.start(settings, services, routes)
    except BaseException:
        await listener.stop(0.0)
        raise
    return listener
