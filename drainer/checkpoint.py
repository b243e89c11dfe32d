"""Checkpoint: how far the downstream has come, stored in the downstream itself.

Three tables in the schema `tidb_binlog` (or as configured):

    checkpoint      clusterID, checkPoint   one row a cluster, the format of the Go drainer:
                    {"consistent":false,"commitTS":N,"ts-map":{},"schema-version":N,"epoch":N}
    lanes           cluster_id, lane, epoch, applied_ts, applied_rows
    drainer_state   cluster_id, epoch, lane_count, intent

`lanes` is the truth while lanes run: a lane moves its row in the transaction that carries its rows. The
checkpoint row is never ahead of any lane; it makes a restart cheap, lets idle lanes move, and is what a Go
drainer takes over from. `epoch` in it marks it as ours: a Go drainer drops the key when it saves. Then the
lane rows are outdated and rows above `commitTS` may be downstream already: safe mode up to `safe-until`,
the timestamp at which this drainer began.

Fencing: a starting drainer raises the epoch in `drainer_state` and in every lane row. Whoever still runs
with an older epoch matches no row with its next UPDATE and stops.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pymysql

from common.errors import Conflict, Corruption
from drainer.change import COMPLETE, Position
from drainer.sink import mysql

DEFAULT_SCHEMA: Final = "tidb_binlog"
DEFAULT_TABLE: Final = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Value of the checkpoint row. `epoch` is None when another program wrote it."""

    commit_ts: int
    consistent: bool
    schema_version: int
    epoch: int | None = None
    safe_until: int = 0
    ts_map: dict[str, int] | None = None

    def to_json(self) -> str:
        document: dict[str, Any] = {
            "consistent": self.consistent,
            "commitTS": self.commit_ts,
            "ts-map": self.ts_map or {},
            "schema-version": self.schema_version,
        }
        if self.epoch is not None:
            document["epoch"] = self.epoch
        if self.safe_until > self.commit_ts:
            document["safe-until"] = self.safe_until
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Missing keys read as zero, unknown ones are ignored."""
        try:
            document = json.loads(text)
            epoch = document.get("epoch")
            return cls(
                commit_ts=int(document.get("commitTS", 0)),
                consistent=bool(document.get("consistent", False)),
                schema_version=int(document.get("schema-version", 0)),
                epoch=None if epoch is None else int(epoch),
                safe_until=int(document.get("safe-until", 0)),
                ts_map=document.get("ts-map") or None,
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise Corruption(
                f"checkpoint row cannot be read: {error}",
                hint="look at the checkpoint table and correct or delete the row",
            ) from None


@dataclass(frozen=True, slots=True)
class Intent:
    """A DDL under way: what it is, and what the downstream looked like before it."""

    commit_ts: int
    job_id: int
    query: str
    before: dict[str, str | None]

    def to_json(self) -> str:
        return json.dumps(
            {"commit_ts": self.commit_ts, "job_id": self.job_id, "query": self.query, "before": self.before}
        )

    @classmethod
    def from_json(cls, text: str) -> Intent:
        document = json.loads(text)
        return cls(document["commit_ts"], document["job_id"], document["query"], document["before"])


@dataclass(frozen=True, slots=True)
class Start:
    """What a starting drainer finds, after it has fenced off its predecessors.

    `checkpoint` is what was stored, None when the cluster had no row. `positions` has one entry a lane,
    never below the checkpoint. `safe_until`: rows up to this commit_ts may already be downstream.
    """

    epoch: int
    checkpoint: Checkpoint | None
    positions: tuple[Position, ...]
    intent: Intent | None
    safe_until: int

    @property
    def drained(self) -> bool:
        """All lanes stand at the same place, between two transactions."""
        return len(set(self.positions)) == 1 and self.positions[0].rows == COMPLETE


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
            raise self._fenced()

    def position(self, connection: pymysql.Connection[Any], lane: int) -> Position:
        found = mysql.rows(
            connection,
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane=%d AND epoch=%d"
            % (self._name, self.cluster_id, lane, self.epoch),
        )
        if len(found) != 1:
            raise self._fenced()
        return Position(int(found[0][0]), int(found[0][1]))

    def assert_epoch(self, connection: pymysql.Connection[Any], lane: int) -> None:
        self.position(connection, lane)
        connection.rollback()

    def _fenced(self) -> Conflict:
        return Conflict(
            f"another drainer took over cluster {self.cluster_id} (this one has epoch {self.epoch})",
            hint="stop the other drainer first, or leave this one stopped",
        )


class CheckpointStore:
    """The three tables on one connection of its own. Not thread-safe: one thread at a time.

    All methods raise PyMySQL errors as they come; the caller retries transient ones.
    """

    def __init__(
        self,
        target: mysql.Target,
        cluster_id: int,
        *,
        schema: str = DEFAULT_SCHEMA,
        table: str = DEFAULT_TABLE,
    ) -> None:
        self._target = target
        self._cluster_id = cluster_id
        self._schema = schema
        self._table = mysql.qualified(schema, table)
        self._state = mysql.qualified(schema, "drainer_state")
        self._lanes = mysql.qualified(schema, "lanes")
        self._connection: pymysql.Connection[Any] | None = None
        self.epoch = 0
        self.lane_count = 0

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except (pymysql.err.MySQLError, OSError):
                pass

    def lane_table(self) -> LaneTable:
        return LaneTable(self._schema, self._cluster_id, self.epoch)

    def _connected(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = mysql.connect(self._target)
        return self._connection

    def _create_tables(self, connection: pymysql.Connection[Any]) -> None:
        for statement in (
            b"CREATE DATABASE IF NOT EXISTS " + mysql.quote(self._schema),
            b"CREATE TABLE IF NOT EXISTS "
            + self._table
            + b" (clusterID BIGINT UNSIGNED PRIMARY KEY, checkPoint MEDIUMTEXT)",
            b"CREATE TABLE IF NOT EXISTS "
            + self._state
            + b" (cluster_id BIGINT UNSIGNED PRIMARY KEY, epoch BIGINT NOT NULL, lane_count INT NOT NULL,"
            b" intent MEDIUMTEXT CHARACTER SET utf8mb4) ENGINE=InnoDB",
            b"CREATE TABLE IF NOT EXISTS "
            + self._lanes
            + b" (cluster_id BIGINT UNSIGNED NOT NULL, lane INT NOT NULL, epoch BIGINT NOT NULL,"
            b" applied_ts BIGINT NOT NULL, applied_rows BIGINT NOT NULL,"
            b" PRIMARY KEY (cluster_id, lane)) ENGINE=InnoDB",
        ):
            mysql.run(connection, statement)

    # -- start -----------------------------------------------------------------------------------

    def start(self, lane_count: int, initial_ts: int, now_ts: int) -> Start:
        """Create what is missing, fence off older drainers, read where to go on.

        `lane_count` is taken only at a drained point; else the stored count stays until the next one.
        `initial_ts` is where a cluster without a checkpoint begins, `now_ts` a timestamp drawn now.
        """
        connection = self._connected()
        self._create_tables(connection)
        connection.rollback()
        cluster = b"%d" % self._cluster_id
        mysql.run(
            connection, b"INSERT IGNORE INTO " + self._state + b" VALUES (" + cluster + b", 0, 0, NULL)"
        )
        ((epoch, _stored_lanes, intent),) = mysql.rows(
            connection,
            b"SELECT epoch, lane_count, intent FROM "
            + self._state
            + b" WHERE cluster_id="
            + cluster
            + b" FOR UPDATE",
        )
        self.epoch = int(epoch) + 1
        checkpoint = self._load(connection)
        floor = Position(checkpoint.commit_ts if checkpoint and checkpoint.commit_ts else initial_ts)
        # Waits for a transaction that an older drainer has under way; its commit then counts.
        mysql.run(
            connection, b"UPDATE %s SET epoch=%d WHERE cluster_id=%s" % (self._lanes, self.epoch, cluster)
        )
        stored = mysql.rows(
            connection,
            b"SELECT lane, applied_ts, applied_rows FROM %s WHERE cluster_id=%s ORDER BY lane"
            % (self._lanes, cluster),
        )
        foreign = checkpoint is not None and checkpoint.epoch is None and checkpoint.commit_ts > 0
        if foreign:
            stored = [(lane, 0, COMPLETE) for lane, _ts, _rows in stored]
        positions = tuple(max(Position(int(ts), int(done)), floor, key=_place) for _lane, ts, done in stored)
        found = Start(
            epoch=self.epoch,
            checkpoint=checkpoint,
            positions=positions or (floor,),
            intent=Intent.from_json(intent) if intent else None,
            safe_until=now_ts if foreign else checkpoint.safe_until if checkpoint else 0,
        )
        if found.drained:
            positions = (found.positions[0],) * lane_count
        self.lane_count = len(positions)
        self._write_lanes(connection, positions)
        mysql.run(
            connection,
            b"UPDATE %s SET epoch=%d, lane_count=%d WHERE cluster_id=%s"
            % (self._state, self.epoch, self.lane_count, cluster),
        )
        begin = replace(
            checkpoint or Checkpoint(initial_ts, False, 0),
            consistent=False,
            commit_ts=floor.commit_ts,
            epoch=self.epoch,
            safe_until=found.safe_until,
        )
        self._store(connection, begin)
        connection.commit()
        return replace(found, positions=positions)

    def _write_lanes(self, connection: pymysql.Connection[Any], positions: Sequence[Position]) -> None:
        mysql.run(connection, b"DELETE FROM %s WHERE cluster_id=%d" % (self._lanes, self._cluster_id))
        values = mysql.joined(
            b"(%d,%d,%d,%d,%d)" % (self._cluster_id, lane, self.epoch, position.commit_ts, position.rows)
            for lane, position in enumerate(positions)
        )
        mysql.run(connection, b"INSERT INTO " + self._lanes + b" VALUES " + values)

    def _load(self, connection: pymysql.Connection[Any]) -> Checkpoint | None:
        found = mysql.rows(
            connection,
            b"SELECT checkPoint FROM " + self._table + b" WHERE clusterID=%d" % self._cluster_id,
        )
        return Checkpoint.from_json(str(found[0][0])) if found else None

    # -- running ---------------------------------------------------------------------------------

    def _store(self, connection: pymysql.Connection[Any], checkpoint: Checkpoint) -> None:
        mysql.run(
            connection,
            b"REPLACE INTO "
            + self._table
            + b" VALUES (%d, " % self._cluster_id
            + mysql.literal(checkpoint.to_json())
            + b")",
        )

    def _fence(self, connection: pymysql.Connection[Any]) -> None:
        matched = mysql.run(
            connection,
            b"UPDATE %s SET epoch=epoch WHERE cluster_id=%d AND epoch=%d"
            % (self._state, self._cluster_id, self.epoch),
        )
        if matched != 1:
            raise self.lane_table()._fenced()

    def save(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint row, provided that this drainer still owns the cluster."""
        connection = self._connected()
        try:
            self._fence(connection)
            self._store(connection, checkpoint)
            connection.commit()
        except BaseException:
            self.close()
            raise

    def begin_ddl(self, intent: Intent) -> None:
        """Store the intent durably before the statement runs. All lanes are drained."""
        self._update_state(mysql.literal(intent.to_json()), None, None)

    def end_ddl(self, checkpoint: Checkpoint) -> None:
        """The DDL is done: clear the intent, move every lane behind it, store the checkpoint."""
        self._update_state(b"NULL", Position(checkpoint.commit_ts), checkpoint)

    def settle(self, checkpoint: Checkpoint) -> None:
        """All lanes are drained up to the checkpoint: say so in every lane row (graceful stop)."""
        self._update_state(b"intent", Position(checkpoint.commit_ts), checkpoint)

    def _update_state(self, intent: bytes, position: Position | None, checkpoint: Checkpoint | None) -> None:
        connection = self._connected()
        try:
            self._fence(connection)
            mysql.run(
                connection,
                b"UPDATE "
                + self._state
                + b" SET intent="
                + intent
                + b" WHERE cluster_id=%d" % self._cluster_id,
            )
            if position is not None:
                self._write_lanes(connection, (position,) * self.lane_count)
            if checkpoint is not None:
                self._store(connection, checkpoint)
            connection.commit()
        except BaseException:
            self.close()
            raise


def _place(position: Position) -> tuple[int, int]:
    """Order of positions: a complete transaction is behind any part of it."""
    return (position.commit_ts, position.rows if position.rows != COMPLETE else 1 << 62)
