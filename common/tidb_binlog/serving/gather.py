"""Gather: every node of a cluster asked for its /status, all at once.

Out    snapshots for `tidb_binlog.cluster.overview`; a node that does not answer is one too, with the reason
Holds  an answer has BYTES_MAX at most, and ASKED_MAX are waited for at a time
Tests  tests/common/serving/test_cluster_page.py, tests/deploy/binlogctl/commands/test_top.py
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.cluster.overview import NodeSnapshot, label
from tidb_binlog.cluster.registry import KINDS, ClusterView, NodeEntry
from tidb_binlog.errors import BinlogError
from tidb_binlog.net import node_http
from tidb_binlog.net.tls import TlsConfig

DEADLINE_S: Final = 3.0
"""A pump answers within two seconds whatever the registry does."""
DEAD_S: Final = 1.0
"""For one whose lease is gone: it may be there all the same, but its host is rather off, and says nothing."""
ASKED_MAX: Final = 32
BYTES_MAX: Final = 2 << 20
"""More than a drainer of thousands of lanes says; what is in it is all kept until the answer is made."""
_WHO: Final = re.compile(r"^.*? does not answer(?: over TLS)?: ")

Documents = Mapping[tuple[str, str], Mapping[str, Any]]
"""By kind and id."""


async def gather(
    view: ClusterView, tls: TlsConfig | None, documents: Documents | None = None
) -> list[NodeSnapshot]:
    """Of those that are not offline. `documents`: of nodes that need not be asked."""
    nodes = [
        (kind, entry)
        for kind in KINDS
        for _, entry in sorted(view.of(kind).items())
        if entry.status.state != OFFLINE
    ]
    turn = asyncio.Semaphore(ASKED_MAX)

    async def look(kind: str, entry: NodeEntry) -> NodeSnapshot:
        document = (documents or {}).get((kind, entry.status.node_id))
        if document is not None:
            return _snapshot(kind, entry, document)
        async with turn:
            return await _ask(kind, entry, tls)

    return list(await asyncio.gather(*(look(kind, entry) for kind, entry in nodes)))


async def _ask(kind: str, entry: NodeEntry, tls: TlsConfig | None) -> NodeSnapshot:
    status = entry.status
    who = label(kind, status.node_id, reader=status.is_reader)
    deadline_s = DEAD_S if entry.alive is False else DEADLINE_S
    try:
        answer = await node_http.ask(
            who, status.host, "GET", "/status", tls, deadline_s=deadline_s, bytes_max=BYTES_MAX
        )
    except BinlogError as failure:
        return _snapshot(kind, entry, None, _WHO.sub("", failure.message))
    error = "" if answer.document is not None else f"its /status is {answer.said}"
    return _snapshot(kind, entry, answer.document, error)


def _snapshot(
    kind: str, entry: NodeEntry, document: Mapping[str, Any] | None, error: str = ""
) -> NodeSnapshot:
    status = entry.status
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
