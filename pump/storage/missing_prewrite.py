"""Missing prewrite: what to make of a commit whose prewrite the index does not know.

Out    nothing where the prewrite is among accepted losses, else the error that says what is the matter:
           in the log    the index is damaged, whatever else it may miss: it is built anew, once
           nowhere       sent to another pump, or lost; only the operator can let it go
Why    a hole is an error, never a jump; but an error that no restart and no option ends is a hole for ever

All calls block.

Tests  tests/pump/storage/test_accepted_losses.py
"""

from __future__ import annotations

import threading
from typing import Final

from pump.index.store import IndexDamaged
from pump.log import segment
from pump.log.record import ValuePointer
from pump.log.value_log import ValueLog
from pump.storage.accepted_losses import AcceptedLosses
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.tso import Ts

_KNOWN_MAX: Final = 1 << 12


class MissingPrewrites:
    """Of one storage; shared by its readers."""

    def __init__(self, log: ValueLog, losses: AcceptedLosses, *, index_is_new: bool) -> None:
        """`index_is_new`: it was built in this life, so building it again would change nothing."""
        self._log = log
        self._losses = losses
        self._index_is_new = index_is_new
        self._nowhere: set[tuple[int, ValuePointer]] = set()
        self._lock = threading.Lock()

    def pass_over(self, start_ts: Ts, commit_ts: Ts, place: ValuePointer) -> None:
        """Return where the loss was accepted. Raises `IndexDamaged` or `Corruption`."""
        if self._losses.has(place):
            self._losses.passed_over(commit_ts, start_ts, place, place)
            return
        place_there = self._search(start_ts, place)
        if place_there is not None and not self._index_is_new:
            raise IndexDamaged(
                f"the index does not know the prewrite {start_ts} of commit {commit_ts}, which stands at "
                f"{segment.name_of(place_there.fid)} offset {place_there.offset}",
                hint="try again: the pump starts anew and builds the index from the log",
            )
        lost = self._lost_before(place, start_ts) if place_there is None else None
        if lost is None:
            raise self._nowhere_to_be_found(start_ts, commit_ts, place, place_there, self._log.end)
        self._losses.passed_over(commit_ts, start_ts, place, lost)

    @staticmethod
    def _nowhere_to_be_found(
        start_ts: Ts, commit_ts: Ts, place: ValuePointer, place_there: ValuePointer | None, end: ValuePointer
    ) -> Corruption:
        name = segment.name_of(place.fid)
        here = f"{name}:{place.offset}"
        way_on = (
            "to go on without all that is missed or damaged from the beginning of this file to the present "
            "end of the log start the pump with `--accept-loss "
            f"{name}:0-{segment.name_of(end.fid)}:{end.offset}`, without this transaction alone with "
            f"`--accept-loss {here}`"
        )
        if place_there is not None:
            return Corruption(
                f"another record has the timestamp of prewrite {start_ts}, which stands at "
                f"{segment.name_of(place_there.fid)} offset {place_there.offset}, of commit {commit_ts}",
                hint=f"two clients took one timestamp; {way_on}",
            )
        return Corruption(
            f"commit {commit_ts} has no prewrite {start_ts} on this pump; it stands at {here}",
            hint="see the record with GET /debug/binlog/<ts>; if another pump has the prewrite, this "
            f"commit was sent to the wrong one; {way_on}",
        )

    def _search(self, start_ts: Ts, commit: ValuePointer) -> ValuePointer | None:
        """Where the prewrite stands in front of its commit; None if it does not."""
        with self._lock:
            if (start_ts, commit) in self._nowhere:
                return None
        for fid in range(commit.fid, self._log.first_fid - 1, -1):
            if fid != commit.fid and not self._may_hold(fid, start_ts):
                continue
            stop = commit if fid == commit.fid else ValuePointer(fid + 1, 0)
            for records, _ in self._log.record_batches(ValuePointer(fid, 0), stop):
                for tp, found_ts, _, place in records:
                    if found_ts == start_ts and tp == binlog.PREWRITE:
                        return place
        with self._lock:
            if len(self._nowhere) >= _KNOWN_MAX:
                self._nowhere.clear()
            self._nowhere.add((start_ts, commit))
        return None

    def _lost_before(self, place: ValuePointer, start_ts: Ts) -> ValuePointer | None:
        """The last accepted loss that may have taken a prewrite in front of a place."""
        damaged, cut = self._losses.before(place)
        for lost in sorted(damaged + cut, reverse=True):
            if self._may_hold(lost.fid, start_ts) and (lost in cut or self._is_damaged(lost)):
                return lost
        return None

    def _is_damaged(self, place: ValuePointer) -> bool:
        """Not so where a commit was given up that is only without its prewrite."""
        try:
            self._log.read(place)
        except Corruption:
            return True
        return False

    def _may_hold(self, fid: int, ts: Ts) -> bool:
        """Whether a file can hold a record of this index timestamp, as far as its footer knows."""
        largest = self._log.segment(fid).closed_max_ts()
        return largest is None or largest >= ts
