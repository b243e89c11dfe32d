"""Store: the checkpoint, how far the downstream has come, stored in the downstream itself.

Tables in the schema `tidb_binlog` (or as configured):

    checkpoint       clusterID, checkPoint   one row a cluster in the Go drainer's format (`value`)
    lanes            cluster_id, lane, epoch, applied_ts, applied_rows
    drainer_state    cluster_id, epoch, lane_count, owner, checkpoint, intent
    lane_basis       see `lane_basis_table`
    schema_snapshot  see `schema_snapshot`

`lanes` is the truth while lanes run: a lane moves its row in the transaction that carries its rows. The
checkpoint is never ahead of any lane; it makes a restart cheap, lets idle lanes move, and is what a Go
drainer takes over from. `drainer_state` has what only we need, stored in one transaction with the lanes.

The `checkpoint` table may live on another server (`syncer.to.checkpoint.type`). It is then written after the
downstream's part is committed: it may lag behind the lanes and is never ahead of them.

An older drainer that still runs is stopped by its next write (`fencing`). The `checkpoint` row is only
replaced where it still is what we wrote last: a Go drainer that works on the same row is noticed by the next
save.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from drainer.checkpoint import go_table
from drainer.checkpoint.fencing import Fence, check_owner, next_epoch
from drainer.checkpoint.go_table import RowTable
from drainer.checkpoint.lane_table import Committed, LaneBasisTable, LaneTable, StoreGuard
from drainer.checkpoint.resume import DrainerState, Start, StarterInfo, StoredState, resume_point
from drainer.checkpoint.schema_snapshot import SchemaChanges, SchemaStore, StoredSchema
from drainer.checkpoint.value import DEFAULT_TABLE, Checkpoint, Intent
from drainer.mysql.connection import Connection, Target
from drainer.mysql.errors import NoSuchTable, StatementRefused, safe_text
from drainer.mysql.literal.quoting import qualified, string_literal
from drainer.mysql.rows.change import Position
from drainer.mysql.session import DownstreamSession
from drainer.mysql.session_lock import DDL, STORE, Claims
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.checkpoint")

DEFAULT_SCHEMA: Final = "tidb_binlog"
SIDE_LANES: Final = 1 << 16
"""Lane rows from this number on are not lanes of the stream; they are kept by what opens them."""


class CheckpointStore:
    """The tables on connections of its own. Not thread-safe but for `save_schema`: one thread at a time.

    `row_target`: the server of the `checkpoint` table, if it is not the downstream. All methods raise
    `SessionError`; the caller tries transient ones again with the same arguments.
    """

    def __init__(
        self,
        target: Target,
        cluster_id: int,
        *,
        schema: str = DEFAULT_SCHEMA,
        table: str = DEFAULT_TABLE,
        row_target: Target | None = None,
        owner: str = "",
    ) -> None:
        self._cluster_id = cluster_id
        self._schema = schema
        self._row = RowTable(schema, table, cluster_id)
        self._owner = owner
        self._state = qualified(schema, "drainer_state")
        self._lanes = qualified(schema, "lanes")
        self._claims = Claims(schema, cluster_id)
        self._snapshot = SchemaStore(schema, cluster_id)
        self.basis = LaneBasisTable(schema, cluster_id)
        self._waiting: list[SchemaChanges] = []
        self._waiting_lock = threading.Lock()
        self.session = DownstreamSession(replace(target, mark=None), self._reclaim)
        self._row_session = DownstreamSession(row_target) if row_target is not None else None
        self.stored_ts = 0
        self._committed = Committed()
        self._guard = StoreGuard(schema, cluster_id, 0, self._committed)
        self.epoch = 0
        self.lane_count = 0

    def close(self) -> None:
        """Close the sessions; nothing more is stored."""
        self.session.close()
        if self._row_session is not None:
            self._row_session.close()

    def lane_table(self) -> LaneTable:
        """Makes a lane's view of its table, for this epoch."""
        return LaneTable(self._schema, self._cluster_id, self.epoch, committed=self._committed)

    def _reclaim(self, connection: Connection) -> None:
        if self.epoch:
            self._claims.reclaim(connection, STORE, lambda: self._guard.check(connection))

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        """After an error both connections are dropped, and with them what is not committed."""
        try:
            yield self.session.open()
        except BaseException:
            self.close()
            raise

    def _for_row(self, connection: Connection) -> Connection:
        """Where the `checkpoint` table is: in the transaction of `connection`, or on a server of its own.

        Never a new connection to the downstream: the row would be committed without the rest.
        """
        return connection if self._row_session is None else self._row_session.open()

    def confirm(self) -> None:
        """Check on a new session that the downstream has not gone back. Raises `Conflict`, `WentBack`."""
        self.close()
        self.session.open()

    def hold(self) -> None:
        """The same on the open session, which shows others that this drainer lives."""
        with self._connection() as connection:
            self._guard.check(connection)

    def check(self, connection: Connection) -> None:
        """The same for a new session of somebody else, whose transaction ends. From any thread."""
        self._guard.check(connection)

    # -- start -----------------------------------------------------------------------------------

    def start(
        self,
        lane_count: int,
        initial_ts: Ts,
        now_ts: Ts,
        *,
        initial_is_given: bool = True,
        living: Collection[str] = (),
    ) -> Start:
        """Create what is missing, fence off older drainers, decide where to begin (`resume`).

        `lane_count` is taken only at a drained point; else the stored count stays until the next one.
        `living` are the node ids of running drainers. `consistent` is false, durably, when this returns.
        Raises `Conflict`, `Corruption`; then nothing was changed.
        """
        starter = StarterInfo(
            self._cluster_id, lane_count, initial_ts, now_ts, initial_is_given, self._owner, living
        )
        self.epoch = 0  # of a start that failed
        with self._connection() as connection:
            self._row.ensure(self._for_row(connection))
            go_table.check_engines(connection, self._schema, go_table.NAMES)
            self.basis.ensure(connection)
            self._end_predecessor(connection, starter)
            state = self._lock_state(connection)
            stored = self._find(connection, state, next_epoch(state.epoch if state else 0, now_ts))
            start = resume_point(stored, starter)
            self._begin(connection, stored, start)
            self._claims.end_idle_ddl(connection)
            connection.rollback()
        return start

    def _end_predecessor(self, connection: Connection, starter: StarterInfo) -> None:
        """A frozen drainer in the middle of a transaction has locked what is changed now."""
        mine = b" WHERE cluster_id=%d" % self._cluster_id
        owners, lanes = connection.rows_if_there(
            b"SELECT owner FROM " + self._state + mine, b"SELECT lane FROM " + self._lanes + mine
        )
        for (owner,) in owners:
            check_owner(self._cluster_id, str(owner), self._owner, starter.living)
        connection.rollback()
        self._claims.succeed_store(connection, [*(int(lane) for (lane,) in lanes), SIDE_LANES])

    def guard_ddl(self, connection: Connection, role: str = DDL) -> None:
        """For every session that will run DDL, before its statements: no epoch could stop those. From any
        thread.

        Raises `Unavailable` while a predecessor's statement runs, `Conflict` when a newer drainer took over,
        `WentBack`.
        """
        self._claims.succeed_ddl(connection, role)
        self._guard.check(connection)

    def _lock_state(self, connection: Connection) -> DrainerState | None:
        """Our state, locked until the end of the transaction, and made if there is none."""
        statement = (
            b"INSERT IGNORE INTO " + self._state + b" VALUES (%d, 0, 0, '', NULL, NULL)" % self._cluster_id
        )
        try:
            connection.run(statement)
        except NoSuchTable:
            go_table.create(
                connection, self._schema, self._snapshot.create_statement, self.basis.create_statement
            )
            connection.run(statement)
        (row,) = connection.rows(
            b"SELECT epoch, owner, checkpoint, intent FROM %s WHERE cluster_id=%d FOR UPDATE"
            % (self._state, self._cluster_id),
        )
        return DrainerState.from_row(*row) if row[0] else None

    def _find(self, connection: Connection, state: DrainerState | None, epoch: int) -> StoredState:
        row, others = self._row.load(self._for_row(connection))
        # Waits for a transaction that an older drainer has under way; its commit then counts.
        self.epoch = epoch
        connection.run(
            b"UPDATE %s SET epoch=%d WHERE cluster_id=%d" % (self._lanes, self.epoch, self._cluster_id),
        )
        lanes = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane<%d ORDER BY lane"
            % (self._lanes, self._cluster_id, SIDE_LANES),
        )
        positions = tuple(Position(int(ts), int(done)) for ts, done in lanes)
        basis = self.basis.load(connection, state.epoch) if state else None
        return StoredState(row, state, positions, others, self._row_session is not None, basis)

    def _begin(self, connection: Connection, stored: StoredState, start: Start) -> None:
        """Write what `start` says; the downstream first, then the row."""
        if stored.row is None and stored.state is not None:
            logger.warning("checkpoint row is gone, resuming from the lanes", cluster_id=self._cluster_id)
        self.lane_count = len(start.positions)
        begin = replace(
            start.checkpoint or Checkpoint(start.floor_ts, False, 0),
            consistent=False,
            commit_ts=start.floor_ts,
            epoch=self.epoch,
            safe_until=start.safe_mode.until_ts,
        )
        self._write_lanes(connection, start.positions)
        committed = Committed(start.positions)
        guard = StoreGuard(self._schema, self._cluster_id, self.epoch, committed)
        guard.begin(connection)
        if start.foreign:
            self._snapshot.clear(connection)
        self.basis.begin(connection, self.epoch, start.basis, drained=start.drained)
        connection.run(
            b"UPDATE %s SET epoch=%d, lane_count=%d, owner=%s, checkpoint=%s WHERE cluster_id=%d"
            % (
                self._state,
                self.epoch,
                self.lane_count,
                string_literal(self._owner),
                string_literal(begin.to_json()),
                self._cluster_id,
            ),
        )
        if self._row_session is not None:
            connection.commit()
        of_row = self._for_row(connection)
        self._row.take(of_row, begin)
        of_row.commit()
        self._committed, self._guard = committed, guard
        self.stored_ts = begin.commit_ts

    def _write_lanes(self, connection: Connection, positions: Sequence[Position]) -> None:
        connection.run(
            b"DELETE FROM %s WHERE cluster_id=%d AND lane<%d" % (self._lanes, self._cluster_id, SIDE_LANES),
        )
        values = b",".join(
            b"(%d,%d,%d,%d,%d)" % (self._cluster_id, lane, self.epoch, position.commit_ts, position.rows)
            for lane, position in enumerate(positions)
        )
        connection.run(b"INSERT INTO " + self._lanes + b" VALUES " + values)

    def load_schema(self, start: Start) -> StoredSchema | None:
        """The schema snapshot that belongs to the start; None if there is none that can be used."""
        with self._connection() as connection:
            schema = None if start.foreign else self._snapshot.load(connection, start.floor_ts)
            connection.rollback()
        return schema

    # -- running ---------------------------------------------------------------------------------

    def save_schema(self, changes: SchemaChanges) -> None:
        """Remember what a DDL changed. From any thread; costs nothing now.

        Stored together with the first checkpoint that is not before `changes.commit_ts`: while a checkpoint
        is held back, so is the snapshot.
        """
        with self._waiting_lock:
            self._waiting.append(changes)

    def save(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint, provided that this drainer still owns the cluster."""
        self._update(checkpoint=checkpoint)

    def begin_ddl(self, intent: Intent, checkpoint: Checkpoint | None = None) -> None:
        """Store the intent durably before the statement runs. All lanes are drained: they stand right before
        it, and so does the checkpoint, or a crash after the statement would bring rows again that were
        written for other tables than are there then."""
        position = Position(intent.commit_ts - 1)
        self._update(intent=string_literal(intent.to_json()), position=position, checkpoint=checkpoint)

    def end_ddl(self, checkpoint: Checkpoint, lanes_at: int | None = None) -> None:
        """The DDL is done: clear the intent, move every lane past it, store the checkpoint.

        `lanes_at`: the DDL's commit_ts, where the checkpoint is held back before it.
        """
        position = Position(checkpoint.commit_ts if lanes_at is None else lanes_at)
        self._update(intent=b"NULL", position=position, checkpoint=checkpoint)

    def settle(self, checkpoint: Checkpoint, lanes_at: int | None = None) -> None:
        """All lanes are drained up to the checkpoint: say so in every lane row (graceful stop)."""
        position = Position(checkpoint.commit_ts if lanes_at is None else lanes_at)
        self._update(position=position, checkpoint=checkpoint)

    def release(self, checkpoint: Checkpoint) -> None:
        """As `settle`, and the checkpoint is nobody's: whoever starts next goes on from there."""
        position = Position(checkpoint.commit_ts)
        self._update(position=position, checkpoint=checkpoint, owner="")

    def let_go(self) -> None:
        """The checkpoint is nobody's, whatever lanes have and tables wait for; a Drainer may go on."""
        self._update(owner="")

    def resize(self, lane_count: int, position: Position) -> None:
        """Another number of lanes, which all stand at `position`. All lanes are drained."""
        self._update(position=position, lane_count=lane_count)
        self.lane_count = lane_count

    def together(
        self,
        work: Callable[[Connection], None],
        *,
        lanes_at: int | Position | None = None,
        clear_intent: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """`work` in one transaction with lanes, intent and checkpoint, if the epoch is still ours.

        `lanes_at`: every lane moves there; all are drained. Tried again, `work` is called again.
        """
        self._update(
            intent=b"NULL" if clear_intent else None,
            position=Position(lanes_at) if isinstance(lanes_at, int) else lanes_at,
            checkpoint=checkpoint,
            also=work,
        )

    def downstream_position(self) -> int:
        """Where the downstream is by its own clock, for `ts-map`: TiDB's present timestamp.

        0 where the server does not say, as a MySQL without a binary log.
        """
        try:
            with self._connection() as connection:
                status = connection.rows(b"SHOW MASTER STATUS")
            return int(status[0][1]) if status else 0
        except StatementRefused as error:
            logger.warning("downstream does not report its position", reason=safe_text(error))
            return 0

    def _update(
        self,
        *,
        intent: bytes | None = None,
        position: Position | None = None,
        checkpoint: Checkpoint | None = None,
        lane_count: int | None = None,
        owner: str | None = None,
        also: Callable[[Connection], None] | None = None,
    ) -> None:
        """One transaction: the state if the epoch is still ours, the lanes, the snapshot, the row."""
        lane_count = lane_count or self.lane_count
        with self._connection() as connection:
            settings = [b"lane_count=%d" % lane_count]
            if intent is not None:
                settings.append(b"intent=" + intent)
            if owner is not None:
                settings.append(b"owner=" + string_literal(owner))
            if checkpoint is not None:
                self._check_order(checkpoint)
                settings.append(b"checkpoint=" + string_literal(checkpoint.to_json()))
            changed = self._state, b",".join(settings), self._cluster_id, self.epoch
            expected = self._guard.expected()
            if connection.run(b"UPDATE %s SET %s WHERE cluster_id=%d AND epoch=%d" % changed) != 1:
                connection.rollback()
                self._guard.check(connection)
                raise Fence(self._cluster_id, self.epoch).taken_over()
            number = self._guard.count(connection, expected)
            if position is not None:
                self._write_lanes(connection, (position,) * lane_count)
            if also is not None:
                also(connection)
            moved = None if position is None else (position,) * lane_count
            if checkpoint is not None:
                self._store(connection, checkpoint, lambda: self._committed.note_write(number, moved))
            else:
                connection.commit()
                self._committed.note_write(number, moved)

    def _check_order(self, checkpoint: Checkpoint) -> None:
        if checkpoint.commit_ts < self.stored_ts:
            raise BinlogError(
                f"checkpoint {checkpoint.commit_ts} is below the stored one, {self.stored_ts}",
                hint="start the drainer again: it resumes from the stored one",
            )

    def _store(self, connection: Connection, checkpoint: Checkpoint, committed: Callable[[], None]) -> None:
        """`committed` is called when the downstream's part is."""
        with self._waiting_lock:
            ripe = [changes for changes in self._waiting if changes.commit_ts <= checkpoint.commit_ts]
        stored = self._snapshot.write(connection, ripe)
        if self._row_session is not None:
            connection.commit()
            committed()
        place = self._for_row(connection)
        self._row.store(place, checkpoint, alone=self._row_session is not None)
        place.commit()
        if self._row_session is None:
            committed()
        self._row.stored()
        self._snapshot.stored(stored)
        with self._waiting_lock:
            del self._waiting[: len(ripe)]
        self.stored_ts = checkpoint.commit_ts
