"""Drainer file: a Drainer's configuration on this host, and the cluster that it names.

For commands that do what a Drainer would, with its upstream, downstream and rules.
Tests  tests/deploy/binlogctl/commands/test_load.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tidb_binlog.errors import FlagError

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig
    from tidb_binlog.etcd.registry import EtcdRegistry
    from tidb_binlog.upstream_port import Upstream


def read(path: str, command: str) -> DrainerConfig:
    """As the Drainer would read it, its environment included. Raises `FlagError`, `ConfigError`."""
    from drainer.config.options import ENV_PREFIX, DrainerConfig
    from tidb_binlog.config import loading

    if not path:
        raise FlagError(
            f"{command} needs -drainer-config", hint="it names the file of the Drainer that this is for"
        )
    return loading.load(
        DrainerConfig, ["-config", path], os.environ, program="drainer", env_prefix=ENV_PREFIX
    )


@contextlib.asynccontextmanager
async def cluster(settings: DrainerConfig) -> AsyncIterator[tuple[Upstream, EtcdRegistry]]:
    """The upstream, and the registry beside it. Raises `Unavailable`, `Rejected`, `ConfigError`."""
    from tidb_binlog.etcd.registry import connect_registry
    from tidb_binlog.upstream import choice

    kind = choice.check_kind(settings.upstream)
    async with contextlib.AsyncExitStack() as ends:
        upstream = await choice.connect(kind, settings.pd_urls, tls=settings.tls, create=False)
        ends.push_async_callback(upstream.close)
        nodes = await connect_registry(settings.pd_urls, tls=settings.tls)
        ends.push_async_callback(nodes.close)
        yield upstream, nodes
