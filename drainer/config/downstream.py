"""Downstream: the servers that a configuration names, and the upstream's, as values to connect with.

Tests  tests/integration/test_drainer_checkpoint.py, tests/drainer/config/test_database_options.py
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from drainer.config.database_options import SECTION, UpstreamOptions
from drainer.config.options import DrainerConfig
from drainer.mysql.addresses import Addresses, Place
from drainer.mysql.connection import Target
from drainer.mysql.mark import Mark
from drainer.mysql.session_mode import session_mode, session_variables
from tidb_binlog.errors import ConfigError
from tidb_binlog.net.tls import ClientTls


def target_of(settings: DrainerConfig) -> Target:
    """With several hosts, all targets of this process are at the same one at any time."""
    host, port, user, password = settings.downstream
    places = settings.downstream_places
    several = len(places) > 1 and not settings.to_socket
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
        addresses=addresses_of(places) if several else None,
        mark=Mark(settings.channel_id) if settings.loopback_control else None,
    )


@functools.cache
def addresses_of(places: tuple[Place, ...]) -> Addresses:
    """The same one for the same servers: which one is in use is a matter of the process."""
    return Addresses(places)


def each_place(settings: DrainerConfig) -> Iterator[DrainerConfig]:
    """The configuration of each server of several, for who examines all."""
    if settings.to_socket or isinstance(settings.to_host, str):
        yield settings
        return
    for host, port in settings.downstream_places:
        yield replace(settings, to_host=host, to_port=port)


def at_place_in_use(settings: DrainerConfig) -> DrainerConfig:
    """For another process that is to look at the server that this one writes to."""
    addresses = target_of(settings).addresses if settings.to_database else None
    if addresses is None:
        return settings
    host, port = addresses.place
    return replace(settings, to_host=host, to_port=port)


def row_target_of(settings: DrainerConfig, target: Target) -> Target | None:
    """The server of the checkpoint row, None if that is the downstream."""
    if not settings.checkpoint_type:
        return None
    if (settings.checkpoint_host, settings.checkpoint_port) == (target.host, target.port):
        return None  # with the lanes in one transaction
    return checkpoint_target_of(settings)


def checkpoint_target_of(settings: DrainerConfig) -> Target:
    """The server that `[syncer.to.checkpoint]` names."""
    paths = settings.checkpoint_tls
    host, port, user, password = settings.checkpoint_server
    tls = ClientTls(paths, use="checkpoint") if paths else None
    return Target(
        host, port, user, password, tls=tls, side="checkpoint server", section="syncer.to.checkpoint"
    )


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
