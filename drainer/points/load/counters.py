"""Counters of a load: how far it is, for whoever shows it. Written by all threads of the load.

Tests   tests/deploy/binlogctl/commands/test_load.py
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from tidb_binlog.late_dataclass import dataclass, replace
from tidb_binlog.status.drainer import LoadedTable, LoadStatus
from tidb_binlog.tso import Ts

PREPARING: Final = "preparing"
COPYING: Final = "copying"
FINISHING: Final = "finishing"
TABLES_SHOWN: Final = 50


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


@dataclass(slots=True)
class _Table:
    """`left`: chunks that are known and not copied yet; `is_cut`: all are known."""

    rows_expected: int
    rows: int = 0
    left: int = 0
    is_cut: bool = False
    is_begun: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_cut and not self.left


class Counters:
    """`view` and `status` may be asked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Progress()
        self._tables: dict[str, _Table] = {}

    def view(self) -> Progress:
        return self._now

    def status(self) -> LoadStatus:
        """As a page shows it: tables under way first, then those that wait, then those that are done."""
        with self._lock:
            now, tables = self._now, sorted(self._tables.items(), key=_rank)[:TABLES_SHOWN]
            return LoadStatus(
                stage=now.stage,
                note=now.note,
                ts=now.ts,
                rows=now.rows,
                rows_expected=now.rows_expected,
                table_count=now.tables,
                tables=[
                    LoadedTable(
                        table=name, rows=table.rows, rows_expected=table.rows_expected, done=table.is_done
                    )
                    for name, table in tables
                ],
            )

    def begin(self, ts: Ts, rows_expected: Mapping[str, int]) -> None:
        """`rows_expected`: of each table, as the upstream estimates."""
        with self._lock:
            self._tables = {name: _Table(rows) for name, rows in rows_expected.items()}
            self._now = Progress(COPYING, ts, len(rows_expected), rows_expected=sum(rows_expected.values()))

    def given(self, table: str) -> None:
        """One chunk of it to copy."""
        with self._lock:
            self._tables[table].left += 1

    def cut(self, table: str) -> None:
        """All its chunks are given, or were copied by an earlier run."""
        with self._lock:
            self._tables[table].is_cut = True

    def count_stored(self, table: str, rows: int) -> None:
        """Rows that an earlier run has copied."""
        with self._lock:
            self._tables[table].rows += rows
            self._now = replace(self._now, rows=self._now.rows + rows)

    def copied(self, table: str, rows: int, size_bytes: int, *, compared: bool) -> None:
        """One chunk."""
        with self._lock:
            now, of_table = self._now, self._tables[table]
            of_table.rows += rows
            of_table.left -= 1
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
            self._tables[table].is_begun = True
            self._now = replace(self._now, table=table)

    def say(self, stage: str, note: str = "") -> None:
        with self._lock:
            self._now = replace(self._now, stage=stage, note=note)


def _rank(named: tuple[str, _Table]) -> tuple[bool, bool]:
    _, table = named
    return table.is_done, not table.is_begun
