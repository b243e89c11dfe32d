"""Cluster: what `pd-urls` of a configuration leads to: the upstream, and the registry of its nodes.

Owns   both connections, for as long as the block runs
Stops  the end of the `async with`
Tests  tests/deploy/binlogctl/commands/test_load.py, tests/spark/live/test_stream.py
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tidb_binlog.etcd.registry import connect_registry
from tidb_binlog.upstream import choice

if TYPE_CHECKING:
    from drainer.config.options import DrainerConfig
    from tidb_binlog.etcd.registry import EtcdRegistry
    from tidb_binlog.upstream_port import Upstream


@contextlib.asynccontextmanager
async def cluster(settings: DrainerConfig) -> AsyncIterator[tuple[Upstream, EtcdRegistry]]:
    """The upstream, and the registry beside it. Raises `Unavailable`, `Rejected`, `ConfigError`."""
    kind = choice.check_kind(settings.upstream)
    async with contextlib.AsyncExitStack() as ends:
        upstream = await choice.connect(kind, settings.pd_urls, tls=settings.tls, create=False)
        ends.push_async_callback(upstream.close)
        nodes = await connect_registry(settings.pd_urls, tls=settings.tls)
        ends.push_async_callback(nodes.close)
        yield upstream, nodes
