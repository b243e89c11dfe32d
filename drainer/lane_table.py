"""Lane table: how far each lane has applied, moved in the transaction that carries the lane's rows.

Drives  the connection of a lane, inside its transaction
Holds   only the drainer whose epoch is in the rows moves them: an UPDATE that matches none says that another
        one took over
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql

from common.errors import Conflict
from drainer.change import Position
from drainer.sink import mysql
from drainer.sink.session_claim import Claims


@dataclass(frozen=True, slots=True)
class LaneTable:
    """Statements on one cluster's lane rows. Used inside the caller's downstream transaction."""

    schema: str
    cluster_id: int
    epoch: int

    @property
    def _name(self) -> bytes:
        return mysql.qualified(self.schema, "lanes")

    def advance(self, connection: pymysql.Connection[Any], lane: int, position: Position) -> None:
        """Move the lane's row; `Conflict` if a newer drainer owns it."""
        matched = mysql.run(
            connection,
            b"UPDATE %s SET applied_ts=%d, applied_rows=%d WHERE cluster_id=%d AND lane=%d AND epoch=%d"
            % (self._name, position.commit_ts, position.rows, self.cluster_id, lane, self.epoch),
        )
        if matched != 1:
            raise self.fenced()

    def position(self, connection: pymysql.Connection[Any], lane: int, *, lock: bool = False) -> Position:
        """Where the lane is. `lock`: after what is still being committed; the caller ends its transaction."""
        found = mysql.rows(
            connection,
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane=%d AND epoch=%d%s"
            % (self._name, self.cluster_id, lane, self.epoch, b" FOR UPDATE" if lock else b""),
        )
        if len(found) != 1:
            raise self.fenced()
        return Position(int(found[0][0]), int(found[0][1]))

    def assert_epoch(self, connection: pymysql.Connection[Any], lane: int) -> None:
        self.position(connection, lane)
        connection.rollback()

    def claim(self, connection: pymysql.Connection[Any], lane: int) -> None:
        """Mark a lane's session, so that a successor can end it, and see that the lane is still ours."""
        claims = Claims(self.schema, self.cluster_id)
        claims.reclaim(connection, lane, lambda: self.assert_epoch(connection, lane))

    def fenced(self) -> Conflict:
        return Conflict(
            f"another drainer took over cluster {self.cluster_id} (this one has epoch {self.epoch})",
            hint="stop the other drainer first, or leave this one stopped",
        )
