"""Conditions of a pump: what of its retention an operator is told of by `notify-url`.

Tests  tests/pump/retention/test_conditions.py
"""

from __future__ import annotations

from collections.abc import Iterator

from tidb_binlog.notify.events import Condition, Type
from tidb_binlog.status.pump import PurgeOutlook, RetentionStatus


def conditions(retention: RetentionStatus) -> Iterator[Condition]:
    """A purge that reaches, or has reached, what a drainer has not applied."""
    for outlook in retention.drainers:
        if outlook.alarm or outlook.lost:
            yield _purge(outlook)


def _purge(outlook: PurgeOutlook) -> Condition:
    left_s = outlook.left_s or 0.0
    message = (
        f"binlogs that drainer {outlook.node_id} has not applied are purged"
        if outlook.lost
        else f"retention reaches in {left_s / 3600:.1f} hours what drainer {outlook.node_id} has not applied"
    )
    return Condition(
        Type.PURGE_AHEAD,
        outlook.node_id,
        message,
        "start the drainer, raise gc (a reload takes it), or remove the drainer: binlogctl forget",
        {
            "checkpoint": outlook.checkpoint,
            "left_s": left_s,
            "limit": outlook.limit,
            "live": outlook.live,
            "lost": outlook.lost,
        },
    )
