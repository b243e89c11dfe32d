"""Lane count: how many lanes are wanted, looked at again while there is work.

Drives  `lane_tuning` (core)
Owns    the samples between two looks; the change itself is the applier's, at a drained point
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from common.clock import Clock
from drainer.apply.lane_set import LaneSet
from drainer.apply.lane_tuning import LaneSample, LaneTuning

TUNE_S: Final = 1.0


class LaneCount:
    """`wanted` lanes; `lanes_max` bounds what `run` tries. `lanes` and `rows` say what is there now."""

    def __init__(
        self, count: int, lanes_max: int, lanes: Callable[[], LaneSet], rows: Callable[[], int], clock: Clock
    ) -> None:
        self.wanted = count
        self._tuning = LaneTuning(count, lanes_max)
        self._lanes = lanes
        self._rows = rows
        self._clock = clock
        self._at_s = clock.monotonic_s()
        self._at_rows = 0

    async def run(self) -> None:
        """Try other counts while there is work, until cancelled."""
        while True:
            await asyncio.sleep(TUNE_S)
            self.wanted = self._tuning.decide(self._sample())

    def _sample(self) -> LaneSample:
        now_s, now_rows, lanes = self._clock.monotonic_s(), self._rows(), self._lanes()
        rows, seconds = now_rows - self._at_rows, now_s - self._at_s
        self._at_rows, self._at_s = now_rows, now_s
        return LaneSample(len(lanes), rows, seconds, lanes.busy())
