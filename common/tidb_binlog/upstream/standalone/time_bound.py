"""Time bound: how far a process may move the cluster's clock, which is a value stored in etcd.

In     the stored value whenever it is read or written, the clocks of etcd's hosts, this process's clocks
Out    `physical_s`: this host's time, or the bound if that is lower; `should_ask`: whether etcd's hosts are
       to be asked first
Why    what one process stores is everybody's time from then on, and cannot be taken back: with a clock a week
       ahead it would make every file old enough to go and every drainer seem gone for a week
Holds  the stored value is never moved above the larger of two moments
         - the stored value's own age: as this process saw it, moved on by its monotonic clock since. It was
           stored before it was seen, so this is at most the true time if the value was. There is no slack on
           it: many short lives with a wrong clock, each of which gains a little, would add up
         - the time of an etcd host, and `SLACK_S`. This is a second opinion: what two hosts agree on is taken
           for true. It is how a cluster that was off for days finds back to the time without an operator
       So the clock follows no single wrong one: neither a process's that is ahead (etcd disagrees) nor etcd's
       (a process moves it to its own time at most). A wrong process is not refused either: it gets
       timestamps, they only rise with what the others agree on. Without a word from etcd's hosts the clock
       continues from where it stood, which is late but safe, until an operator says the time
       (`binlogctl advance`)
Never  lets the clock stand because a process lags: the largest value counts. A cluster that has no clock
       yet and whose etcd says no time begins at the time of the first process
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidb_binlog import tso
from tidb_binlog.tso import Ts

SLACK_S: Final = 5.0
ASK_AGAIN_S: Final = 10.0


class TimeBound:
    """The bound of one process. `now_s` is always its monotonic clock."""

    def __init__(self) -> None:
        self._stored_s: float | None = None  # what the two moments are when the monotonic clock is zero
        self._etcd_s: float | None = None
        self._asked_s: float | None = None

    def stored(self, ts: Ts, now_s: float) -> None:
        """The clock stood at `ts` (0: there was none) at `now_s` or before."""
        if ts and (self._stored_s is None or tso.physical_s(ts) - now_s > self._stored_s):
            self._stored_s = tso.physical_s(ts) - now_s

    def should_ask(self, wall_s: float, now_s: float) -> bool:
        """Whether this host's time is above what is known, and etcd's hosts were not asked just now."""
        if self._asked_s is not None and now_s - self._asked_s < ASK_AGAIN_S:
            return False
        limit_s = self._limit_s(now_s)
        return limit_s is None or wall_s > limit_s

    def observe(self, clocks: Iterable[float | None], began_s: float) -> None:
        """What etcd's hosts said, asked at `began_s`: seconds since 1970, None of one that did not say."""
        self._asked_s = began_s
        self._etcd_s = max((clock - began_s for clock in clocks if clock is not None), default=None)

    def _limit_s(self, now_s: float) -> float | None:
        limits = [] if self._stored_s is None else [self._stored_s + now_s]
        if self._etcd_s is not None:
            limits.append(self._etcd_s + now_s + SLACK_S)
        return max(limits, default=None)

    def physical_s(self, wall_s: float, now_s: float) -> float:
        """Up to where this process may move the clock, seconds since 1970."""
        limit_s = self._limit_s(now_s)
        return wall_s if limit_s is None else min(wall_s, limit_s)

    @property
    def has_asked(self) -> bool:
        """Whether etcd's hosts were asked at all."""
        return self._asked_s is not None

    @property
    def etcd_is_silent(self) -> bool:
        """Whether no host of etcd said its time when asked."""
        return self._asked_s is not None and self._etcd_s is None
