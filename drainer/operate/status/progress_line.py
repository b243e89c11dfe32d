"""Progress line: where a drainer that catches up is, for an operator at its terminal.

Out    on a terminal one line that is written over; elsewhere, and where the log goes to the same terminal, a
       line of the log every ten seconds. Nothing while the drainer is current
Never  says that it will be caught up when it will not

Tests  tests/drainer/operate/status/test_document.py
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import Final

from drainer.operate.status.document import View
from tidb_binlog.clock import Clock, look_later
from tidb_binlog.observe import log
from tidb_binlog.observe.show import TerminalLine
from tidb_binlog.quantities import span

PACE_S: Final = 1.0
LINE_EVERY_S: Final = 10.0
BEHIND_S: Final = 10.0
"""A lag above it is worth a line, until it is below `CURRENT_S`."""
CURRENT_S: Final = 2.0

_logger = log.get("progress")


class Cadence:
    """When to say something. Times are of a clock that never goes back, in seconds."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said_s: float | None = None
        self.behind = False

    def observe(self, lag_s: float, now_s: float) -> tuple[bool, bool]:
        """(say where it is, say that it has caught up)"""
        was_behind = self.behind
        self.behind = lag_s >= (CURRENT_S if was_behind else BEHIND_S)
        if not self.behind:
            self._said_s = None
            return False, was_behind
        due = self._said_s is None or now_s - self._said_s >= self._every_s
        if due:
            self._said_s = now_s
        return due, False


def text(view: View) -> str:
    """The line."""
    eta_s = view.rates.eta_s(view.lag_s)
    applied_at = datetime.datetime.fromtimestamp(view.applied_s).astimezone()
    line = (
        f"{applied_at:%Y-%m-%d %H:%M:%S} applied, {span(view.lag_s)} behind, {view.rates.rows:,.0f} rows/s, "
        f"caught up: {'never at this rate' if eta_s is None else span(eta_s)}"
    )
    return f"{line}; {view.reason}" if view.reason else line


def fits_terminal(log_file: str) -> bool:
    """Whether a line may be written over and over: standard error is a terminal that the log does not use."""
    return sys.stderr.isatty() and (bool(log_file) or not sys.stdout.isatty())


async def run(read_view: Callable[[], View], clock: Clock, *, on_terminal: bool) -> None:
    """Until cancelled."""
    cadence = Cadence(PACE_S if on_terminal else LINE_EVERY_S)
    terminal = TerminalLine() if on_terminal else None
    try:
        while True:
            await look_later(PACE_S)
            view = read_view()
            due, caught_up = cadence.observe(view.lag_s, clock.monotonic_s())
            if due and terminal is None:
                _logger.info("catching up", progress=text(view))
            elif due and terminal is not None:
                terminal.show(text(view))
            if caught_up:
                if terminal is not None:
                    terminal.clear()
                _logger.info("caught up", lag_s=round(view.lag_s, 3))
    finally:
        if terminal is not None:
            terminal.clear()
