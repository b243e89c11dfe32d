"""Snapshot with schema: the upstream's tables at one timestamp T, and their schema then.

Drives  the upstream's snapshot, its history and catalogue (`upstream_schema`)
Order   which version the history has, then T, then the schema at T: so no job falls between
Holds   T stays held for who comes back to it where the block ends with an error
Tests   tests/drainer/load/test_load.py, tests/drainer/dump/test_dump.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.upstream_port import Upstream
from drainer.config.upstream_options import UpstreamOptions
from drainer.load import upstream_schema
from drainer.schema.tracker import SchemaTracker
from drainer.snapshot.sessions import UpstreamSnapshot
from drainer.snapshot.upstream import open_upstream_snapshot


@asynccontextmanager
async def snapshot_with_schema(
    settings: UpstreamOptions, upstream: Upstream, sessions: int, *, at_ts: int, hold_name: str
) -> AsyncIterator[tuple[UpstreamSnapshot, SchemaTracker]]:
    """`at_ts`: at that timestamp again; 0: now. Raises as `open_upstream_snapshot`, and `SnapshotLost`."""
    history, of_tidb = upstream.history, not settings.from_outcome_table
    version = 0 if of_tidb else await upstream_schema.newest_version(history)
    snapshot = await open_upstream_snapshot(settings, upstream, sessions, at_ts=at_ts, hold_name=hold_name)
    is_done = False
    try:
        if of_tidb:
            tracker = await upstream_schema.schema_at(history, snapshot.ts)
        else:
            catalog = upstream_schema.catalog_of(upstream)
            tracker = await upstream_schema.published_at(history, catalog, snapshot.ts, version)
        yield snapshot, tracker
        is_done = True
    finally:
        await snapshot.close(keep=not is_done)
