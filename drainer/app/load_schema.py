"""Load schema: where the tracker comes from at a start, and how what it learns is kept.

Order   the stored snapshot, then what the history has since. Without one the schema as the upstream had it
        where the stream begins, and what the history has since. Where the upstream does not know it (it keeps
        nothing but the history, or that time is collected) the whole history, page by page. The first
        snapshot is made when the first checkpoint is stored, not while the start waits
Holds   `keep` is called after every DDL, run or not, before its checkpoint is stored: the snapshot that is
        stored with a checkpoint is the schema at that checkpoint
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from drainer.checkpoint.resume import Start
from drainer.checkpoint.schema_snapshot import SchemaChanges, StoredSchema
from drainer.checkpoint.store import CheckpointStore
from drainer.stream.schema.history_reader import Until
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.schema.upstream_schema import read_at, read_on, read_whole
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import SchemaHistory

logger = log.get("drainer.tracked_schema")

Loader = Callable[[], Awaitable[StoredSchema | None]]


class TrackedSchema:
    """`tracker` and the way into the store. Made by `open_schema`."""

    def __init__(self, tracker: SchemaTracker, store: CheckpointStore) -> None:
        self.tracker = tracker
        self._store = store

    def keep(self, commit_ts: Ts) -> None:
        """Remember what the DDL at `commit_ts` changed; stored with the first checkpoint not before it."""
        tracker = self.tracker
        if rows := tracker.changed_since_last_dump():
            self._store.save_schema(SchemaChanges(commit_ts, tracker.version, tracker.last_job_id, rows))

    def keep_all(self, commit_ts: Ts) -> None:
        """The first snapshot: everything, as it is at `commit_ts`."""
        tracker = self.tracker
        rows = tracker.dump()
        changes = SchemaChanges(commit_ts, tracker.version, tracker.last_job_id, rows, whole=True)
        self._store.save_schema(changes)


async def open_schema(
    store: CheckpointStore,
    start: Start,
    after_ts: Ts,
    history: SchemaHistory,
    load: Loader,
    *,
    from_snapshot: bool = True,
) -> TrackedSchema:
    """The schema as it was at the checkpoint. The stream is pulled after `after_ts`.

    `load` calls `store.load_schema(start)` where the store may be used. `from_snapshot`: the upstream may be
    asked for its schema at `after_ts`. Raises what history and store do.
    """
    stored = await load()
    version = start.checkpoint.schema_version if start.checkpoint else 0
    if stored is not None:
        tracker = SchemaTracker.restore(stored.rows, stored.version)
        reading = tracker.read_history(Until(version or None, 0 if version else after_ts))
        await read_on(history, stored.history_after, tracker, reading)
        source = "stored"
    elif from_snapshot and (current := await read_at(history, after_ts)) is not None:
        tracker, source = current, "upstream"
    else:
        tracker, source = await read_whole(history, version, after_ts), "history"
    schema = TrackedSchema(tracker, store)
    if stored is None:
        schema.keep_all(start.floor_ts)
    else:
        schema.keep(start.floor_ts)
    logger.info("schema", source=source, version=tracker.version, tables=len(tracker.names()))
    return schema
