"""Pause and reload: what an operator may change while rows are applied, the rate too.

Owns    whether rows may go downstream now; a change lasts as long as the process
Holds   an applier asks `admit` before it applies rows
Stops   `let_go` ends every wait, for good: a paused drainer can be stopped
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from drainer import metrics
from drainer.config.options import DrainerConfig
from drainer.operate.control.hold import Hold
from drainer.operate.control.rate_limit import Limits, RateLimit
from tidb_binlog.clock import Clock
from tidb_binlog.observe import log
from tidb_binlog.serving.reload import Commit, Reload
from tidb_binlog.status.drainer import ControlStatus

_logger = log.get("control")

RATE_FIELDS: Final = frozenset({"rate_rows", "rate_bytes"})


class Control:
    """`holds` is cheap to read: while it is False, `admit` need not be called."""

    def __init__(self, clock: Clock, limits: Limits | None = None) -> None:
        self.clock = clock
        self._rate = RateLimit(limits)
        self._paused = False
        self._let_go = False
        self._changed = asyncio.Event()
        self.hold = Hold(clock)
        """For who compares the downstream."""
        self.waiting_s = 0.0
        """Seconds that rows have waited for the rate limit so far."""
        self.holds = not self._rate.limits.unlimited
        self.on_change: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    # -- what the applier asks ---------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Says that nothing is applied because an operator wants it so."""
        return self._paused

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._rate.limits

    @property
    def limited(self) -> bool:
        """Whether rows wait for the rate limit now."""
        return self._rate.wait_s(self.clock.monotonic_s()) > 0

    async def admit(self, rows: int, size: int) -> None:
        """Wait until `rows` with `size` encoded bytes may go downstream; at once when nothing holds them."""
        while self.holds:
            now_s = self.clock.monotonic_s()
            wait_s = None if self._paused else self._rate.wait_s(now_s)
            if wait_s == 0.0:
                self._rate.take(rows, size, now_s)
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            if wait_s is not None:
                self.waiting_s += self.clock.monotonic_s() - now_s

    def let_go(self) -> None:
        """The end has begun: nothing is held any more."""
        self._let_go = True
        self.hold.end("the drainer stops")
        self._update()

    # -- what operators ask ------------------------------------------------------------------------

    def pause(self) -> None:
        """Hold rows and DDL back. Binlogs are still pulled, as far as queues go; nothing is lost."""
        if not self._paused:
            _logger.warning("applying is paused by an operator", resume="PUT /apply/resume")
        self._paused = True
        self._update()

    def resume(self) -> None:
        """Resume after `pause`; what waits after an error is tried again."""
        if self._paused:
            _logger.info("applying is resumed")
        self._paused = False
        self._update()
        self.on_resume()

    def change_rate(self, limits: Limits) -> None:
        """Rows and bytes a second from now on; zeros: as fast as it goes."""
        if limits != self._rate.limits:
            _logger.info("rate limit changed", rows_per_s=limits.rows, bytes_per_s=limits.size)
        self._rate.change(limits, self.clock.monotonic_s())
        self._update()

    def facts(self) -> ControlStatus:
        """For the status."""
        limits = self._rate.limits
        return ControlStatus(
            paused=self._paused,
            rate_rows=limits.rows,
            rate_bytes=limits.size,
            waited_s=round(self.waiting_s, 3),
        )

    def bind_gauges(self) -> None:
        """Let the gauges read the state whenever they are scraped."""
        metrics.CONTROL_PAUSED.set_function(lambda: float(self._paused))
        metrics.CONTROL_RATE_ROWS.set_function(lambda: float(self._rate.limits.rows))
        metrics.CONTROL_RATE_BYTES.set_function(lambda: float(self._rate.limits.size))
        metrics.CONTROL_WAITED_SECONDS.set_function(lambda: self.waiting_s)

    def _update(self) -> None:
        self.holds = not self._let_go and (self._paused or not self._rate.limits.unlimited)
        self._changed.set()
        self.on_change()


def rate_of(settings: DrainerConfig) -> Limits:
    """Takes the limits from the configuration."""
    return Limits(settings.rate_rows, settings.rate_bytes)


def add_rate(reload: Reload[DrainerConfig], control: Control) -> None:
    """Let a reload change the rate."""

    def rate(fresh: DrainerConfig) -> Commit:
        limits = rate_of(fresh)
        return lambda: control.change_rate(limits)

    reload.add(RATE_FIELDS, rate)
