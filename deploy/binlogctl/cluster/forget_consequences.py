"""Forget consequences: what is lost when a node is forgotten, by what the registry says.

Out    a `Loss`: in words, and whether a drainer still needs what goes
Why    a pump's binlogs are nowhere else. What it stored after it last wrote to the registry is unknown: that
       is said too
Tests  tests/deploy/binlogctl/cluster/test_node_lookup.py
"""

from __future__ import annotations

from binlogctl.cluster.node_lookup import RegisteredNode
from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE
from tidb_binlog.cluster.registry import PUMPS, ClusterView
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """`is_needed`: a drainer has not read everything of it."""

    lines: tuple[str, ...]
    is_needed: bool


def loss(view: ClusterView, node: RegisteredNode) -> Loss:
    """Of forgetting this node, which is dead."""
    return _of_pump(view, node) if node.kind == PUMPS else _of_drainer(node)


def _of_pump(view: ClusterView, node: RegisteredNode) -> Loss:
    status = node.entry.status
    if status.state == OFFLINE:
        return Loss(("it had left for good: every drainer had read everything",), is_needed=False)
    lines: list[str] = []
    for node_id, entry in sorted(view.drainers.items()):
        if entry.status.state == OFFLINE:
            continue
        if (applied := entry.status.max_commit_ts) < status.max_commit_ts:
            behind_s = tso.physical_s(status.max_commit_ts) - tso.physical_s(applied)
            span = f"{behind_s:.1f} s" if applied else "everything"
            lines.append(
                f"drainer {node_id} has applied up to {applied}, this pump had sorted up to "
                f"{status.max_commit_ts}: what lies between is lost to it ({span})"
            )
    needed = bool(lines)
    if not needed:
        sorted_ts = status.max_commit_ts
        lines.append(f"every drainer has applied what it had sorted when it last said so ({sorted_ts})")
    lines.append("what it took after that is lost: compare the data of both sides, or copy it anew")
    return Loss(tuple(lines), needed)


def _of_drainer(node: RegisteredNode) -> Loss:
    applied = node.entry.status.max_commit_ts
    if node.entry.status.is_reader:
        return Loss(
            (
                f"it had done everything up to {applied}; pumps no longer keep for it what came after",
                "started again under this name it goes on from there if they still have that",
            ),
            is_needed=False,
        )
    return Loss(
        (
            f"it had applied up to {applied}; pumps no longer keep for it what came after",
            "started again it goes on from its checkpoint if they still have that, else it says so and ends",
        ),
        is_needed=False,
    )
