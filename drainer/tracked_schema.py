"""Tracked schema: where the tracker comes from at a start, and how what it learns is kept.

Drives  the schema tracker (core), the checkpoint store's snapshot, the upstream's history
Order   the snapshot, then what the history has since; without a snapshot the whole history, of which the
        first snapshot is made when the first checkpoint is stored, not while the start waits
Holds   `keep` is called behind every DDL, run or not, before its checkpoint is stored: the snapshot that is
        stored with a checkpoint is the schema at that checkpoint
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from common import log
from common.upstream import SchemaHistory
from drainer.checkpoint import CheckpointStore
from drainer.schema import SchemaTracker
from drainer.schema_store import SchemaChanges, StoredSchema
from drainer.takeover import Start

logger = log.get(__name__)

Loader = Callable[[], Awaitable[StoredSchema | None]]


class TrackedSchema:
    """`tracker` and the way into the store. Made by `open_schema`."""

    def __init__(self, tracker: SchemaTracker, store: CheckpointStore) -> None:
        self.tracker = tracker
        self._store = store

    def keep(self, commit_ts: int) -> None:
        """Remember what the DDL at `commit_ts` changed; stored with the first checkpoint not before it."""
        tracker = self.tracker
        if rows := tracker.changed_since_last_dump():
            self._store.save_schema(SchemaChanges(commit_ts, tracker.version, tracker.last_job_id, rows))

    def keep_all(self, commit_ts: int) -> None:
        """The first snapshot: everything, as it is at `commit_ts`."""
        tracker = self.tracker
        rows = tracker.dump()
        changes = SchemaChanges(commit_ts, tracker.version, tracker.last_job_id, rows, whole=True)
        self._store.save_schema(changes)


async def open_schema(
    store: CheckpointStore, start: Start, behind_ts: int, history: SchemaHistory, load: Loader
) -> TrackedSchema:
    """The schema as it was at the checkpoint. The stream is pulled behind `behind_ts`.

    `load` calls `store.load_schema(start)` where the store may be used. Raises what history and store do.
    """
    version = start.checkpoint.schema_version if start.checkpoint else 0
    stored = await load()
    after_id = stored.history_after if stored else 0
    jobs = [job async for page in history.pages(after_id) for job in page]
    tracker = SchemaTracker.restore(stored.rows, stored.version) if stored else SchemaTracker()
    await asyncio.to_thread(
        tracker.expect, jobs, schema_version=version or None, finished_ts=0 if version else behind_ts
    )
    schema = TrackedSchema(tracker, store)
    if stored is None:
        schema.keep_all(start.floor_ts)
    else:
        schema.keep(start.floor_ts)
    logger.info("schema", version=tracker.version, objects=len(stored.rows) if stored else 0, jobs=len(jobs))
    return schema
