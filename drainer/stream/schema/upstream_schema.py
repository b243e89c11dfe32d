"""Upstream schema: the tables as the upstream had them at a timestamp, read there and held readable there.

Order   the upstream is asked for its schema there, and its history since. Where it does not know it (it keeps
        nothing but the history, or that time is collected) the whole history is read, page by page

Tests  tests/drainer/app/test_load_schema.py, tests/drainer/stream/schema/test_gc_safe_point.py
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from drainer.stream.schema.history_reader import SchemaReading, Until
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream.garbage_hold import BACK_MAX_S, Held, Hold
from tidb_binlog.upstream.upstream_time import UpstreamTime
from tidb_binlog.upstream_port import GarbageHold, SchemaAt, SchemaHistory

logger = log.get("drainer.tracked_schema")


async def read_schema(history: SchemaHistory, ts: Ts, version: int, *, at_ts: bool = True) -> SchemaTracker:
    """As it was at `ts`, at that version (0: not known). `at_ts`: the upstream may be asked for it."""
    if at_ts and (schema := await read_at(history, ts)) is not None:
        return schema
    return await read_whole(history, version, ts)


async def read_whole(history: SchemaHistory, version: int, ts: Ts) -> SchemaTracker:
    """From nothing but the history."""
    tracker = SchemaTracker()
    reading = tracker.read_history(Until(version or None, 0 if version else ts))
    await read_on(history, 0, tracker, reading)
    return tracker


async def read_at(history: SchemaHistory, ts: Ts) -> SchemaTracker | None:
    """As the upstream had it; None where it does not know."""
    schema = await history.schema_at(ts)
    if schema is None:
        return None
    tracker = SchemaTracker()
    try:
        await _take(tracker, schema)
    except Unavailable as error:
        logger.warning(
            "schema cannot be read at this timestamp, reading the history", ts=ts, reason=str(error)
        )
        return None
    await read_on(history, schema.history_after, tracker, tracker.read_since(schema))
    return tracker


async def _take(tracker: SchemaTracker, schema: SchemaAt) -> None:
    async with contextlib.aclosing(schema.pages) as pages:
        async for page in pages:
            await asyncio.to_thread(tracker.take_schema, page, schema.version)


async def read_on(
    history: SchemaHistory, after_id: int, tracker: SchemaTracker, reading: SchemaReading
) -> None:
    """The history after a job, on a thread, so that the next page can come in meanwhile."""
    async for page in history.pages(after_id):
        await asyncio.to_thread(reading.take, page)
    await asyncio.to_thread(tracker.end_history, reading)
    logger.info("history", after_id=after_id, jobs=reading.jobs, pending=len(reading.pending))


__all__ = ["BACK_MAX_S", "RENEW_S", "TTL_S", "CheckpointHold"]

TTL_S: Final = 300
RENEW_S: Final = 150.0
_SCHEMA: Final = Held(
    what="the schema at the checkpoint",
    is_old="the checkpoint is more than a day back, its schema is not held any more",
    is_late="the schema at the checkpoint is collected already",
    hint="a start that cannot use the schema stored with the checkpoint reads the whole DDL history",
)


class CheckpointHold(Hold):
    """The schema at the checkpoint stays readable upstream while a drainer runs, for a start that cannot use
    the one stored with the checkpoint. `position`: its commit_ts, 0 while there is none."""

    def __init__(self, garbage: GarbageHold, position: Callable[[], int], time: UpstreamTime) -> None:
        name = f"drainer_{int(time.now_s() * 1e9)}"
        super().__init__(garbage, name, position, time, _SCHEMA, ttl_s=TTL_S, renew_s=RENEW_S)
