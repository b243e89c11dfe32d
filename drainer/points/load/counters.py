"""Counters of a load: how far it is, for whoever shows it. Written by all threads of the load.

Tests   tests/deploy/binlogctl/commands/test_load.py
"""

from __future__ import annotations

import threading
from typing import Final

from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.tso import Ts

PREPARING: Final = "preparing"
COPYING: Final = "copying"
FINISHING: Final = "finishing"


@dataclass(frozen=True, slots=True)
class Progress:
    """`rows_expected` is an estimate. `rows_here`: of this run. `table`: one of those that are copied now."""

    stage: str = PREPARING
    ts: Ts = 0
    tables: int = 0
    rows: int = 0
    rows_here: int = 0
    rows_compared: int = 0
    rows_expected: int = 0
    chunks: int = 0
    size_bytes: int = 0
    table: str = ""
    note: str = ""

    @property
    def share(self) -> float | None:
        """How much of all rows; None where nobody knows how many there are."""
        if not self.rows_expected:
            return None
        return min(1.0, self.rows / self.rows_expected)


class Counters:
    """`view` may be asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Progress()

    def view(self) -> Progress:
        return self._now

    def begin(self, ts: Ts, tables: int, rows_expected: int) -> None:
        with self._lock:
            self._now = Progress(COPYING, ts, tables, rows_expected=rows_expected)

    def expect(self, rows: int) -> None:
        """Of one more table, as the upstream estimates."""
        with self._lock:
            self._now = replace(self._now, rows_expected=self._now.rows_expected + rows)

    def count_stored(self, rows: int) -> None:
        """Rows that an earlier run has copied."""
        with self._lock:
            self._now = replace(self._now, rows=self._now.rows + rows)

    def copied(self, rows: int, size_bytes: int, *, compared: bool) -> None:
        """One chunk."""
        with self._lock:
            now = self._now
            self._now = replace(
                now,
                rows=now.rows + rows,
                rows_here=now.rows_here + (0 if compared else rows),
                rows_compared=now.rows_compared + (rows if compared else 0),
                chunks=now.chunks + 1,
                size_bytes=now.size_bytes + size_bytes,
            )

    def at(self, table: str) -> None:
        with self._lock:
            self._now = replace(self._now, table=table)

    def say(self, stage: str, note: str = "") -> None:
        with self._lock:
            self._now = replace(self._now, stage=stage, note=note)
