"""Row mismatch: where the downstream turned out not to be what it should be, counted per table.

In     what lanes saw when they committed: rows that a statement should have touched and did not (or the
       reverse), texts that a column's character set does not have
Out    sums per table and column, metrics, at most one line a minute and table in the log
Never  names a row or a value

Tests  tests/drainer/sink/mysql/test_lane_mariadb.py
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from drainer import metrics
from tidb_binlog.clock import Clock
from tidb_binlog.observe import log
from tidb_binlog.status.drainer import MismatchStatus
from tidb_binlog.tso import Ts

logger = log.get("drainer.drift")

LINE_EVERY_S: Final = 60.0


class Drift:
    """Used by all lanes. `on_line` is called with each line that the log may have."""

    def __init__(self, clock: Clock, on_line: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_line = on_line
        self._lock = threading.Lock()
        self._rows: Counter[str] = Counter()
        self._texts: dict[str, Counter[str]] = {}
        self._logged_s: dict[tuple[str, str], float] = {}
        self._last_s = self._texts_last_s = 0.0  # wall time of what was counted last, 0 before it

    @property
    def total(self) -> int:
        """Rows of all tables."""
        return sum(self.rows().values())

    def rows(self) -> dict[str, int]:
        """Rows by table; those with none are not there."""
        with self._lock:
            return dict(self._rows)

    def texts(self) -> dict[str, dict[str, int]]:
        """Values that the column's character set could not hold, by table and column."""
        with self._lock:
            return {table: dict(columns) for table, columns in self._texts.items()}

    def status(self) -> MismatchStatus:
        """For `/status`."""
        return MismatchStatus(
            rows=self.rows(), texts=self.texts(), last_s=self._last_s, texts_last_s=self._texts_last_s
        )

    def load(self, kept: MismatchStatus) -> None:
        """Count on from what another process has counted, which may have counted on from the same."""
        with self._lock:
            self._rows |= Counter(kept.rows)
            for table, columns in kept.texts.items():
                self._texts[table] = self._texts.get(table, Counter()) | Counter(columns)
            self._last_s = max(self._last_s, kept.last_s)
            self._texts_last_s = max(self._texts_last_s, kept.texts_last_s)

    def note(self, rows: Mapping[str, int], texts: Mapping[str, int], first_ts: Ts, last_ts: Ts) -> None:
        """Count rows by table, and values by table and column with a dot between them."""
        for table, count in rows.items():
            self.note_rows(table, count, first_ts, last_ts)
        for name, count in texts.items():
            table, _, column = name.rpartition(".")
            self.note_texts(table, column, count, first_ts, last_ts)

    def note_rows(self, table: str, rows: int, first_ts: Ts, last_ts: Ts) -> None:
        with self._lock:
            self._rows[table] += rows
            self._last_s = self._clock.wall_s()
            total = self._rows[table]
        metrics.DRIFT_ROWS.labels(table).inc(rows)
        if self._may_log("rows", table):
            logger.warning(
                "downstream rows were not as expected",
                table=table,
                rows=rows,
                rows_since_start=total,
                first_commit_ts=first_ts,
                last_commit_ts=last_ts,
            )

    def note_texts(self, table: str, column: str, values: int, first_ts: Ts, last_ts: Ts) -> None:
        with self._lock:
            columns = self._texts.setdefault(table, Counter())
            columns[column] += values
            self._texts_last_s = self._clock.wall_s()
            total = columns[column]
        metrics.FOREIGN_TEXT.labels(table, column).inc(values)
        if self._may_log(column, table):
            logger.warning(
                "text that the downstream's character set does not have",
                table=table,
                column=column,
                values=values,
                values_since_start=total,
                first_commit_ts=first_ts,
                last_commit_ts=last_ts,
            )

    def _may_log(self, what: str, table: str) -> bool:
        now_s = self._clock.monotonic_s()
        with self._lock:
            logged_s = self._logged_s.get((what, table))
            if logged_s is not None and now_s - logged_s < LINE_EVERY_S:
                return False
            self._logged_s[what, table] = now_s
        self._on_line()
        return True
