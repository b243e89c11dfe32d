"""Arrival: in which order recorded payloads may have reached several Pumps, and the clock meanwhile. Pure.

Inside one Pump's recording the order is kept. Between recordings, records are ordered by the largest
timestamp seen so far in their own recording: a prewrite then always comes before every record that could
only exist after it, because a commit timestamp is drawn after its prewrite was acknowledged. The clock of
the upstream may show less than the key of the first record that is not acknowledged: every transaction with
a commit timestamp below that key has its prewrite in a Pump.

Tests  tests/deploy/binlog_playground/test_scenario.py
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from tidb_binlog.binlog import PREWRITE
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class Record:
    """One payload that a database sent to a Pump."""

    tp: int
    start_ts: Ts
    commit_ts: Ts
    payload: bytes

    @property
    def ts(self) -> Ts:
        """The largest timestamp the record itself names."""
        return max(self.start_ts, self.commit_ts)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record, the Pump it goes to, and the clock's value after it."""

    pump: int
    record: Record
    clock_ts: Ts


def _keyed(pump: int, records: Sequence[Record]) -> Iterator[tuple[int, int, int, Record]]:
    key = 0
    for position, record in enumerate(records):
        key = max(key, record.start_ts if record.tp == PREWRITE else record.ts)
        yield key, pump, position, record


def arrival_order(files: Sequence[Sequence[Record]]) -> list[Arrival]:
    """All records of all Pumps in one possible order of arrival."""
    streams = [_keyed(pump, records) for pump, records in enumerate(files)]
    return [
        Arrival(pump, record, key)
        for key, pump, _, record in heapq.merge(*streams, key=lambda item: item[:3])
    ]


class AckedPrefix:
    """Which clock value the acknowledgements so far allow; they may come in any order."""

    def __init__(self, order: Sequence[Arrival]) -> None:
        self._order = order
        self._acked = bytearray(len(order))
        self.length = 0  # records of the gapless acknowledged beginning

    def ack(self, position: int) -> None:
        """Note that the record at a position is stored."""
        self._acked[position] = 1
        while self.length < len(self._acked) and self._acked[self.length]:
            self.length += 1

    @property
    def clock_ts(self) -> Ts:
        """What the clock may show now."""
        if not self.complete:  # as late as it can be: a Pump asks the clock whether a timestamp can be true
            return self._order[self.length].clock_ts - 1
        return self._order[-1].clock_ts if self.length else 0

    @property
    def complete(self) -> bool:
        """Say whether all records are."""
        return self.length == len(self._order)
