"""Imported: the checkpoint of a downstream that another tool has filled from a backup.

Holds   stored as a load's end: all lanes at T, the schema of T, `consistent`. So no safe mode follows
Never   touches a downstream that has a checkpoint, unless told so; a Drainer that runs; takes the backup of
        another cluster, one of a time that is still to come, or an incremental one that leaves a gap
"""

from __future__ import annotations

import asyncio

from drainer.checkpoint.backup_position import BackupPosition
from drainer.checkpoint.inspection import Inspection, inspect
from drainer.checkpoint.load_progress import DONE, LoadProgress, LoadState, refuse_unfinished
from drainer.checkpoint.savepoint import adopt_cluster
from drainer.checkpoint.value import Checkpoint
from drainer.config.downstream import row_target_of, target_of
from drainer.config.options import DrainerConfig
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import SessionError
from drainer.points.load.job import blocking, said
from drainer.points.load.store_checkpoint import forget_checkpoint, keep_from, store_stop, table_of
from drainer.sink.savepoint_keeper import savepoint_of
from drainer.stream.schema.upstream_schema import read_schema
from tidb_binlog.cluster.registry import Registry
from tidb_binlog.errors import Conflict, Rejected
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import Upstream

_THERE = "start the Drainer, or replace the checkpoint with -yes"


async def store_imported(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    backup: BackupPosition,
    *,
    replace: bool = False,
) -> str:
    """Where it is stored now, in words. Raises `Rejected`, `Conflict`, `DownstreamError`, `Unavailable`."""
    now_ts = await upstream.oracle.timestamp()
    if backup.cluster_id not in (0, upstream.cluster_id):
        raise Rejected(
            f"{backup.path} is of cluster {backup.cluster_id}, the upstream is {upstream.cluster_id}",
            hint="check the directory, and pd-urls of the drainer's file",
        )
    if backup.ts > now_ts:
        raise Rejected(
            f"{backup.path} is at {backup.ts}, which is above the upstream's {now_ts}",
            hint="check the directory, and pd-urls of the drainer's file",
        )
    if settings.to_database:
        return await _in_database(settings, upstream, nodes, backup, now_ts, replace)
    return await _as_savepoint(settings, upstream, nodes, backup, replace)


async def _in_database(
    settings: DrainerConfig,
    upstream: Upstream,
    nodes: Registry,
    backup: BackupPosition,
    now_ts: Ts,
    replace: bool,
) -> str:
    target, cluster_id, ts = target_of(settings), upstream.cluster_id, backup.ts
    inspection = await blocking(target, _inspect, settings, target, cluster_id)
    _refuse(inspection, cluster_id, replace)
    stored = inspection.stored
    _refuse_gap(backup, stored.row or (stored.state.checkpoint if stored.state else None))
    tracker = await read_schema(upstream.history, ts, 0, at_ts=settings.load_schema_snapshot)
    await keep_from(settings, nodes, ts)
    living = [name for name, entry in (await nodes.view()).drainers.items() if entry.alive]
    if not inspection.is_empty:
        await blocking(target, _forget, settings, target, cluster_id)
    load = inspection.load

    def end_load(connection: Connection) -> None:
        if load is not None and load.is_unfinished:
            progress = LoadProgress(settings.checkpoint_schema, cluster_id)
            progress.clear(connection)
            progress.put_state(connection, LoadState(load.run, DONE, ts, load.mode, load.program))

    try:
        await asyncio.to_thread(
            store_stop, settings, cluster_id, target, tracker, ts, now_ts, living, end_load
        )
    except SessionError as error:
        raise said(target, error) from None
    return (
        f"{settings.checkpoint_schema}.{table_of(settings)} of {row_target_of(settings, target) or target!r}"
    )


async def _as_savepoint(
    settings: DrainerConfig, upstream: Upstream, nodes: Registry, backup: BackupPosition, replace: bool
) -> str:
    await asyncio.to_thread(adopt_cluster, settings.data_dir, upstream.cluster_id)
    savepoint = savepoint_of(settings, upstream.cluster_id)
    try:
        stored = await asyncio.to_thread(savepoint.load)
        if stored is not None and not replace:
            raise Rejected(f"{savepoint.path} is there already, at {stored.commit_ts}", hint=_THERE)
        _refuse_gap(backup, stored)
        await keep_from(settings, nodes, backup.ts)
        await asyncio.to_thread(savepoint.save, Checkpoint(backup.ts, True, 0))
    finally:
        await asyncio.to_thread(savepoint.close)
    return savepoint.path


def _refuse_gap(backup: BackupPosition, stored: Checkpoint | None) -> None:
    """An incremental backup has nothing of what came before it."""
    if stored is not None and 0 < stored.commit_ts < backup.from_ts:
        raise Rejected(
            f"{backup.path} has what came after {backup.from_ts}, and the checkpoint is at"
            f" {stored.commit_ts}: what lies between would be missing",
            hint="restore the backup before it first; if that was done, name them in their order, with -yes",
        )


def _inspect(settings: DrainerConfig, target: Target, cluster_id: int) -> Inspection:
    table, row_target = table_of(settings), row_target_of(settings, target)
    return inspect(target, settings.checkpoint_schema, cluster_id, table=table, row_target=row_target)


def _refuse(inspection: Inspection, cluster_id: int, replace: bool) -> None:
    if not replace:
        refuse_unfinished(inspection.load)
    if inspection.sessions:
        raise Conflict(
            f"a Drainer works on this downstream (sessions {', '.join(map(str, inspection.sessions))})",
            hint="stop it first",
        )
    if not inspection.is_empty and not replace:
        raise Rejected(f"the downstream has a checkpoint of cluster {cluster_id}", hint=_THERE)


def _forget(settings: DrainerConfig, target: Target, cluster_id: int) -> None:
    connection: Connection = connect(target)
    try:
        forget_checkpoint(settings, cluster_id, connection)
        connection.commit()
    finally:
        connection.close()
