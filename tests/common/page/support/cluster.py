"""Nodes of a cluster that is well, but for what a test changes."""

from __future__ import annotations

from typing import Any

from tidb_binlog import tso
from tidb_binlog.cluster.node import ONLINE
from tidb_binlog.cluster.overview import NodeSnapshot, Overview, build
from tidb_binlog.cluster.registry import DRAINERS, PUMPS

NOW_S = 1_700_000_000.0
NOW_TS = tso.from_wall_s(NOW_S)


def ago(seconds: float) -> int:
    return tso.from_wall_s(NOW_S - seconds)


def pump(node_id: str, *, left_s: float = 0.0, **changes: Any) -> NodeSnapshot:
    """`left_s`: until it purges what d1 needs, 0: it says nothing of that."""
    outlook = {"node_id": "d1", "checkpoint": ago(40), "left_s": left_s, "live": True}
    document: dict[str, Any] = {
        "CommitTS": NOW_TS,
        "pump": {
            "state": ONLINE,
            "node_id": node_id,
            "watermark": ago(0.5),
            "open_prewrites": 3,
            "writer": "ok",
            "stages": {"sorted": {"lag_s": 0.0}},
            "retention": {"drainers": [outlook] if left_s else []},
        },
    }
    return _node(PUMPS, node_id, f"{node_id}:8250", {"document": document, **changes})


def drainer(node_id: str, *, behind_s: float = 0.0, **changes: Any) -> NodeSnapshot:
    shares = {"write_s": 0.1, "sort_wait_s": 0.1, "pull_s": 0.1, "queue_s": 0.3, "apply_s": 0.4}
    lag = {name: share * behind_s for name, share in shares.items()}
    eta = {} if behind_s else {"eta_s": 0.0}
    document = {
        "State": ONLINE,
        "NodeID": node_id,
        "AppliedTS": ago(behind_s or 1.0),
        "Lag": {"total_s": behind_s, **lag, **eta, "rows_per_s": 1200.0},
    }
    return _node(DRAINERS, node_id, f"{node_id}:8249", {"document": document, **changes})


def _node(kind: str, node_id: str, address: str, changes: dict[str, Any]) -> NodeSnapshot:
    fields = {"state": ONLINE, "alive": True, "error": "", **changes}
    return NodeSnapshot(kind, node_id, address, told_ts=ago(2), update_ts=ago(1), **fields)


def overview_of(*nodes: NodeSnapshot) -> Overview:
    return build(nodes, NOW_S)
