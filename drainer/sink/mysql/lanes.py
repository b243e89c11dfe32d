"""Lanes: the lane set of now, and another one when another number of lanes does more.

Owns    the lane set; the samples between two decisions about their number
Holds   the number changes at a drained point, stored before the new lanes start

Tests  tests/drainer/sink/mysql/test_lane_tuning.py, tests/drainer/sink/mysql/test_mysql_sink_modes.py
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from drainer.checkpoint.keeper import CheckpointKeeper
from drainer.mysql.connection import Target
from drainer.mysql.rows.change import Position
from drainer.sink.background import Background
from drainer.sink.mysql.lane_set import LaneSet
from drainer.sink.mysql.lane_tuning import LaneSample, LaneTuning
from drainer.sink.mysql.settings import ApplierSettings
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.observe import log
from tidb_binlog.tso import Ts

logger = log.get("drainer.applier")

TUNE_S: Final = 1.0


class Lanes:
    """`after_ts` as of the lane set."""

    def __init__(
        self,
        positions: Sequence[Position],
        target: Target,
        keeper: CheckpointKeeper,
        settings: ApplierSettings,
        clock: Clock,
        background: Background,
        *,
        after_ts: Ts | None,
    ) -> None:
        self._target = target
        self._keeper = keeper
        self._settings = settings
        self._clock = clock
        self._background = background
        self.rows = 0
        """Row events dispatched so far."""
        self.now = self._lane_set(positions, after_ts)
        count = 1 if settings.whole_transactions else len(positions)
        self.count = LaneCount(count, settings.lanes_max or count, lambda: self.now, lambda: self.rows, clock)

    def _lane_set(self, positions: Sequence[Position], after_ts: Ts | None = None) -> LaneSet:
        return LaneSet(
            positions,
            self._target,
            self._keeper.store.lane_table(),
            self._settings.lane,
            self._clock,
            safe_mode=self._keeper.safe_mode,
            whole=self._settings.whole_transactions,
            on_progress=self._background.wake,
            on_failed=self._background.fail,
            on_table_changed=self._forget,
            after_ts=after_ts,
        )

    def _forget(self) -> None:
        self.now.forget()

    def change_batch_rows(self, batch_rows: int) -> None:
        """From the next batch of each lane on."""
        lane = replace(self._settings.lane, batch_rows=batch_rows)
        self._settings = replace(self._settings, lane=lane)
        self.now.change_settings(lane)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {} if self._settings.whole_transactions else {"tuning": self.count.run()}

    @property
    def wants_other(self) -> bool:
        """Whether another number of them is to be tried."""
        return self.count.goal != len(self.now)

    async def resize(self) -> None:
        """At a drained point: end these lanes, continue with as many as are wanted."""
        number, position = self.count.goal, Position(self.now.resolved_ts)
        await self.now.end(drained=True)
        await self._keeper.call(self._keeper.store.resize, number, position)
        self.now = self._lane_set((position,) * number)
        self.now.start()
        logger.info("number of lanes changed", lanes=number)


class LaneCount:
    """`goal` lanes; `lanes_max` bounds what `run` tries. `lanes` and `rows` say what is there now."""

    def __init__(
        self, count: int, lanes_max: int, lanes: Callable[[], LaneSet], rows: Callable[[], int], clock: Clock
    ) -> None:
        self.goal = count
        self._tuning = LaneTuning(count, lanes_max)
        self._lanes = lanes
        self._rows = rows
        self._clock = clock
        self._at_s = clock.monotonic_s()
        self._at_rows = 0

    async def run(self) -> None:
        """Try other counts while there is work, until cancelled."""
        while True:
            await look_later(TUNE_S)
            self.goal = self._tuning.decide(self._sample())

    def _sample(self) -> LaneSample:
        now_s, now_rows, lanes = self._clock.monotonic_s(), self._rows(), self._lanes()
        rows, seconds = now_rows - self._at_rows, now_s - self._at_s
        self._at_rows, self._at_s = now_rows, now_s
        return LaneSample(len(lanes), rows, seconds, lanes.busy())
