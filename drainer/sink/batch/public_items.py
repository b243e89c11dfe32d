"""Public items: what batch sinks of programs are given, made of what the translator gives.

Out    the same as `drainer.changes` has them. Rows of a large transaction are read while they are iterated,
       each time from the first one on

Tests  tests/drainer/sink/batch/test_public_items.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from drainer import txn
from drainer.changes.model import Ddl, Row, Transaction
from drainer.changes.row_reader import RowReader
from drainer.sink.batch.batching import Item


class PublicItems:
    """Keeps what was compiled for table versions. Not for several threads at once."""

    def __init__(self) -> None:
        self._reader = RowReader()

    def __call__(self, items: Sequence[Item]) -> list[Transaction | Ddl]:
        """Raises `RowError`."""
        return [self._public(item) for item in items]

    def _public(self, item: Item) -> Transaction | Ddl:
        if isinstance(item, txn.Transaction):
            return self._reader.transaction(item)
        if isinstance(item, txn.Ddl):
            return self._reader.ddl(item)
        rows = LargeRows(item.pieces, self._reader)
        return Transaction(item.commit_ts, item.start_ts, rows, large=True, snapshot=item.snapshot)


class LargeRows:
    """Rows of a large transaction, a piece of them in memory at a time."""

    def __init__(self, pieces: Callable[[], Iterator[txn.Transaction]], reader: RowReader) -> None:
        self._pieces = pieces
        self._reader = reader

    def __iter__(self) -> Iterator[Row]:
        for piece in self._pieces():
            yield from self._reader.transaction(piece).rows
