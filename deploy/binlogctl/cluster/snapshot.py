"""Snapshot: a whole cluster at one time: the registry and what is prepared, then every node at once.

Tests  tests/deploy/binlogctl/commands/test_top.py
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Final

from binlogctl.cluster import node_lookup, overview
from binlogctl.cluster.overview import NodeSnapshot, Overview
from binlogctl.net import node_http
from tidb_binlog.clock import SystemClock
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.cluster.registry import KINDS, NodeEntry
from tidb_binlog.errors import BinlogError
from tidb_binlog.etcd.client import EtcdClient
from tidb_binlog.etcd.registry import EtcdRegistry
from tidb_binlog.net.tls import TlsConfig
from tidb_binlog.upstream.standalone.layout import prepared

DEADLINE_S: Final = 3.0
"""A pump answers within two seconds whatever the registry does."""


async def take(registry: EtcdRegistry, client: EtcdClient, tls: TlsConfig | None) -> Overview:
    """Raises `Unavailable` when etcd does not answer; a node that does not is part of what is seen."""
    view, in_table = await asyncio.gather(registry.view(), prepared(client))
    nodes = [
        (kind, entry)
        for kind in KINDS
        for _, entry in sorted(view.of(kind).items())
        if entry.status.state != OFFLINE
    ]
    seen = await asyncio.gather(*(_ask(kind, entry, tls) for kind, entry in nodes))
    return overview.build(seen, SystemClock().wall_s(), in_table)


async def _ask(kind: str, entry: NodeEntry, tls: TlsConfig | None) -> NodeSnapshot:
    status = entry.status
    document, error = None, ""
    try:
        answer = await node_http.ask(
            f"{node_lookup.role(kind, status)} {status.node_id}",
            status.host,
            "GET",
            "/status",
            tls,
            deadline_s=DEADLINE_S,
        )
        document = answer.document
        if document is None:
            error = f"its /status is {answer.said}"
    except BinlogError as failure:
        error = failure.message.rpartition(" does not answer: ")[2]
    return NodeSnapshot(
        kind,
        status.node_id,
        status.host,
        status.state,
        entry.alive,
        status.max_commit_ts,
        status.update_ts,
        document,
        error,
        reader=status.is_reader,
    )


def document(seen: Overview) -> dict[str, object]:
    """For programs."""
    return {**asdict(seen), "worst": seen.worst}
