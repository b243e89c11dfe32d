"""Inspection: what is stored for a cluster, and who works on it, read without writing or locking anything.

Out    `Inspection`: what a start would find now, and the sessions of a drainer that lives
Holds  no drainer is fenced off by it. What is read may be older than what a start finds: a living drainer
       continues
Why    raising the epoch ends a drainer that works. Only a process that can replicate itself may do that
Tests  tests/drainer/checkpoint/test_committed.py, tests/drainer/app/test_recovery.py
"""

from __future__ import annotations

from drainer.checkpoint.go_table import RowTable
from drainer.checkpoint.load_progress import LoadProgress, LoadState
from drainer.checkpoint.resume import DrainerState, StoredState
from drainer.checkpoint.store import SIDE_LANES
from drainer.checkpoint.value import DEFAULT_TABLE, Checkpoint
from drainer.mysql.connection import Target, connect
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.change import Position
from drainer.mysql.session_lock import Claims
from tidb_binlog.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Inspection:
    """`sessions`: connection ids that a drainer holds downstream; a dead one's stay until the server gives
    them up. `waits`: a refused DDL does. `load`: the last load of existing rows."""

    stored: StoredState
    sessions: tuple[int, ...] = ()
    waits: bool = False
    load: LoadState | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing is stored of the cluster."""
        return self.stored.row is None and self.stored.state is None

    @property
    def is_to_load(self) -> bool:
        """A first start copies what is upstream: nothing is stored of the cluster, or a copy was begun."""
        return self.is_empty if self.load is None else self.is_empty or self.load.is_unfinished


def inspect(
    target: Target,
    schema: str,
    cluster_id: int,
    *,
    table: str = DEFAULT_TABLE,
    row_target: Target | None = None,
) -> Inspection:
    """Blocks. Raises PyMySQL's errors, `Corruption`, `DownstreamError`, `Unavailable`."""
    connection = connect(target)
    try:
        mine = b" WHERE cluster_id=%d" % cluster_id
        name = qualified(schema, "lanes")
        states, lanes, waiting = connection.rows_if_there(
            b"SELECT epoch, owner, checkpoint, intent FROM " + qualified(schema, "drainer_state") + mine,
            b"SELECT lane, applied_ts, applied_rows FROM " + name + mine + b" ORDER BY lane",
            b"SELECT job_id FROM " + qualified(schema, "quarantine") + mine + b" LIMIT 1",
        )
        load = LoadProgress(schema, cluster_id).state(connection)
        row, others = _row(target if row_target is None else row_target, schema, table, cluster_id)
        numbers = [*(int(lane) for lane, _, _ in lanes), SIDE_LANES]
        sessions = Claims(schema, cluster_id).holders(connection, numbers)
    finally:
        connection.close()
    positions = tuple(Position(int(ts), int(done)) for lane, ts, done in lanes if lane < SIDE_LANES)
    state = None
    if states and states[0][0]:
        state = DrainerState.from_row(*states[0])
    stored = StoredState(row, state, positions, others, row_target is not None)
    return Inspection(stored, tuple(sessions), bool(waiting), load)


def _row(
    target: Target, schema: str, table: str, cluster_id: int
) -> tuple[Checkpoint | None, tuple[int, ...]]:
    connection = connect(target)
    try:
        name = qualified(schema, table)
        (table_rows,) = connection.rows_if_there(b"SELECT COUNT(*) FROM " + name)
        return RowTable(schema, table, cluster_id).load(connection) if table_rows else (None, ())
    finally:
        connection.close()
