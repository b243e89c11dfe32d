"""Resolve schedule: about which open prewrites the upstream is asked, and when.

In     open prewrites with the time since when they are open, answers, the time now
Out    the prewrites to ask about
Pace   first after `waited_after_s` while a puller waits, after `idle_after_s` otherwise; then with growing
       pauses up to `pause_max_s`, or when the upstream says so
Never  gives a prewrite up: a timer knows nothing, only the upstream does, and its answer is final
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pump.sorter import OpenPrewrite


@dataclass(slots=True)
class _Asked:
    next_s: float
    pause_s: float


class ResolveSchedule:
    """When to ask about which open prewrite. Times are seconds on the caller's clock."""

    def __init__(
        self,
        *,
        waited_after_s: float,
        idle_after_s: float = 1.0,
        pause_max_s: float = 5.0,
        batch_max: int = 256,
    ) -> None:
        self._waited_after_s = waited_after_s
        self._idle_after_s = max(idle_after_s, waited_after_s)
        self._pause_max_s = pause_max_s
        self._batch_max = batch_max
        self._asked: dict[int, _Asked] = {}

    def due(
        self, open_prewrites: Iterable[OpenPrewrite], now_s: float, *, somebody_waits: bool
    ) -> list[OpenPrewrite]:
        """Those to ask about now. `open_prewrites` ordered by `since_s`, the longest open first."""
        after_s = self._waited_after_s if somebody_waits else self._idle_after_s
        due: list[OpenPrewrite] = []
        still: dict[int, _Asked] = {}
        for prewrite in open_prewrites:
            if prewrite.since_s + after_s > now_s:
                break
            asked = self._asked.get(prewrite.start_ts)
            if asked is not None:
                still[prewrite.start_ts] = asked
                if asked.next_s > now_s:
                    continue
            if len(due) < self._batch_max:
                due.append(prewrite)
        for start_ts, asked in self._asked.items():
            if asked.next_s > now_s:
                still.setdefault(start_ts, asked)
        self._asked = still
        return due

    def undecided(self, start_ts: int, now_s: float, retry_after_s: float | None = None) -> None:
        """The answer was "not yet" (`retry_after_s` if it said when), or there was none."""
        asked = self._asked.get(start_ts)
        pause_s = self._waited_after_s if asked is None else min(asked.pause_s * 2, self._pause_max_s)
        wait_s = pause_s if retry_after_s is None else min(max(retry_after_s, 0.0), self._pause_max_s)
        self._asked[start_ts] = _Asked(now_s + wait_s, pause_s)

    def settled(self, start_ts: int) -> None:
        self._asked.pop(start_ts, None)
