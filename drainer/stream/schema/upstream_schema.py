"""Upstream schema: the tables as the upstream had them at a timestamp, read from the upstream.

Order   the upstream is asked for its schema there, and its history since. Where it does not know it (it keeps
        nothing but the history, or that time is collected) the whole history is read, page by page

Tests  tests/drainer/app/test_load_schema.py
"""

from __future__ import annotations

import asyncio
import contextlib

from drainer.stream.schema.history_reader import SchemaReading, Until
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.errors import Unavailable
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import SchemaAt, SchemaHistory

logger = log.get("drainer.tracked_schema")


async def read_schema(history: SchemaHistory, ts: Ts, version: int, *, at_ts: bool = True) -> SchemaTracker:
    """As it was at `ts`, at that version (0: not known). `at_ts`: the upstream may be asked for it."""
    if at_ts and (found := await read_at(history, ts)) is not None:
        return found
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
