"""Merged: what a merger gives, in order of commit_ts, and what all that follows takes.

Tests  tests/drainer/stream/pull/test_merger.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from drainer.txn import Ddl, Item
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import Ts


@dataclass(frozen=True, slots=True, eq=False)
class Spilled:
    """A joined payload that is too large to wait in memory and lies on disk; rows only, never a DDL.

    `read(offset, size)` blocks and returns fewer bytes only at the end. `checksum` is of everything from
    field 5 on, which begins at `contents_offset`. `release` says that it will not be read any
    more, so that more may be pulled; the disk space is free again when the last reference goes.
    """

    commit_ts: Ts
    start_ts: Ts
    size: int
    contents_offset: int
    checksum: int
    read: Callable[[int, int], bytes]
    release: Callable[[], None] = lambda: None

    @property
    def contents(self) -> tuple[int, int, int]:
        """What two copies of one transaction have in common: start_ts, and size and checksum of the rest."""
        return self.start_ts, self.size - self.contents_offset, self.checksum


class Merged(NamedTuple):
    """One binlog of the merged stream: a joined payload, and the DDL job document if it is a finished DDL.

    The payload of a large transaction is b"" here, and `spilled` says where it is.
    """

    commit_ts: Ts
    payload: bytes
    job: dict[str, Any] | None = None
    spilled: Spilled | None = None


@dataclass(frozen=True, slots=True)
class MergedBatch:
    """A piece of the merged stream. Every commit_ts at or below `watermark` is in it or came before it."""

    entries: list[Merged]
    watermark: int

    def facts(self) -> dict[str, int]:
        """For a trace."""
        return stretch(self.entries) | {"watermark": self.watermark}


def stretch(entries: Sequence[Merged]) -> dict[str, int]:
    """How many, and from which commit_ts to which; for a trace."""
    if not entries:
        return {"binlogs": 0}
    return {"binlogs": len(entries), "first_ts": entries[0].commit_ts, "last_ts": entries[-1].commit_ts}


BATCH_ROWS: Final = 4000
BATCH_BYTES: Final = 1 << 20


class DecodedItems:
    """A stream that is decoded before it is batched, in place of one that pumps send.

    `batch` is called before the first `next` of its entries, and again after the last one. A DDL ends its
    batch: what comes after it is decoded when it has run. So does a large transaction.
    """

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
