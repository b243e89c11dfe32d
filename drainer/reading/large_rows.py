"""Large rows: those of a large transaction, read from disk while they are iterated, once.

Out    the same, once; a second iteration raises `StreamEnded` and gives no empty transaction
Why    of a small transaction rows are a list: a program that counts first and writes then would lose the
       large ones without a word

Tests  tests/drainer/reading/test_large_rows.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from drainer.changes.model import R, Row
from drainer.reading.errors import StreamEnded
from tidb_binlog.tso import Ts


class LargeRows(Generic[R]):
    """Rows of a large transaction, while it is the current one."""

    def __init__(self, commit_ts: Ts, rows: Iterator[Row[R]]) -> None:
        self._commit_ts = commit_ts
        self._rows: Iterator[Row[R]] | None = rows

    def __iter__(self) -> Iterator[Row[R]]:
        rows, self._rows = self._rows, None
        if rows is None:
            raise StreamEnded(
                f"the rows of the large transaction {self._commit_ts} were read, or passed over",
                position=self._commit_ts,
                hint="iterate them once, before the next item is asked for; a list() of them keeps them",
            )
        return rows

    def pass_over(self) -> None:
        """Nothing is read from it any more."""
        self._rows = None
