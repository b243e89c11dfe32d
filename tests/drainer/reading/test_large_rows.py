"""Rows of a large transaction are read once: a second time is an error, not an empty transaction."""

from __future__ import annotations

import pytest

from drainer.changes.model import Row, Table
from drainer.reading.errors import StreamEnded
from drainer.reading.large_rows import LargeRows
from drainer.reading.subscribe.live_stream import Large
from drainer.reading.subscribe.subscription import EncodedStream, Subscription

TABLE = Table("d", "t", (), (), 1, 1)


def test_a_second_iteration_is_refused() -> None:
    rows = LargeRows(7, iter([Row(TABLE, "insert", None, {})] * 3))
    assert len(list(rows)) == 3
    with pytest.raises(StreamEnded, match="the rows of the large transaction 7 were read"):
        list(rows)


def test_so_it_is_with_those_of_a_stream() -> None:
    stream = Subscription(EncodedStream("127.0.0.1:1"))
    change = stream._change(Large(6, 7, iter(())))
    assert list(change.rows) == []  # type: ignore[union-attr]
    with pytest.raises(StreamEnded):
        list(change.rows)  # type: ignore[union-attr]
