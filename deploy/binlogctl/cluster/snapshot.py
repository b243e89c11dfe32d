"""Snapshot: a whole cluster at one time: the registry and what is prepared, then every node at once.

Tests  tests/deploy/binlogctl/commands/test_top.py
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from binlogctl.cluster import in_doubt
from tidb_binlog import tso
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster import overview
from tidb_binlog.cluster.overview import Overview
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.serving.gather import gather
from tidb_binlog.upstream.standalone.layout import prepared


async def take(registry: EtcdRegistry, client: EtcdClient, tls: TlsConfig | None) -> Overview:
    """Raises `Unavailable` when etcd does not answer; a node that does not is part of what is seen."""
    view, in_table = await asyncio.gather(registry.view(), prepared(client))
    seen = overview.build(await gather(view, tls), SystemClock().wall_s())
    return overview.with_troubles(seen, in_doubt.troubles(in_table, tso.physical_s(seen.now_ts)))


def document(seen: Overview) -> dict[str, object]:
    """For programs."""
    return {**asdict(seen), "worst": seen.worst}
