"""Batches of a batch sink: bounded, in order, DDL alone; and what is left of one after a failure."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from drainer.checkpoint.fencing import WentBack
from drainer.sink.batch.batching import Batch, Batching, Item, rest_of
from drainer.txn import Ddl, LargeTransaction, TableEvents, Transaction
from tests.cases import case
from tidb_binlog.errors import Conflict

TABLE: Any = None


def txn(ts: int, rows: int = 1, size: int = 10) -> Transaction:
    events = TableEvents(TABLE, (0,) * rows, [b""] * rows, 0)
    return Transaction(ts - 1, ts, (events,), size)


def ddl(ts: int) -> Ddl:
    return Ddl(ts, 1, 3, "d", "", (), 1)


def large(ts: int) -> LargeTransaction:
    return LargeTransaction(ts - 1, ts, 1 << 40, lambda: iter(()))


def batches(batching: Batching) -> list[Batch]:
    found = []
    while batching:
        found.append(batching.next())
    return found


def test_every_item_is_in_one_batch_in_order_and_what_is_alone_stays_alone() -> None:
    for kinds in [*itertools.product((txn, ddl, large), repeat=4)]:
        with case(kinds):
            batching = Batching(0, rows_max=2, bytes_max=1000)
            items: list[Item] = [kind(10 * number) for number, kind in enumerate(kinds, 1)]
            for item in items:
                batching.add(item)
            found = batches(batching)
            assert [item for batch in found for item in batch.items] == items
            for batch in found:
                assert len(batch.items) == 1 or all(isinstance(item, Transaction) for item in batch.items)
                assert len(batch.items) <= 2
                assert batch.position == batch.items[-1].commit_ts
            assert batching.size_bytes == 0


def test_rows_and_bytes_bound_a_batch_and_one_transaction_always_fits() -> None:
    batching = Batching(0, rows_max=5, bytes_max=100)
    for item in (txn(1, 3), txn(2, 2), txn(3, 1), txn(4, 1, 95), txn(5, 9, 900), txn(6)):
        batching.add(item)
    assert batching.size_bytes == 10 + 10 + 10 + 95 + 900 + 10
    assert [[item.commit_ts for item in batch.items] for batch in batches(batching)] == [
        [1, 2],
        [3],
        [4],
        [5],
        [6],
    ]


def test_the_last_batch_goes_as_far_as_the_stream() -> None:
    batching = Batching(4, rows_max=1, bytes_max=100)
    assert batching.next() == Batch((), 4)
    batching.add(txn(10))
    batching.add(txn(20))
    batching.reaches(33)
    batching.reaches(12)
    assert [batching.next().position, batching.next().position] == [10, 33]
    assert batching.next() == Batch((), 33)


BATCH = Batch((txn(10), txn(20), txn(30)), 35)


@pytest.mark.parametrize(
    ("position", "left"),
    [(5, [10, 20, 30]), (9, [10, 20, 30]), (10, [20, 30]), (29, [30]), (30, []), (34, [])],
)
def test_after_a_failure_what_is_there_is_not_written_again(position: int, left: list[int]) -> None:
    rest = rest_of(BATCH, position, 5)
    assert rest is not None
    assert [item.commit_ts for item in rest.items] == left
    assert rest.position == 35


def test_a_whole_batch_may_be_there() -> None:
    assert rest_of(BATCH, 35, 5) is None
    assert rest_of(Batch((), 35), 35, 5) is None


def test_a_position_that_cannot_be_is_refused() -> None:
    with pytest.raises(WentBack, match="stands at 4, and had confirmed 5"):
        rest_of(BATCH, 4, 5)
    with pytest.raises(Conflict, match="another program") as raised:
        rest_of(BATCH, 36, 5)
    assert not isinstance(raised.value, WentBack)
    assert raised.value.hint


def test_a_batch_is_complete_when_nothing_would_change_it() -> None:
    """What is said before an item comes and what is taken then are compared, for each item more."""
    for kinds in [*itertools.product((txn, ddl, large), repeat=4)]:
        with case(kinds):
            batching = Batching(0, rows_max=2, bytes_max=1000)
            for ts, kind in enumerate(kinds, 10):
                batching.add(kind(ts))
                alone = any(make is not txn for make in kinds[: ts - 9])
                assert batching.is_complete == (alone or ts - 9 >= 2)
            while batching:
                batching.next()
            assert not batching.is_complete
            batching.add(txn(50, rows=1, size=1000))
            assert batching.is_complete, "as large as a batch may be"
