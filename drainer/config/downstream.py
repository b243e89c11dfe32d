"""Downstream: the servers that a configuration names, as values to connect with.

Tests  tests/integration/test_drainer_checkpoint.py
"""

from __future__ import annotations

from common.net.tls import ClientTls
from drainer.config.options import DrainerConfig
from drainer.sink.mysql.connection import Target
from drainer.sink.mysql.session_mode import session_mode, session_variables


def target_of(settings: DrainerConfig) -> Target:
    host, port, user, password = settings.downstream
    paths = settings.downstream_tls
    tls = ClientTls(paths, use="downstream") if paths else None
    return Target(
        host,
        port,
        user,
        password,
        settings.to_socket,
        settings.to_read_timeout_s,
        tls,
        session_mode(settings.sql_mode),
        session_variables(settings.to_params),
    )


def row_target_of(settings: DrainerConfig, target: Target) -> Target | None:
    """The server of the checkpoint row, None if that is the downstream."""
    if not settings.checkpoint_type:
        return None
    if (settings.checkpoint_host, settings.checkpoint_port) == (target.host, target.port):
        return None  # with the lanes in one transaction
    paths = settings.checkpoint_tls
    host, port, user, password = settings.checkpoint_server
    tls = ClientTls(paths, use="checkpoint") if paths else None
    return Target(host, port, user, password, tls=tls)
