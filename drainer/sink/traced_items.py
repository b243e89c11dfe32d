"""Traced items: the translator of a stream whose trace is written.

Out    a span from the first translation after a flush to the next flush: what was translated, dispatched
Why    one span a transaction would cost more than the transaction
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from drainer.stream.pull.merged import Merged, MergedBatch, Spilled
from drainer.txn import Item, Transaction
from tidb_binlog.observe import trace

TRACK: Final = "stream"


def traced(batch: MergedBatch) -> AbstractContextManager[None]:
    """What the stream does with a batch."""
    what: dict[str, Any] = batch.facts() if trace.is_on() else {}
    return trace.span("batch", TRACK, **what)


class ItemSource(Protocol):
    """The translator, as a stream sees it."""

    def translate(self, merged: Merged) -> Item: ...

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]: ...


class TracedItems:
    def __init__(self, items: ItemSource) -> None:
        self._items = items
        self._begin_ns = self._translating_ns = 0
        self._transactions = self._first_ts = self._last_ts = 0

    def translate(self, merged: Merged) -> Item:
        begin_ns = trace.now_ns()
        if not self._transactions:
            self._begin_ns, self._first_ts = begin_ns, merged.commit_ts
        item = self._items.translate(merged)
        self._translating_ns += trace.now_ns() - begin_ns
        self._transactions += 1
        self._last_ts = merged.commit_ts
        return item

    def pieces(self, spilled: Spilled) -> Iterator[Transaction]:
        return self._items.pieces(spilled)

    def flushed(self) -> None:
        """What was translated before goes to the sink now."""
        if self._transactions:
            trace.since(
                "translates, dispatches",
                TRACK,
                self._begin_ns,
                transactions=self._transactions,
                first_ts=self._first_ts,
                last_ts=self._last_ts,
                translating_us=self._translating_ns // 1000,
            )
        self._transactions = self._translating_ns = 0
