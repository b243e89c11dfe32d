"""Downstream: the servers that a configuration names, as values to connect with.

Tests  tests/integration/test_drainer_checkpoint.py
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from drainer.config.options import DrainerConfig
from drainer.mysql.addresses import Addresses, Place
from drainer.mysql.connection import Target
from drainer.mysql.session_mode import session_mode, session_variables
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
    paths = settings.checkpoint_tls
    host, port, user, password = settings.checkpoint_server
    tls = ClientTls(paths, use="checkpoint") if paths else None
    return Target(host, port, user, password, tls=tls)
