"""Figures of a run: rates over a sliding window and over all, quantiles of the lag. Pure.

Tests  tests/deploy/binlog_playground/test_options.py
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from tidb_binlog.late_dataclass import dataclass, field

WINDOW_S = 3.0


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value with at least `share` of all at or below it (nearest rank); 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class Statistics:
    """Counters of the random workload. Times are seconds of one monotonic clock."""

    transactions: int = 0
    rows: int = 0
    rolled_back: int = 0
    refused: int = 0
    ddl: int = 0
    replayed: int = 0
    replay_s: float = 0.0
    first_row_s: float = 0.0
    started_s: float = 0.0
    ended_s: float = 0.0
    lag_s: list[float] = field(default_factory=list)
    quiet_lag_s: list[float] = field(default_factory=list)
    """What the Drainer said at each poll while no session wrote."""
    _window: deque[tuple[float, int, int]] = field(default_factory=deque)

    def committed(self, rows: int) -> None:
        self.transactions += 1
        self.rows += rows

    def rates(self, now_s: float) -> tuple[float, float]:
        """Transactions/s and rows/s over the last seconds."""
        self._window.append((now_s, self.transactions, self.rows))
        while self._window[0][0] < now_s - WINDOW_S:
            self._window.popleft()
        since_s, transactions, rows = self._window[0]
        elapsed_s = now_s - since_s
        if elapsed_s <= 0:
            return 0.0, 0.0
        return (self.transactions - transactions) / elapsed_s, (self.rows - rows) / elapsed_s

    def overall_rates(self) -> tuple[float, float]:
        """Transactions/s and rows/s of the whole random workload."""
        elapsed_s = self.ended_s - self.started_s
        if elapsed_s <= 0:
            return 0.0, 0.0
        return self.transactions / elapsed_s, self.rows / elapsed_s

    def lag_ms(self, share: float) -> float:
        """A quantile of the lag in milliseconds."""
        return quantile(self.lag_s, share) * 1000
