"""History: the last hour of a node: how far behind it was, what it did a second, what its disk had left.

Out    curves of PLACES values, the oldest first; NaN where nothing is known
Holds  PLACES numbers of 8 bytes for each of three curves, 8,640 bytes, however long a node lives
Tests  tests/common/status/test_history.py
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument

EVERY_S: Final = 10.0
PLACES: Final = 360
_NAN: Final = math.nan


@dataclass(frozen=True, slots=True)
class Look:
    """What one document says. `behind_s`: of the upstream; `count`: of rows applied, or binlogs stored, since
    the start. None for what it does not say."""

    behind_s: float | None
    count: int | None


def look(document: PumpDocument | DrainerDocument | None) -> Look:
    """None: the node is not up."""
    if isinstance(document, PumpDocument):
        stages = None if document.pump is None else document.pump.stages
        lag_s = None if stages is None else stages.sorted.lag_s
        count = None if stages is None else stages.written.records
        return Look(lag_s if isinstance(lag_s, float) else None, count if isinstance(count, int) else None)
    if document is None or not document.lag:
        return Look(None, None)
    return Look(document.lag.behind_s, document.rows or 0)


class History:
    """`note` is called about every EVERY_S; a place that was passed over has nothing."""

    def __init__(self) -> None:
        self.behind_s, self.per_s, self.free_bytes = (_places() for _ in range(3))
        self._last: tuple[float, int | None] | None = None

    def note(self, now_s: float, seen: Look, free_bytes: int | None) -> None:
        """`now_s` of the clock that never goes back."""
        per_s = _NAN
        if self._last is not None:
            last_s, count = self._last
            # A count that went back is that of a stream that was built anew.
            if count is not None and seen.count is not None and now_s > last_s and seen.count >= count:
                per_s = (seen.count - count) / (now_s - last_s)
            for _ in range(min(PLACES, round((now_s - last_s) / EVERY_S) - 1)):
                self._add(_NAN, _NAN, _NAN)
        self._last = now_s, seen.count
        self._add(_number(seen.behind_s), per_s, _number(free_bytes))

    @property
    def is_empty(self) -> bool:
        return all(math.isnan(value) for curve in self._curves() for value in curve)

    def _curves(self) -> Iterator[array[float]]:
        yield from (self.behind_s, self.per_s, self.free_bytes)

    def _add(self, *values: float) -> None:
        for curve, value in zip(self._curves(), values, strict=True):
            del curve[0]
            curve.append(value)


def _places() -> array[float]:
    return array("d", [_NAN]) * PLACES


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)


def pieces(curve: Sequence[float]) -> list[list[tuple[int, float]]]:
    """The known parts of a curve: runs of places that follow each other, with their values."""
    runs: list[list[tuple[int, float]]] = []
    for place, value in enumerate(curve):
        if math.isnan(value):
            continue
        if not runs or runs[-1][-1][0] != place - 1:
            runs.append([])
        runs[-1].append((place, value))
    return runs
