"""Snapshot: a whole cluster at one time: the registry and what is prepared, then every node at once.

Tests  tests/deploy/ctl/commands/test_top.py
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Final

from common.clock import SystemClock
from common.cluster.node import OFFLINE
from common.cluster.registry import KINDS, NodeEntry
from common.errors import BinlogError
from common.etcd.client import EtcdClient
from common.etcd.registry import EtcdRegistry
from common.net.tls import TlsConfig
from common.upstream.standalone.prepared import prepared
from deploy.ctl.cluster import node_lookup, overview
from deploy.ctl.cluster.overview import NodeSnapshot, Overview
from deploy.ctl.net import node_http

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
