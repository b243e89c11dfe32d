"""Lane table: how far each lane has applied, moved in the transaction that carries the lane's rows.

Drives  connections of the caller, inside their transactions: a lane's, the store's, those that will run DDL
Holds   only the drainer whose epoch is in the rows moves them, and only from where they were left: an UPDATE
        that matches none says that another one took over, or that this server went back in time. Every write
        of the store has a number, one higher than the last that was confirmed, in a row of its own among the
        lanes; it is only made where all lanes stand at least where they were seen to commit. So nothing is
        written that relies on a position which the server written to does not have, whichever server each
        session happens to be connected to
Why     a replica that lags is promoted, a data directory is put back, a power cut takes commits that were not
        synced. Sessions come to such a server one by one, while others may still commit on the old one
Tests   tests/drainer/checkpoint/test_store.py, tests/drainer/checkpoint/test_committed.py
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from drainer.checkpoint import lane_basis
from drainer.checkpoint.fencing import Fence
from drainer.checkpoint.lane_basis import StoredBasis, TableSpread
from drainer.mysql.connection import Connection
from drainer.mysql.errors import NO_SUCH_DATABASE, NO_SUCH_TABLE, SessionError
from drainer.mysql.literal.quoting import qualified, string_literal
from drainer.mysql.rows.change import Position
from drainer.mysql.session_lock import Claims
from tidb_binlog.late_dataclass import dataclass, field


class Committed:
    """What the downstream has confirmed to this process: the positions of all lanes and the number of the
    store's last write, of which the COMMIT was answered. Used by all threads."""

    def __init__(self, positions: Sequence[Position] = ()) -> None:
        self._lock = threading.Lock()
        self._positions = dict(enumerate(positions))
        self._writes = 0

    @property
    def writes(self) -> int:
        """The number of the last write that is committed."""
        return self._writes

    def of(self, lane: int) -> Position | None:
        """None of a lane that has committed nothing yet."""
        return self._positions.get(lane)

    def positions(self) -> Mapping[int, Position]:
        """Of all lanes, as they are now."""
        with self._lock:
            return dict(self._positions)

    def note(self, lane: int, position: Position) -> None:
        """The lane's COMMIT was answered."""
        with self._lock:
            self._positions[lane] = position

    def note_write(self, number: int, lanes: Iterable[Position] | None = None) -> None:
        """The store's COMMIT was answered. `lanes`: where it put them all."""
        with self._lock:
            self._writes = number
            if lanes is not None:
                self._positions = dict(enumerate(lanes))


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
        rows = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane=%d AND epoch=%d%s"
            % (self._name, self.cluster_id, lane, self.epoch, b" FOR UPDATE" if lock else b""),
        )
        if len(rows) != 1:
            raise self._fence.taken_over()
        return Position(int(rows[0][0]), int(rows[0][1]))

    def lowest(self, connection: Connection, below: int) -> Position:
        """Where the last of all lanes with a number below that is."""
        positions = connection.rows(
            b"SELECT applied_ts, applied_rows FROM %s WHERE cluster_id=%d AND lane<%d AND epoch=%d"
            % (self._name, self.cluster_id, below, self.epoch),
        )
        if not positions:
            raise self._fence.taken_over()
        return min((Position(int(ts), int(rows)) for ts, rows in positions), key=Position.order_key)

    def check(self, connection: Connection, lane: int) -> None:
        """See that the lane is ours, and no less far than was committed; ends the transaction.

        Raises `Conflict`, `WentBack`.
        """
        state = qualified(self.schema, "drainer_state")
        (epochs, lanes) = connection.rows_if_there(
            b"SELECT epoch FROM %s WHERE cluster_id=%d" % (state, self.cluster_id),
            b"SELECT applied_ts, applied_rows, epoch FROM %s WHERE cluster_id=%d AND lane=%d"
            % (self._name, self.cluster_id, lane),
        )
        connection.rollback()
        self._fence.check_epoch(max((int(row[-1]) for row in (*epochs, *lanes)), default=None))
        stored = Position(int(lanes[0][0]), int(lanes[0][1])) if lanes else None
        self._fence.check_position(f"lane {lane}", self.committed.of(lane), stored)

    def claim(self, connection: Connection, lane: int) -> None:
        """Mark a lane's session, so that a successor can end it, and see that the lane is still ours."""
        claims = Claims(self.schema, self.cluster_id)
        claims.reclaim(connection, lane, lambda: self.check(connection, lane))


Known: TypeAlias = tuple[Mapping[int, Position], int]
"""Positions of the lanes, and the number of the last write."""
WRITES_ROW: Final = 1 << 17
"""The row among the lanes that has the number of the last write."""


class StoreGuard:
    """Lets one start of a drainer write no table on a server that does not have what was committed.

    Raises `Conflict` where a newer start took over, and `WentBack`.
    """

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
        committed, writes = self.expected()
        state, lanes = connection.rows_if_there(
            b"SELECT epoch FROM " + self._state + self._cluster, self._positions
        )
        connection.rollback()
        self._fence.check_epoch(int(state[0][0]) if state else None)
        self._compare(lanes, committed, writes)

    def expected(self) -> Known:
        """What the server must have: asked before a transaction begins, which may see only what was then."""
        return self._committed.positions(), self._committed.writes

    def count(self, connection: Connection, expected: Known) -> int:
        """Store the number of the write that the transaction is; it is committed by the caller.

        A COMMIT without an answer may have stored the number before.
        """
        committed, last = expected
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
        positions = {int(lane): Position(int(ts), int(done)) for lane, ts, done in lanes}
        counted = positions.get(WRITES_ROW)
        self._fence.check_writes(writes, counted.commit_ts if counted else None)
        for lane, position in committed.items():
            self._fence.check_position(f"lane {lane}", position, positions.get(lane))


# Lane basis table: what lane positions belong to, stored beside them.
#     lane_basis   cluster_id, fold, epoch, name, definition
# The row of fold 0 is for all tables: its `definition` has the version of the hash and the rules
# (`lane_basis`, `rule_history`). Every other row is a downstream table (`name` is for people) with its
# spread.
# Holds   the row of fold 0 carries the epoch of the drainer that wrote it, raised with the lanes' epoch in
#         one transaction. Another epoch there than the lanes have says that a release which knows nothing of
#         this table has moved the lanes since: what is stored is worth nothing then

_HEADER: Final = 0
_STATEMENT_ROWS: Final = 1000


class LaneBasisTable:
    """Statements on one cluster's rows. Not thread-safe."""

    def __init__(self, schema: str, cluster_id: int) -> None:
        self._name = qualified(schema, "lane_basis")
        self._cluster_id = cluster_id

    @property
    def create_statement(self) -> bytes:
        """Writes the statement that makes the table."""
        return (
            b"CREATE TABLE IF NOT EXISTS " + self._name + b" (cluster_id BIGINT UNSIGNED NOT NULL,"
            b" fold BIGINT NOT NULL, epoch BIGINT NOT NULL, name TEXT CHARACTER SET utf8mb4 NOT NULL,"
            b" definition MEDIUMTEXT CHARACTER SET utf8mb4 NOT NULL, PRIMARY KEY (cluster_id, fold))"
            b" ENGINE=InnoDB"
        )

    def ensure(self, connection: Connection) -> None:
        """Make the table where a release without it has made the others; that ends the transaction."""
        for statement in (b"SELECT fold FROM %s LIMIT 0" % self._name, self.create_statement):
            try:
                connection.run(statement)
                return
            except SessionError as error:
                missing = error.number
                if missing not in (NO_SUCH_TABLE, NO_SUCH_DATABASE):
                    raise
                if missing == NO_SUCH_DATABASE:  # all of it is made later
                    return

    def load(self, connection: Connection, epoch: int) -> StoredBasis | None:
        """What lanes with this epoch stand on; None if that is not stored. Raises `Corruption`."""
        stored = connection.rows(
            b"SELECT fold, epoch, definition FROM %s WHERE cluster_id=%d" % (self._name, self._cluster_id),
        )
        rows = {int(fold): (int(of_epoch), str(text)) for fold, of_epoch, text in stored}
        of_epoch, header = rows.pop(_HEADER, (0, ""))
        if of_epoch != epoch:
            return None
        return StoredBasis.from_json(header, {fold: text for fold, (_, text) in rows.items()})

    def begin(self, connection: Connection, epoch: int, stored: StoredBasis | None, *, drained: bool) -> None:
        """What is `stored`, if it still counts, belongs to this epoch and this release from now on."""
        if drained or stored is None:
            self.clear(connection, tables_only=stored is not None)
        if stored is not None:
            self.put_header(connection, epoch, stored.rules)

    def clear(self, connection: Connection, *, tables_only: bool = False) -> None:
        """All lanes stand at one position, or what their positions belong to is not known."""
        tables = b" AND fold<>%d" % _HEADER if tables_only else b""
        connection.run(b"DELETE FROM %s WHERE cluster_id=%d%s" % (self._name, self._cluster_id, tables))

    def put_header(self, connection: Connection, epoch: int, rules: str) -> None:
        """Store the rules, in a transaction of the caller's."""
        definition = lane_basis.header_json(rules)
        self._replace(connection, [(_HEADER, epoch, "", definition)])

    def put(
        self,
        connection: Connection,
        epoch: int,
        spreads: Mapping[int, TableSpread],
        names: Mapping[int, str],
    ) -> None:
        """Spreads by fold id; they replace what is stored of the same tables."""
        rows = [(fold, epoch, names.get(fold, ""), spread.to_json()) for fold, spread in spreads.items()]
        for at in range(0, len(rows), _STATEMENT_ROWS):
            self._replace(connection, rows[at : at + _STATEMENT_ROWS])

    def _replace(self, connection: Connection, rows: list[tuple[int, int, str, str]]) -> None:
        values = b",".join(
            b"(%d,%d,%d,%s,%s)"
            % (self._cluster_id, fold, epoch, string_literal(name), string_literal(definition))
            for fold, epoch, name, definition in rows
        )
        connection.run(
            b"REPLACE INTO %s (cluster_id, fold, epoch, name, definition) VALUES " % self._name + values,
        )
