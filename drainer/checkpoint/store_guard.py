"""Store guard: no write of the checkpoint's tables on a server that does not have what was committed.

Drives  the store's connection, inside its transaction, and sessions that will run DDL
Holds   every write has a number, one higher than the last that was confirmed, in a row of its own among the
        lanes; it is only made where all lanes stand at least where they were seen to commit. Sessions may be
        connected to different servers for a while: each write asks the one that it goes to
Tests   tests/drainer/checkpoint/test_committed.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from drainer.checkpoint.committed import Committed
from drainer.checkpoint.fencing import Fence
from drainer.mysql.connection import Connection
from drainer.mysql.literal.quoting import qualified
from drainer.mysql.rows.change import Position

Known: TypeAlias = tuple[Mapping[int, Position], int]
"""Positions of the lanes, and the number of the last write."""
WRITES_ROW: Final = 1 << 17
"""The row among the lanes that has the number of the last write."""


class StoreGuard:
    """Of one start of a drainer. Raises `Conflict` where a newer one took over, and `WentBack`."""

    def __init__(self, schema: str, cluster_id: int, epoch: int, committed: Committed) -> None:
        self._fence = Fence(cluster_id, epoch)
        self._committed = committed
        self._state = qualified(schema, "drainer_state")
        self._lanes = qualified(schema, "lanes")
        self._mine = b" WHERE cluster_id=%d AND epoch=%d" % (cluster_id, epoch)
        self._cluster = b" WHERE cluster_id=%d" % cluster_id

    def begin(self, connection: Connection) -> None:
        """The row, in the transaction of a start."""
        connection.run(
            b"REPLACE INTO %s VALUES (%d,%d,%d,0,0)"
            % (self._lanes, self._fence.cluster_id, WRITES_ROW, self._fence.epoch),
        )

    def check(self, connection: Connection) -> None:
        """Before anything else on a session; ends its transaction. From any thread."""
        committed, writes = self.known()
        state, lanes = connection.rows_if_there(
            b"SELECT epoch FROM " + self._state + self._cluster, self._positions
        )
        connection.rollback()
        self._fence.check_epoch(int(state[0][0]) if state else None)
        self._compare(lanes, committed, writes)

    def known(self) -> Known:
        """What the server must have: asked before a transaction begins, which may see only what was then."""
        return self._committed.positions(), self._committed.writes

    def count(self, connection: Connection, known: Known) -> int:
        """Store the number of the write that the transaction is; it is committed by the caller.

        A COMMIT without an answer may have stored the number before.
        """
        committed, last = known
        self._compare(connection.rows(self._positions), committed, last)
        matched = connection.run(
            b"UPDATE %s SET applied_ts=%d" % (self._lanes, last + 1)
            + self._mine
            + b" AND lane=%d AND applied_ts IN (%d,%d)" % (WRITES_ROW, last, last + 1),
        )
        if matched != 1:
            raise self._fence.went_back(f"write {last} of the checkpoint's tables is not the last one there")
        return last + 1

    @property
    def _positions(self) -> bytes:
        return b"SELECT lane, applied_ts, applied_rows FROM " + self._lanes + self._mine

    def _compare(
        self, lanes: Sequence[tuple[Any, ...]], committed: Mapping[int, Position], writes: int
    ) -> None:
        found = {int(lane): Position(int(ts), int(done)) for lane, ts, done in lanes}
        counted = found.get(WRITES_ROW)
        self._fence.check_writes(writes, counted.commit_ts if counted else None)
        for lane, position in committed.items():
            self._fence.check_position(f"lane {lane}", position, found.get(lane))
