"""Progress: the commit_ts at or below which everything is applied, though lanes finish out of order.

In     dispatched(ts): everything up to ts has been handed to lanes or filtered; sent(lane, chunk);
       committed(lane, sequence)
Holds  resolved_ts never falls, and never passes a change that is not committed downstream
"""

from __future__ import annotations

from collections import deque

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True)
class _Open:
    sequence: int
    first_ts: Ts


class Progress:
    def __init__(self, lanes: int, start_ts: Ts) -> None:
        self._open: list[deque[_Open]] = [deque() for _ in range(lanes)]
        self._dispatched_ts = start_ts
        self._resolved_ts = start_ts

    @property
    def resolved_ts(self) -> Ts:
        return self._resolved_ts

    @property
    def idle(self) -> bool:
        """Nothing handed to a lane is uncommitted."""
        return not any(self._open)

    @property
    def working(self) -> int:
        """Lanes with something uncommitted."""
        return sum(map(bool, self._open))

    def sent(self, lane: int, sequence: int, first_ts: Ts) -> None:
        waiting = self._open[lane]
        assert not waiting or waiting[-1].sequence < sequence
        waiting.append(_Open(sequence, first_ts))

    def dispatched(self, ts: Ts) -> None:
        """Every change at or below `ts` has been sent."""
        self._dispatched_ts = max(self._dispatched_ts, ts)
        self._advance()

    def committed(self, lane: int, sequence: int) -> None:
        """The lane has committed all its chunks up to `sequence`."""
        waiting = self._open[lane]
        while waiting and waiting[0].sequence <= sequence:
            waiting.popleft()
        self._advance()

    def _advance(self) -> None:
        floor = self._dispatched_ts
        for waiting in self._open:
            if waiting:
                floor = min(floor, waiting[0].first_ts - 1)
        self._resolved_ts = max(self._resolved_ts, floor)

    def check(self) -> None:
        for waiting in self._open:
            assert all(item.first_ts > self._resolved_ts for item in waiting)
