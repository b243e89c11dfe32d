"""Liveness: what the registry's entries say of who lives, and by which clock.

Out    words and seconds, for a table of nodes
Tests  tests/deploy/binlogctl/cluster/test_node_table.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidb_binlog import tso
from tidb_binlog.cluster.node import OFFLINE, PAUSED
from tidb_binlog.cluster.registry import NodeEntry

BEAT_MAX_S: Final = 30.0
"""The entry of a node that lives is not older than that, by the clock that it goes by."""
_LEFT: Final = (PAUSED, OFFLINE)
"""Who says so is not dead: his process ended in order."""


def life(state: str, held: bool | None) -> str:
    """What a node's lease says: yes, no (left in order), dead, or ? where there never was one."""
    if held is None:
        return "?"
    return "yes" if held else "no" if state in _LEFT else "dead"


def clock_s(entries: Iterable[NodeEntry], wall_s: float) -> float:
    """What time it is for nodes of a kind: this host's time, unless none that lives has ever seen it. They go
    by the upstream's clock."""
    beats = [
        tso.physical_s(entry.status.update_ts) for entry in entries if entry.alive and entry.status.update_ts
    ]
    return wall_s if not beats or abs(max(beats) - wall_s) <= BEAT_MAX_S else max(beats)
