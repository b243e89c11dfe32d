"""Skipping: what the client does after a lost prewrite when its host continues without (`ignore_error`).

In     lost (a prewrite that no pump took), skip (a later one), finished (a transaction ends), recover, reset
Out    whether a binlog is written or skipped; `Gap`, what is missing
Holds  the first loss decides: from there on nothing is written until `recover`, so that what readers have is
       a whole beginning of the history and the gap has one place where it begins. A transaction whose
       prewrite was skipped is counted until it ends, also over a `recover`: until then the gap is open
Why    a stream with unknown holes is worse than one that ends
Never  logs or waits; `delivery` and `client` do

    ON         binlogs are written
    SKIPPING   a prewrite was lost: binlogs are counted, not written
    OFF        the client is not open
"""

from __future__ import annotations

from enum import Enum

from pumpclient.options import Options
from pumpclient.pumps.selector import Affinity
from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

_SKIPPED = "skipped"


class ClientState(Enum):
    """The values are the codes under which TiDB shows what its binlog does."""

    ON = 1
    OFF = 2
    SKIPPING = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """What readers of the pumps will never see. Timestamps are start_ts of prewrites."""

    first_lost_ts: Ts
    """The smallest one: what readers have from before it is complete."""
    last_lost_ts: Ts
    """The largest one: a copy of the data made after its end has everything that is missing."""
    prewrites: int
    """How many were lost or skipped."""
    finishes: int
    """How many commits and rollbacks were not sent."""
    began_s: float
    """Seconds since 1970."""
    cause: str
    """Why the first one was lost."""


@dataclass(frozen=True, slots=True)
class SkipStatus:
    """As TiDB's `/binlog/recover` answers, and the gap: the one that is open, or else the last one."""

    skipping: bool
    skipped_committers: int
    """Transactions without a prewrite on any pump that have not ended yet."""
    gap: Gap | None

    def as_tidb(self) -> dict[str, bool | int]:
        """The fields of TiDB's reply, by its names."""
        return {"Skipped": self.skipping, "SkippedCommitterCounter": self.skipped_committers}


class Skipping:
    """The switch. With `ignore_error` off, `lost` never turns it."""

    def __init__(self, options: Options) -> None:
        self._ignore_error = options.ignore_error
        self._committers = Affinity(options.affinity_entries_max, options.affinity_age_max_s)
        self.on = False
        self._gap: Gap | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether `finished` would say False of every transaction, as usual."""
        return not self.on and not len(self._committers)

    def lost(self, start_ts: Ts, cause: str, now_s: float, wall_s: float) -> bool:
        """No pump took this prewrite; True when its transaction continues without."""
        if not self._ignore_error:
            return False
        if not self.on:
            self.on = True
            self._gap = Gap(start_ts, start_ts, 0, 0, wall_s, cause)
        self.skip(start_ts, now_s)
        return True

    def skip(self, start_ts: Ts, now_s: float) -> None:
        """Count a prewrite that is not written."""
        gap = self._gap
        assert gap is not None
        self._gap = replace(
            gap,
            first_lost_ts=min(gap.first_lost_ts, start_ts),
            last_lost_ts=max(gap.last_lost_ts, start_ts),
            prewrites=gap.prewrites + 1,
        )
        self._committers.remember(start_ts, _SKIPPED, now_s)

    def finished(self, start_ts: Ts) -> bool:
        """The transaction ends; True when its end is not to be sent."""
        was_skipped = self._committers.take(start_ts) is not None
        if not was_skipped and not self.on:
            return False
        assert self._gap is not None
        self._gap = replace(self._gap, finishes=self._gap.finishes + 1)
        return True

    def status(self, now_s: float) -> SkipStatus:
        self._committers.expire(now_s)
        return SkipStatus(self.on, len(self._committers), self._gap)

    def recover(self) -> bool:
        """Write again from now on; False when nothing was being skipped."""
        was_on, self.on = self.on, False
        return was_on

    def reset(self) -> None:
        """Forget the transactions that are still to end; their ends are not sent all the same."""
        self._committers.clear()
