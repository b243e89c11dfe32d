"""Stages: how far each stage after the writers has come, in bytes of log and in seconds.

    written    durable in the value log, acknowledged
    indexed    filed in the index
    sorted     settled, with everything before it: no open prewrite stands in front
    published  at or below the watermark, pullers may have it

In     the end of the durable log at points in time (`note`), a place that a stage has reached
Out    for how long what lies after that place has been durable
Holds  memory is bounded: what is long ago is known less exactly, and counts as a little older than it is
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from pump.log.record import ValuePointer

_SAMPLES_MAX: Final = 2048
_EXACTNESS: Final = 64  # samples nearer than this part of their age may become one
_NEAR_S: Final = 0.05  # samples nearer than this are one


class Places(NamedTuple):
    """What each stage has reached: everything before the place went through it."""

    written: ValuePointer
    indexed: ValuePointer
    sorted: ValuePointer


def bytes_between(start: ValuePointer, stop: ValuePointer, end_of: Callable[[int], int]) -> int:
    """Bytes of log in [start, stop); `end_of`: the size of a file. 0 if `start` is not before `stop`."""
    if start >= stop:
        return 0
    whole = sum(end_of(fid) for fid in range(start.fid, stop.fid))
    return max(whole + stop.offset - start.offset, 0)


class Arrivals:
    """When the log's end was where. Seconds on the caller's clock."""

    def __init__(self) -> None:
        self._ends: list[ValuePointer] = []
        self._times: list[float] = []

    def note(self, end: ValuePointer, now_s: float) -> None:
        """The durable log ends at `end` now."""
        ends, times = self._ends, self._times
        if ends and end <= ends[-1]:
            return
        if times and now_s - times[-1] < _NEAR_S:
            ends[-1] = end
            return
        ends.append(end)
        times.append(now_s)
        if len(ends) > _SAMPLES_MAX:
            self._thin(now_s)

    def _thin(self, now_s: float) -> None:
        """What arrived at nearly the same time becomes one, as old as the oldest of it."""
        ends, times = self._ends, self._times
        self._ends, self._times = ends[:1], times[:1]
        for end, at_s in zip(ends[1:], times[1:], strict=True):
            if (at_s - self._times[-1]) * _EXACTNESS < now_s - at_s:
                self._ends[-1] = end
            else:
                self._ends.append(end)
                self._times.append(at_s)

    def age_s(self, place: ValuePointer, now_s: float) -> float:
        """For how long something has been durable after `place`; 0 if nothing is."""
        at = bisect_right(self._ends, place)
        return now_s - self._times[at] if at < len(self._ends) else 0.0
