"""Ready items: a stream that is decoded before it is batched, in place of one that pumps send.

In     items in order of commit_ts, as their source decodes them
Out    batches of the merged stream, and the item of each entry when its turn comes
Holds  a DDL ends its batch: what comes after it is decoded when it has run. So does a large transaction

Tests  tests/drainer/app/test_recovery.py, tests/drainer/reparo/test_archive_source.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import Ddl, Item

BATCH_ROWS: Final = 4000
BATCH_BYTES: Final = 1 << 20


class ReadyItems:
    """`batch` is called before the first `next` of its entries, and again after the last one."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()

    def next(self) -> Item:
        """The item of the next entry."""
        return self._items.popleft()

    def batch(self, items: Iterator[Item | Spilled]) -> MergedBatch | None:
        """The next ones of `items`; None after the last."""
        entries: list[Merged] = []
        rows = size = 0
        for item in items:
            if isinstance(item, Spilled):
                entries.append(Merged(item.commit_ts, b"", spilled=item))
                break
            self._items.append(item)
            entries.append(Merged(item.commit_ts, b""))
            if isinstance(item, Ddl):
                break
            rows += sum(len(events.rows) for events in item.tables)
            size += item.size_bytes
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                break
        return MergedBatch(entries, entries[-1].commit_ts) if entries else None
