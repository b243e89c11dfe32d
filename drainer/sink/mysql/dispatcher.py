"""Dispatcher: cuts transactions into lanes.

In     transactions in commit order
Holds  every row event goes to the lane that `causality` names, in order; what a lane had applied before
       a crash (its position) is skipped, so each event reaches the downstream exactly once
Never  waits: its driver decides when lanes have room and when a DDL needs them drained

A transaction may come in pieces, and one that is too large is cut inside a lane. What is cut leaves the
downstream between two states for a short time, so that a unique value may be held by two rows: chunks with a
part of such a transaction are marked, and their rows go out in a form that may replace others.

An UPDATE that moves a row to another key is two changes, the removal of the old key and the write of the
new one; each goes to the lane of its own key, and both count as the same row event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final
from zlib import crc32

from drainer.mysql.rows.causality import Spread, lane_of_key
from drainer.mysql.rows.change import (
    APPEND,
    COMPLETE,
    DROP_ONE,
    PUT_INSERT,
    PUT_MOVED,
    PUT_UPDATE,
    REMOVE,
    REMOVE_OLD,
    REPLACE_ONE,
    ROW,
    Change,
    Chunk,
    Position,
    TableTarget,
)
from drainer.txn import INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts

# A transaction is cut inside a lane when the lane's part of it is larger than this.
CUT_ROWS: Final = 6400
# Bytes that decide the lane of a row: equal whenever the server could take two keys for one.
LaneKey = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A target with what the hot path needs of it at hand. `coarse` of an identity decides the lane, None:
    the identity does."""

    target: TableTarget
    by_key: bool
    coarse: LaneKey | None
    seed: int

    @classmethod
    def of(cls, target: TableTarget) -> _Cut:
        is_exact = target.spread is Spread.BY_KEY
        coarse = None if is_exact or target.spread is Spread.BY_TABLE else target.sql.lane_key_of
        return cls(target, is_exact or coarse is not None, coarse, target.fold_id & 0xFFFFFFFF)


class Dispatcher:
    """`cut_rows`: a lane's part of a transaction is cut at so many rows. `whole`: never."""

    def __init__(
        self, positions: Sequence[Position], *, cut_rows: int = CUT_ROWS, whole: bool = False
    ) -> None:
        self.lanes = len(positions)
        self._positions = tuple(positions)
        self._skip_up_to = max(position.commit_ts for position in positions)
        self._targets: dict[TableVersion, _Cut] = {}
        self._cut_rows = sys.maxsize if whole else cut_rows
        self._whole = whole
        self._cut_ts = 0  # the transaction that was cut last
        self._open: list[list[Change]] = [[] for _ in positions]
        self._first_ts = 0  # of what is open; a lane may have got its first change later
        self._sequence = [0] * self.lanes
        self._ready: list[tuple[int, Chunk]] = []
        self._last = self._taken = Position(0)
        self.skipped = 0

    def knows(self, transaction: Transaction) -> bool:
        """Whether every table of the transaction has a target."""
        targets = self._targets
        for events in transaction.tables:  # noqa: SIM110 - a generator costs more than the loop
            if events.table not in targets:
                return False
        return True

    def unknown(self, transaction: Transaction) -> list[TableVersion]:
        """Tables that need a target before the transaction can be dispatched."""
        return [events.table for events in transaction.tables if events.table not in self._targets]

    def learn(self, target: TableTarget) -> None:
        """What to do with rows of a table version."""
        self._targets[target.version] = _Cut.of(target)

    def forget(self, names: Collection[tuple[str, str]] | None = None) -> list[TableTarget]:
        """Tables downstream (None: all; else by name, lower case) may have changed: targets are asked for
        again. Those that were known."""
        gone = [
            version
            for version in self._targets
            if names is None or tuple(map(str.lower, version.downstream)) in names
        ]
        return [self._targets.pop(version).target for version in gone]

    @property
    def reached(self) -> Position:
        """Where lanes stand that have done all that was taken: after what was dispatched last, but never in
        a transaction that is kept whole."""
        return self._taken if self._whole else self._last

    def dispatch(self, transaction: Transaction) -> int:
        """Cut one transaction, or the next piece of one; the number of row events it had.

        All its tables are known.
        """
        commit_ts = transaction.commit_ts
        if not self._first_ts:
            self._first_ts = commit_ts
        position = Position(commit_ts)
        if not transaction.last:
            position = Position(commit_ts, self._end_of(transaction))
            if not self._whole:
                self._cut_ts = commit_ts
        rows = 0
        for events in transaction.tables:
            rows += self._cut(commit_ts, events)
        self._last = position
        if transaction.last:
            self._taken = position
        return rows

    def _end_of(self, piece: Transaction) -> int:
        """Ordinal after the piece's last row that was not filtered."""
        if piece.tables:
            last = piece.tables[-1]
            return last.first_ordinal + len(last.rows)
        return self._last.rows if self._last.commit_ts == piece.commit_ts else 0

    def take(self) -> list[tuple[int, Chunk]]:
        """Close all open chunks and return everything that is ready, as (lane, chunk)."""
        if not self._whole or self._last.rows == COMPLETE:
            for lane, changes in enumerate(self._open):
                if changes:
                    self._close(lane, self._last)
            self._first_ts = 0
        ready, self._ready = self._ready, []
        return ready

    def _close(self, lane: int, position: Position) -> None:
        changes = self._open[lane]
        self._open[lane] = []
        self._sequence[lane] += 1
        size = sum([len(change[ROW]) for change in changes])
        cut = self._first_ts <= self._cut_ts <= position.commit_ts
        self._ready.append((lane, Chunk(self._sequence[lane], changes, self._first_ts, position, size, cut)))

    def _cut(self, commit_ts: Ts, events: TableEvents) -> int:
        """The hot path: keys that are exact, or one text; nothing to skip. The number of rows."""
        cut = self._targets[events.table]
        rows = events.rows
        if commit_ts <= self._skip_up_to or len(rows) >= self._cut_rows:
            self._cut_carefully(commit_ts, events, cut.target)
            return len(rows)
        opens = self._open
        target = cut.target
        kinds_rows = zip(events.kinds, rows, strict=True)
        if not cut.by_key:
            for kind, row in kinds_rows:
                for lane, change in self._changes(target, kind, row):
                    opens[lane].append(change)
            return len(rows)
        lanes, seed, coarse, sql = self.lanes, cut.seed, cut.coarse, target.sql
        insert_key, delete_key, update_keys = sql.insert_key, sql.delete_key, sql.update_keys
        for kind, row in kinds_rows:
            if kind == UPDATE:
                old_key, key, split = update_keys(row)
                lane = crc32(coarse(key) if coarse else key, seed) % lanes
                if old_key == key:
                    opens[lane].append((target, PUT_UPDATE, key, row, split))
                else:
                    old_lane = crc32(coarse(old_key) if coarse else old_key, seed) % lanes
                    opens[old_lane].append((target, REMOVE_OLD, old_key, row, split))
                    opens[lane].append((target, PUT_MOVED, key, row, split))
            elif kind == INSERT:
                key = insert_key(row)
                opens[crc32(coarse(key) if coarse else key, seed) % lanes].append(
                    (target, PUT_INSERT, key, row, 0)
                )
            else:
                key = delete_key(row)
                opens[crc32(coarse(key) if coarse else key, seed) % lanes].append(
                    (target, REMOVE, key, row, 0)
                )
        return len(rows)

    def _changes(self, target: TableTarget, kind: int, row: bytes) -> list[tuple[int, Change]]:
        """The changes of one row event with their lanes, for every kind of table."""
        sql = target.sql
        if not target.keyed:
            if kind == UPDATE:
                return [(target.lane, (target, REPLACE_ONE, b"", row, sql.update_split(row)))]
            return [(target.lane, (target, APPEND if kind == INSERT else DROP_ONE, b"", row, 0))]
        if kind == INSERT:
            lane = self._lane(target, sql.insert_lane_key, row)
            return [(lane, (target, PUT_INSERT, sql.insert_key(row), row, 0))]
        if kind != UPDATE:
            lane = self._lane(target, sql.delete_lane_key, row)
            return [(lane, (target, REMOVE, sql.delete_key(row), row, 0))]
        if target.spread is Spread.BY_TABLE:
            old_key, key, split = sql.update_keys(row)
            old_lane = lane = target.lane
        else:
            (old_key, old_lane_key), (key, lane_key), split = sql.update_both_keys(row)
            old_lane = lane_of_key(target.fold_id, old_lane_key, self.lanes)
            lane = lane_of_key(target.fold_id, lane_key, self.lanes)
        if old_key == key:
            return [(lane, (target, PUT_UPDATE, key, row, split))]
        return [
            (old_lane, (target, REMOVE_OLD, old_key, row, split)),
            (lane, (target, PUT_MOVED, key, row, split)),
        ]

    def _lane(self, target: TableTarget, lane_key: LaneKey, row: bytes) -> int:
        if target.spread is Spread.BY_TABLE:
            return target.lane
        return lane_of_key(target.fold_id, lane_key(row), self.lanes)

    def _cut_carefully(self, commit_ts: Ts, events: TableEvents, target: TableTarget) -> None:
        """Skip what lanes have applied before; cut a large transaction inside a lane."""
        ordinal = events.first_ordinal
        for kind, row in zip(events.kinds, events.rows, strict=True):
            touched = set()
            for lane, change in self._changes(target, kind, row):
                applied = self._positions[lane]
                if applied.covers(commit_ts, ordinal):
                    self.skipped += 1
                    continue
                if applied.commit_ts == commit_ts:  # its beginning went out before the last stop
                    self._cut_ts = commit_ts
                self._open[lane].append(change)
                touched.add(lane)
            ordinal += 1
            for lane in sorted(touched):
                if len(self._open[lane]) >= self._cut_rows:
                    self._cut_ts = commit_ts
                    self._close(lane, Position(commit_ts, ordinal))
