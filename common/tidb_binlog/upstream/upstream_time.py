"""Upstream time: what time it is upstream, known without asking for it each time.

Drives  the oracle, once a minute and when a write looks as if it came from the future
Holds   `limit_ts`: what carries a larger timestamp is not believed before the oracle was asked (`refresh`).
        It is the newest drawn one, moved on by this process's monotonic clock, and what clocks may differ: an
        honest writer waits for no draw
Why     what is acknowledged has to arrive, and nothing from the future can before its time. And a mere reader
        (`/status`) must not draw: a standalone upstream writes for each
        Lag and ages are differences to it, not to this host's clock: the two may stand apart
Shows   how far they do
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidb_binlog import tso
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.errors import BinlogError
from tidb_binlog.observe import log, trace
from tidb_binlog.status.clock_skew import SKEW_S
from tidb_binlog.status.pump import ClockStatus
from tidb_binlog.tso import Ts
from tidb_binlog.upstream_port import ReadableOracle, TimestampOracle

AHEAD_MAX_S: Final = 5.0
"""What a new leader of PD or a publisher's clock may be ahead of what this process takes for now."""
_UNSURE_S: Final = 0.1  # how far what this process takes for now may be from what it is upstream
_DRAW_S: Final = 60.0
_MOVE_S: Final = 1.0
_AGAIN_S: Final = 0.05

_logger = log.get("upstream_time")


class UpstreamTime:
    """Nothing is known before the first `draw`, and everything is admitted."""

    def __init__(self, oracle: TimestampOracle, clock: Clock) -> None:
        self._oracle = oracle
        self._clock = clock
        self._newest_ts = 0
        self._newest_s = self._asked_s = clock.monotonic_s()
        self._drawing: asyncio.Task[None] | None = None
        self._begun = self._ended = 0  # draws of `refresh`
        self._logged_skew = False
        self.limit_ts = tso.TS_MAX
        self.trouble = ""
        """Why the last draw failed; "" if it did not."""

    async def draw(self) -> Ts:
        """A timestamp. Raises what the oracle does."""
        with trace.span("draws a timestamp", "oracle"):
            ts = await self._oracle.timestamp()
        if ts > self._newest_ts:
            self._newest_ts, self._newest_s = ts, self._clock.monotonic_s()
        self._move()
        return ts

    timestamp = draw
    """As the oracle's: who draws through here keeps everybody's knowledge fresh."""

    async def latest(self) -> Ts:
        """As `ReadableOracle`, of whichever oracle there is. Raises what it does."""
        if not isinstance(self._oracle, ReadableOracle):
            return await self.draw()
        ts = await self._oracle.latest()
        self.heard(ts)
        return ts

    def heard(self, ts: Ts) -> None:
        """The upstream has given this timestamp: it is that late there at least."""
        if ts > self.now_ts:
            self._newest_ts, self._newest_s = ts, self._clock.monotonic_s()
        self._move()

    def may_have_given(self, ts: Ts) -> bool:
        """Whether a timestamp that others say was drawn can have been, as far as is known here."""
        return ts <= self.now_ts + (int(_UNSURE_S * 1000) << tso.LOGICAL_BITS)

    async def run(self) -> None:
        """Keep up with it; until cancelled. A draw that failed is tried again with the next move: for as long
        `trouble` says that this process is cut off."""
        due_s = 0.0
        while True:
            if self.trouble or self._clock.monotonic_s() >= due_s:
                await self.refresh()
                due_s = self._clock.monotonic_s() + _DRAW_S
            self._move()
            await look_later(_MOVE_S)

    async def refresh(self) -> None:
        """Have the limit of now, whatever this process missed (a suspended host, a replay of old work): by a
        draw that begins after this call. One for all who ask, and not more than twenty a second."""
        begun = self._begun
        while self._ended <= begun:
            if self._drawing is None:
                self._drawing = asyncio.get_running_loop().create_task(self._try(), name="upstream-time.draw")
            await asyncio.shield(self._drawing)

    async def _try(self) -> None:
        try:
            if self._begun:
                await asyncio.sleep(self._asked_s + _AGAIN_S - self._clock.monotonic_s())
            self._begun += 1
            self._asked_s = self._clock.monotonic_s()
            await self.draw()
        except BinlogError as error:
            self.trouble = str(error)
        else:
            self.trouble = ""
            self._log_skew()
        finally:
            self._drawing, self._ended = None, self._begun

    @property
    def now_ts(self) -> Ts:
        """About the timestamp that would be drawn now; 0 while nothing is known."""
        if not self._newest_ts:
            return 0
        passed_ms = int((self._clock.monotonic_s() - self._newest_s) * 1000)
        return self._newest_ts + (passed_ms << tso.LOGICAL_BITS)

    def now_s(self) -> float:
        """The same in seconds since 1970; this host's time while nothing is known."""
        return tso.physical_s(self.now_ts) if self._newest_ts else self._clock.wall_s()

    def _move(self) -> None:
        if now_ts := self.now_ts:
            self.limit_ts = min(now_ts + (int(AHEAD_MAX_S * 1000) << tso.LOGICAL_BITS), tso.TS_MAX)

    @property
    def ahead_s(self) -> float:
        """How far upstream's clock is ahead of this host's, s; negative: it is late; 0 while not known."""
        return -tso.age_s(self.now_ts, self._clock.wall_s()) if self._newest_ts else 0.0

    def _log_skew(self) -> None:
        ahead_s = self.ahead_s
        if abs(ahead_s) < SKEW_S:
            self._logged_skew = False
        elif not self._logged_skew:
            self._logged_skew = True
            _logger.warning(
                "upstream's clock is not this host's: one of them is wrong",
                ahead_s=round(ahead_s, 3),
                hint="`binlogctl doctor` compares all clocks of the cluster",
            )

    @property
    def clock(self) -> Clock:
        """This process's clock, whose wall time is the upstream's: for whatever is measured against it."""
        return _UpstreamClock(self, self._clock)

    def facts(self) -> ClockStatus:
        """For `/status`."""
        return ClockStatus(ts=self.now_ts, ahead_of_host_s=round(self.ahead_s, 3), limit_ts=self.limit_ts)


class _UpstreamClock:
    """See `UpstreamTime.clock`."""

    def __init__(self, time: UpstreamTime, clock: Clock) -> None:
        self.wall_s = time.now_s
        self.monotonic_s = clock.monotonic_s
