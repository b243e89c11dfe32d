"""Lane tuning: how many lanes, found by trying.

In     samples between two drained points: lanes, rows, seconds, and the part of the lane time in which lanes
       had work waiting
Out    the number of lanes to continue with, mostly the same
Holds  a count is left only for one that measured faster by `GAIN`, by the median of `TRIAL_SAMPLES` busy
       samples and then of twice as many. When neither neighbour is better, nothing is tried for a while that
       doubles each time, so a flat curve and a noisy one end in peace; another load ends the while
Why    more lanes help where commits wait for a disk or a network, and cost where they share two cores or one
       hot table; neither shows in a configuration file
Never  moves on samples in which the upstream was the limit: lanes that wait for rows say nothing
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidb_binlog.late_dataclass import dataclass

LANES_MIN: Final = 2
GAIN: Final = 0.08
"""By how much another count must be faster. Below it lies the noise of a shared machine."""
TRIAL_SAMPLES: Final = 5
BUSY: Final = 0.5
"""Least part of the lane time with work waiting for which a sample counts."""
REST_SAMPLES: Final = 20
REST_SAMPLES_MAX: Final = 1280
_CHANGED: Final = 0.5
"""Part of the rate of the present count by which it must have changed for a new search before its time."""


@dataclass(frozen=True, slots=True)
class LaneSample:
    """What lanes did between two drained points. `waiting`: part of the lane time (lanes x seconds) in which
    a lane had work queued or under way, 0 to 1."""

    lanes: int
    rows: int
    seconds: float
    waiting: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class LaneTuning:
    """`lanes` is the count now in use, or one that is on trial."""

    def __init__(self, lanes: int, lanes_max: int) -> None:
        self._max = max(1, lanes_max)
        self._min = min(LANES_MIN, self._max)
        self.lanes = min(max(lanes, self._min), self._max)
        self._home = self.lanes
        self._home_rate = 0.0
        self._step = 1
        self._turned = False
        self._rates: deque[float] = deque(maxlen=2 * TRIAL_SAMPLES)
        self._resting = 0
        self._rest = REST_SAMPLES

    @property
    def on_trial(self) -> bool:
        """Whether the present count is not yet known to be better than the one before."""
        return self.lanes != self._home

    def decide(self, sample: LaneSample) -> int:
        """Take a sample; the number of lanes to use from here on. To be called at drained points only."""
        if sample.lanes != self.lanes or sample.waiting < BUSY or not sample.rows:
            return self.lanes
        self._rates.append(sample.rate)
        if len(self._rates) < TRIAL_SAMPLES:
            return self.lanes
        rate = sorted(self._rates)[len(self._rates) // 2]
        if self.on_trial:
            if rate < self._home_rate * (1 + GAIN) or len(self._rates) == 2 * TRIAL_SAMPLES:
                self._judge(rate)
        elif self._resting and abs(rate - self._home_rate) <= _CHANGED * self._home_rate:
            self._resting -= 1
        else:
            if self._resting:
                self._rest = REST_SAMPLES  # another load
            self._home_rate = rate
            self._turned = False
            self._try(self._step)
        return self.lanes

    def _judge(self, rate: float) -> None:
        """The trial is over: stay, or go back and try the other side, or rest."""
        if rate >= self._home_rate * (1 + GAIN):
            self._home, self._home_rate = self.lanes, rate
            self._turned = True  # where we come from is known to be slower
            self._try(self._step)
            return
        self._move(self._home)
        self._step = -self._step
        if self._turned:
            self._pause()
        else:
            self._turned = True
            self._try(self._step)

    def _try(self, step: int) -> None:
        """Put the next count that way on trial, or the other way where there is none."""
        for direction in (step,) if self._turned else (step, -step):
            candidate = _stepped(self._home, direction, self._min, self._max)
            if candidate != self._home:
                self._turned = self._turned or direction != step
                self._step = direction
                self._move(candidate)
                return
        self._move(self._home)
        self._pause()

    def _move(self, lanes: int) -> None:
        if lanes != self.lanes:
            self.lanes = lanes
            self._rates.clear()

    def _pause(self) -> None:
        self._resting = self._rest
        self._rest = min(self._rest * 2, REST_SAMPLES_MAX)


def _stepped(lanes: int, step: int, least: int, most: int) -> int:
    """The next count: by one up to four, then by a quarter, so that 64 lanes are not 62 trials away."""
    width = max(1, lanes // 4)
    return min(max(lanes + step * width, least), most)
