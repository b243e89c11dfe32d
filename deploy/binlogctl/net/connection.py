"""Connection: to the registry and to the source of timestamps, for as long as a command lasts.

Tests  tests/deploy/binlogctl/commands/test_go_compat.py
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from binlogctl.cli.settings import CtlSettings

if TYPE_CHECKING:
    from tidb_binlog.etcd.client import EtcdClient
    from tidb_binlog.etcd.registry import EtcdRegistry


@contextlib.asynccontextmanager
async def cluster(settings: CtlSettings) -> AsyncIterator[tuple[EtcdRegistry, EtcdClient]]:
    """The registry, and the etcd under it. Raises `Unavailable`, `ConfigError`."""
    from tidb_binlog.etcd.client import EtcdClient
    from tidb_binlog.etcd.registry import EtcdRegistry

    client = await EtcdClient.connect(settings.pd_urls, tls=settings.tls)
    registry = EtcdRegistry(client)
    try:
        yield registry, client
    finally:
        await registry.close()


@contextlib.asynccontextmanager
async def registry(settings: CtlSettings) -> AsyncIterator[EtcdRegistry]:
    """Raises as `cluster`."""
    async with cluster(settings) as (nodes, _):
        yield nodes


async def timestamp(settings: CtlSettings) -> int:
    """A timestamp of the upstream, whichever it is. Raises `Unavailable`, `Rejected` where no cluster is."""
    from tidb_binlog.upstream import choice

    upstream = await choice.connect("auto", settings.pd_urls, tls=settings.tls, create=False)
    try:
        return await upstream.oracle.timestamp()
    finally:
        await upstream.close()
