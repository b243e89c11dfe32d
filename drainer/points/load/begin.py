"""Begin: a load begins, goes on with one that was begun, is done already, or is refused, by what is stored
downstream.

Holds   a Drainer's checkpoint is never passed over: rows that it applied would be loaded once more
Why     a load that is killed after its last step is called once more, as after any other one
Tests   tests/drainer/points/load/test_load.py
"""

from __future__ import annotations

from drainer.checkpoint.inspection import Inspection, inspect
from drainer.checkpoint.load_progress import LoadState
from drainer.checkpoint.resume import is_foreign
from drainer.config.downstream import row_target_of, target_of
from drainer.config.options import DrainerConfig
from drainer.points.load.reconcile import Mode
from drainer.points.load.store_checkpoint import table_of
from tidb_binlog.errors import Conflict, Rejected


def to_go_on_with(settings: DrainerConfig, cluster_id: int, mode: Mode) -> LoadState | None:
    """The load that was begun, or that is done and nothing has followed; None: a new one begins. Blocks.
    Raises `Rejected`, `Conflict`."""
    target = target_of(settings)
    found = inspect(
        target,
        settings.checkpoint_schema,
        cluster_id,
        table=table_of(settings),
        row_target=row_target_of(settings, target),
    )
    if found.sessions:
        raise Conflict(
            f"a Drainer works on this downstream (sessions {', '.join(map(str, found.sessions))})",
            hint="stop it first",
        )
    if found.load is not None and found.load.is_unfinished:
        return found.load
    if mode is not Mode.REPLACE and _is_last(found):
        return found.load
    if not found.is_empty and mode is not Mode.REPLACE:
        of_state = found.stored.state.checkpoint if found.stored.state else None
        row = found.stored.row or of_state
        at = f" at {row.commit_ts}" if row is not None else ""
        raise Rejected(
            f"the downstream has a checkpoint of cluster {cluster_id}{at}: a Drainer goes on from it",
            hint="start the Drainer; or -replace, which removes the checkpoint and the tables",
        )
    return None


def _is_last(found: Inspection) -> bool:
    """Whether the end of a load is the last that was written: a Drainer's start clears `consistent`."""
    state = found.stored.state
    checkpoint = state.checkpoint if state is not None else None
    if found.load is None or checkpoint is None or is_foreign(found.stored):
        return False
    return checkpoint.consistent and checkpoint.commit_ts == found.load.ts
