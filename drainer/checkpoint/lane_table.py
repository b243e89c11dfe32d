"""Lane table: how far each lane has applied, moved in the transaction that carries the lane's rows.

Drives  the connection of a lane, inside its transaction
Holds   only the drainer whose epoch is in the rows moves them, and only from where they were left: an UPDATE
        that matches none says that another one took over, or that this server went back in time
Tests   tests/drainer/checkpoint/test_store.py, tests/drainer/checkpoint/test_committed.py
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drainer.checkpoint.committed import Committed
from drainer.checkpoint.fencing import Fence
from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.change import Position
from drainer.mysql.session_lock import Claims


@dataclass(frozen=True, slots=True)
class LaneTable:
    """Statements on one cluster's lane rows. Used inside the caller's downstream transaction.

    `committed` notes every COMMIT that was answered, of lanes and of the store.
    """

    schema: str
    cluster_id: int
    epoch: int
    committed: Committed = field(default_factory=Committed, compare=False, kw_only=True)

    @property
    def _name(self) -> bytes:
        return qualified(self.schema, "lanes")

    @property
    def _fence(self) -> Fence:
        return Fence(self.cluster_id, self.epoch)

    def advance(self, connection: Connection, lane: int, position: Position) -> None:
        """Move the lane's row from the position that was committed last.

        `Conflict` if a newer drainer owns it, `WentBack` if it stands elsewhere.
        """
        last = self.committed.of(lane)
        where = b"cluster_id=%d AND lane=%d AND epoch=%d" % (self.cluster_id, lane, self.epoch)
        if last is not None:
            where += b" AND applied_ts=%d AND applied_rows=%d" % (last.commit_ts, last.rows)
        matched = connection.run(
            b"UPDATE %s SET applied_ts=%d, applied_rows=%d WHERE "
            % (self._name, position.commit_ts, position.rows)
            + where,
        )
        if matched != 1:
            connection.rollback()
            self.check(connection, lane)
            raise self._fence.went_back(f"lane {lane} does not stand where it was left")

    def position(self, connection: Connection, lane: int, *, lock: bool = False) -> Position:
        """Where the lane is. `lock`: after what is still being committed; the caller ends its transaction."""
        found = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane=%d AND epoch=%d%s"
            % (self._name, self.cluster_id, lane, self.epoch, b" FOR UPDATE" if lock else b""),
        )
        if len(found) != 1:
            raise self._fence.taken_over()
        return Position(int(found[0][0]), int(found[0][1]))

    def lowest(self, connection: Connection, below: int) -> Position:
        """Where the last of all lanes with a number below that is."""
        found = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane<%d AND epoch=%d"
            % (self._name, self.cluster_id, below, self.epoch),
        )
        if not found:
            raise self._fence.taken_over()
        return min((Position(int(ts), int(rows)) for ts, rows in found), key=Position.order_key)

    def check(self, connection: Connection, lane: int) -> None:
        """See that the lane is ours, and no less far than was committed; ends the transaction.

        Raises `Conflict`, `WentBack`.
        """
        state = qualified(self.schema, "drainer_state")
        (epochs, found) = connection.rows_if_there(
            b"SELECT epoch FROM %s WHERE cluster_id=%d" % (state, self.cluster_id),
            b"SELECT applied_ts, applied_rows, epoch FROM %s WHERE cluster_id=%d AND lane=%d"
            % (self._name, self.cluster_id, lane),
        )
        connection.rollback()
        self._fence.check_epoch(max((int(row[-1]) for row in (*epochs, *found)), default=None))
        stored = Position(int(found[0][0]), int(found[0][1])) if found else None
        self._fence.check_position(f"lane {lane}", self.committed.of(lane), stored)

    def claim(self, connection: Connection, lane: int) -> None:
        """Mark a lane's session, so that a successor can end it, and see that the lane is still ours."""
        claims = Claims(self.schema, self.cluster_id)
        claims.reclaim(connection, lane, lambda: self.check(connection, lane))
