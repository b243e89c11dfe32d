"""Conditions of a pump: what of its retention an operator is told of by `notify-url`.

Tests  tests/pump/retention/test_conditions.py
"""

from __future__ import annotations

from collections.abc import Iterator

from tidb_binlog.notify.events import Condition, Type
from tidb_binlog.status.pump import PurgeOutlook, RetentionStatus


def conditions(retention: RetentionStatus) -> Iterator[Condition]:
    """A purge that reaches, or has reached, what a drainer has not applied."""
    for one in retention.drainers:
        if one.alarm or one.lost:
            yield _purge(one)


def _purge(one: PurgeOutlook) -> Condition:
    left_s = one.left_s or 0.0
    message = (
        f"binlogs that drainer {one.node_id} has not applied are purged"
        if one.lost
        else f"retention reaches in {left_s / 3600:.1f} hours what drainer {one.node_id} has not applied"
    )
    return Condition(
        Type.PURGE_AHEAD,
        one.node_id,
        message,
        "start the drainer, raise gc (a reload takes it), or remove the drainer: binlogctl forget",
        {
            "checkpoint": one.checkpoint,
            "left_s": left_s,
            "limit": one.limit,
            "live": one.live,
            "lost": one.lost,
        },
    )
