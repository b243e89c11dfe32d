"""Upstream: the server that a configuration names in `[syncer.from]`, as a value to connect with.

Tests  tests/drainer/config/test_upstream_options.py
"""

from __future__ import annotations

from typing import Final

from drainer.config.upstream_options import SECTION, UpstreamOptions
from drainer.mysql.connection import Target
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.tls import ClientTls

TIDB_PORT: Final = 4000
MYSQL_PORT: Final = 3306


def upstream_target_of(settings: UpstreamOptions) -> Target:
    """`ConfigError` where the configuration has no address of the upstream's SQL."""
    if not settings.has_upstream:
        raise ConfigError(
            "the configuration does not say where the upstream's SQL is",
            hint=f"set host, user and password-file in [{SECTION}] of the drainer's file",
        )
    paths = settings.upstream_tls
    port = settings.from_port or (MYSQL_PORT if settings.from_outcome_table else TIDB_PORT)
    return Target(
        settings.from_host or "localhost",
        port,
        settings.from_user,
        settings.upstream_password(),
        settings.from_socket,
        read_timeout_s=None,  # a part of a table takes as long as it takes; who vanishes is noticed
        tls=ClientTls(paths, use="upstream") if paths else None,
        side="upstream",
        section=SECTION,
    )
