"""Store checkpoint: what a load finds stored downstream when it begins, and what it stores at its end.

Drives  the checkpoint store, the registry; the checkpoint's tables, of which `-replace` takes what an earlier
        life left
Holds   by what is stored a load begins, goes on with one that was begun, is done already, or is refused: a
        Drainer's checkpoint is never passed over, since rows that it applied would be loaded once more
        The end is as if a Drainer had stopped gracefully at T: the schema at T, all lanes at T and
        `consistent` are stored in one transaction with the end of the load, and there is no moment at which a
        Drainer could start from something else. So it starts without safe mode, and a Go drainer can take the
        row over
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from drainer.checkpoint import go_table
from drainer.checkpoint.inspection import Inspection, inspect
from drainer.checkpoint.load_progress import DONE, LoadProgress, LoadState
from drainer.checkpoint.resume import is_foreign
from drainer.checkpoint.schema_snapshot import SchemaChanges
from drainer.checkpoint.store import CheckpointStore
from drainer.checkpoint.value import DEFAULT_TABLE, Checkpoint
from drainer.config.downstream import row_target_of, target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import NoSuchTable
from drainer.mysql.literal.quoting import qualified
from drainer.points.load.reconcile import Mode
from drainer.stream.schema.tracker import SchemaTracker
from tidb_binlog.cluster.node import OFFLINE, PAUSED, READER, NodeStatus
from tidb_binlog.cluster.registry import DRAINERS, Registry
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.tso import Ts


def table_of(settings: DrainerConfig) -> str:
    """The table of the checkpoint row."""
    return settings.checkpoint_table if settings.checkpoint_type else DEFAULT_TABLE


def store_end(
    settings: DrainerConfig,
    cluster_id: int,
    target: Target,
    tracker: SchemaTracker,
    state: LoadState,
    now_ts: Ts,
    living: Collection[str],
) -> None:
    """Blocks. `now_ts`: drawn now. Raises `SessionError`, `Conflict`."""
    progress = LoadProgress(settings.checkpoint_schema, cluster_id)

    def end(connection: Connection) -> None:
        progress.hold(connection, state.run)
        progress.clear(connection)
        progress.put_state(connection, LoadState(state.run, DONE, state.ts, state.mode, state.program))

    store_stop(settings, cluster_id, target, tracker, state.ts, now_ts, living, end)


def store_stop(
    settings: DrainerConfig,
    cluster_id: int,
    target: Target,
    tracker: SchemaTracker,
    ts: Ts,
    now_ts: Ts,
    living: Collection[str],
    also: Callable[[Connection], None],
) -> None:
    """As if a Drainer had stopped at `ts`; `also` is done in the same transaction. As `store_end`."""
    store = CheckpointStore(
        target,
        cluster_id,
        schema=settings.checkpoint_schema,
        table=table_of(settings),
        row_target=row_target_of(settings, target),
        owner=settings.name,
    )
    try:
        lanes = 1 if settings.dispatches_whole else settings.worker_count
        store.start(lanes, ts, now_ts, initial_is_given=True, living=living)
        store.save_schema(SchemaChanges(ts, tracker.version, tracker.last_job_id, tracker.dump(), whole=True))
        checkpoint = Checkpoint(ts, True, tracker.version, epoch=store.epoch)
        store.together(also, lanes_at=ts, checkpoint=checkpoint)
    finally:
        store.close()


def forget_checkpoint(settings: DrainerConfig, cluster_id: int, connection: Connection) -> None:
    """Nothing is stored of the cluster any more; in the transaction of `connection`, where the row is too."""
    schema = settings.checkpoint_schema
    for name in go_table.NAMES:
        _delete(connection, schema, name, b"cluster_id=%d" % cluster_id)
    row_target = row_target_of(settings, target_of(settings))
    if row_target is None:
        _delete(connection, schema, table_of(settings), b"clusterID=%d" % cluster_id)
        return
    elsewhere = connect(row_target)
    try:
        _delete(elsewhere, schema, table_of(settings), b"clusterID=%d" % cluster_id)
        elsewhere.commit()
    finally:
        elsewhere.close()


def _delete(connection: Connection, schema: str, table: str, which: bytes) -> None:
    try:
        connection.run(b"DELETE FROM " + qualified(schema, table) + b" WHERE " + which)
    except NoSuchTable:
        pass


async def keep_from(settings: DrainerConfig, nodes: Registry, ts: Ts, reader: str = "") -> None:
    """In the registry the Drainer of these settings, or a reader of that name, stands at `ts` and is paused,
    so that pumps keep what follows for it. Raises `Rejected` where it runs."""
    name = reader or settings.name
    entry = (await nodes.view()).drainers.get(name)
    if entry is not None and entry.alive:
        raise Rejected(
            f"{'reader' if entry.status.is_reader else 'drainer'} {name} is running",
            hint="stop it first, and start it afterwards",
        )
    if reader and entry is not None and not entry.status.is_reader and entry.status.state != OFFLINE:
        raise Rejected(f"{name} is a Drainer's node id", hint="give this reader another name")
    status = NodeStatus(name, settings.advertised, PAUSED, ts, ts, label=READER if reader else None)
    await nodes.put(DRAINERS, status, entry.mod_revision if entry is not None else None)


def to_go_on_with(settings: DrainerConfig, cluster_id: int, mode: Mode) -> LoadState | None:
    """The load that was begun, or that is done and nothing has followed; None: a new one begins. Blocks.
    Raises `Rejected`, `Conflict`."""
    target = target_of(settings)
    inspection = inspect(
        target,
        settings.checkpoint_schema,
        cluster_id,
        table=table_of(settings),
        row_target=row_target_of(settings, target),
    )
    if inspection.sessions:
        raise Conflict(
            f"a Drainer works on this downstream (sessions {', '.join(map(str, inspection.sessions))})",
            hint="stop it first; or have it load tables while it runs: `binlogctl load -tables 'shop.*'`",
        )
    if inspection.load is not None and inspection.load.is_unfinished:
        return inspection.load
    if mode is not Mode.REPLACE and _is_last(inspection):
        return inspection.load
    if not inspection.is_empty and mode is not Mode.REPLACE:
        of_state = inspection.stored.state.checkpoint if inspection.stored.state else None
        row = inspection.stored.row or of_state
        at = f" at {row.commit_ts}" if row is not None else ""
        raise Rejected(
            f"the downstream has a checkpoint of cluster {cluster_id}{at}: a Drainer goes on from it",
            hint="start the Drainer; or -replace, which removes the checkpoint and the tables",
        )
    return None


def _is_last(inspection: Inspection) -> bool:
    """Whether the end of a load is the last that was written: a Drainer's start clears `consistent`."""
    state = inspection.stored.state
    checkpoint = state.checkpoint if state is not None else None
    if inspection.load is None or checkpoint is None or is_foreign(inspection.stored):
        return False
    return checkpoint.consistent and checkpoint.commit_ts == inspection.load.ts
