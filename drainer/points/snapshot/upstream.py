"""Upstream snapshot: the upstream's tables at one timestamp T of the stream.

In     `[syncer.from]`, the upstream that timestamps come from
Out    exactly the transactions with a commit_ts of at most T, on several connections; the stream above T has
       the others
Drives `tidb` or `publisher_database`, as `outcome-table` says
Tests  tests/drainer/points/snapshot/test_publisher_database.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from drainer.config.upstream import upstream_target_of
from drainer.config.upstream_options import UpstreamOptions
from drainer.points.snapshot.publisher_database import open_publisher_snapshot
from drainer.points.snapshot.sessions import SnapshotLost, UpstreamSnapshot
from drainer.points.snapshot.tidb import open_tidb_snapshot
from tidb_binlog.upstream_port import Upstream


async def open_upstream_snapshot(
    settings: UpstreamOptions,
    upstream: Upstream,
    sessions: int,
    *,
    at_ts: int = 0,
    hold_name: str = "binlogctl",
    before_draw: Callable[[], Awaitable[None]] | None = None,
) -> UpstreamSnapshot:
    """`at_ts`: that moment again (where `reopens`); 0: now. `hold_name`: under which garbage is held.
    `before_draw`: of a publisher's database, awaited while no transaction can mark, before T is drawn.

    Raises `SnapshotTooOld`, `SnapshotLost`, `Unavailable`, `Rejected`, `ConfigError`.
    """
    assert sessions > 0
    target = upstream_target_of(settings)
    if not settings.from_outcome_table:
        return await open_tidb_snapshot(target, upstream, sessions, at_ts=at_ts, hold_name=hold_name)
    if at_ts:
        raise SnapshotLost(
            f"upstream {target!r} does not show {at_ts} again: it is no TiDB",
            hint="begin at a new timestamp",
        )
    return await open_publisher_snapshot(
        target, settings.from_outcome_table, upstream.oracle, sessions, before_draw=before_draw
    )
