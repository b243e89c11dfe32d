"""Lanes crash and come back at any point: every change reaches the downstream exactly once, in order.

Random transactions over tables with a spread key, exact or not, a pinned key and no key go through a
dispatcher into lanes that commit chunk by chunk in any order and crash at any time; the restarted ones skip
by their positions. The contents at the end equal the model's.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from drainer.mysql.rows.causality import Spread, lane_of_key
from drainer.mysql.rows.change import (
    COMPLETE,
    KEY,
    OP,
    REMOVE,
    ROW,
    SPLIT,
    TABLE,
    Change,
    Chunk,
    Form,
    Position,
    TableTarget,
)
from drainer.sink.mysql.dispatcher import Dispatcher
from drainer.txn import DELETE, INSERT, UPDATE, TableEvents, TableVersion, Transaction
from tests.cases import case
from tests.drainer.support.lane_model import Downstream, FoldingParts, folding, table

LANES = 3


def tables() -> dict[TableVersion, TableTarget]:
    targets = [
        table(1, keyed=True, pinned=False, lanes=LANES),
        replace(folding(2, LANES), spread=Spread.BY_TABLE, form=Form.REWRITE),
        table(3, keyed=False, pinned=True, lanes=LANES),
        folding(4, LANES),
        folding(5, LANES, FoldingParts),
    ]
    return {target.version: target for target in targets}


def lane_of(change: Change) -> int:
    target, key = change[TABLE], change[KEY]
    if target.spread is Spread.BY_TABLE:
        return target.lane
    return lane_of_key(target.fold_id, key if target.spread is Spread.BY_KEY else key.lower(), LANES)


class Upstream:
    """Produces transactions and remembers what they lead to."""

    def __init__(self, rng: random.Random, targets: dict[TableVersion, TableTarget]) -> None:
        self._rng = rng
        self._targets = targets
        self.model = Downstream()
        self.came: dict[tuple[int, bytes], int] = {}  # by table and row, its commit_ts
        self._stamp = 0

    def transaction(self, commit_ts: int) -> Transaction:
        rng, ordinal, parts = self._rng, 0, []
        for version in rng.sample(list(self._targets), rng.randint(1, 3)):
            kinds, rows = [], []
            for _ in range(rng.choice((1, 2, 3, 12))):
                keyed = self._targets[version].keyed
                kind, row = self._keyed(version.id) if keyed else self._keyless(version.id)
                kinds.append(kind)
                rows.append(row)
                if keyed and kind != DELETE:  # each such row comes once
                    self.came[version.id, row] = commit_ts
            parts.append(TableEvents(version, kinds, rows, ordinal))
            ordinal += len(rows)
        return Transaction(commit_ts - 1, commit_ts, tuple(parts), 100)

    def _value(self) -> bytes:
        self._stamp += 1
        return b"%d" % self._stamp

    def _keyed(self, table_id: int) -> tuple[int, bytes]:
        rows = self.model.keyed.setdefault(table_id, {})
        key = self._rng.choice((b"k%d", b"K%d")) % self._rng.randrange(4)
        value = self._value()
        if key not in rows:
            rows[key] = value
            return INSERT, key + b"=" + value
        old = rows.pop(key)
        if self._rng.random() < 0.3:
            return DELETE, key + b"=" + old
        to = key
        if self._rng.random() < 0.3:
            to = self._rng.choice(
                [free for i in range(5) for free in (b"k%d" % i, b"K%d" % i) if free not in rows]
            )
        rows[to] = value
        return UPDATE, key + b"=" + old + b">" + to + b"=" + value

    def _keyless(self, table_id: int) -> tuple[int, bytes]:
        rows = self.model.keyless.setdefault(table_id, Counter())
        new = b"r=%d" % self._rng.randrange(3)
        present = sorted(rows.elements())
        if not present or self._rng.random() < 0.5:
            rows[new] += 1
            return INSERT, new
        old = self._rng.choice(present)
        rows[old] -= 1
        if self._rng.random() < 0.5:
            return DELETE, old
        rows[new] += 1
        return UPDATE, old + b">" + new


def dispatcher_of(
    positions: list[Position], targets: dict[TableVersion, TableTarget], **settings: int
) -> Dispatcher:
    dispatcher = Dispatcher(positions, **settings)
    for target in targets.values():
        dispatcher.learn(target)
    return dispatcher


def in_pieces(transaction: Transaction, rng: random.Random) -> list[Transaction]:
    """The transaction as a large one comes: rows in order, cut anywhere."""
    pieces = []
    for events in transaction.tables:
        start = 0
        while start < len(events.rows):
            end = min(len(events.rows), start + rng.randint(1, 4))
            part = TableEvents(
                events.table, events.kinds[start:end], events.rows[start:end], events.first_ordinal + start
            )
            piece = Transaction(transaction.start_ts, transaction.commit_ts, (part,), 100, last=False)
            pieces += (
                [replace(piece, tables=()), piece] if rng.random() < 0.2 else [piece]
            )  # rows filtered out
            start = end
    return [*pieces, Transaction(transaction.start_ts, transaction.commit_ts, (), 0)]


def learn(
    dispatcher: Dispatcher,
    piece: Transaction,
    targets: dict[TableVersion, TableTarget],
    rng: random.Random,
) -> None:
    """What is needed of its tables, of which some may have changed downstream."""
    if rng.random() < 0.2:
        changed = rng.choice((None, {("s", "t4")}))
        assert all(changed is None or target.fold_id == 4 for target in dispatcher.forget(changed))
        assert not any(dispatcher.forget(changed))
    unknown = dispatcher.unknown(piece)
    assert dispatcher.knows(piece) is not bool(unknown)
    for version in unknown:
        dispatcher.learn(targets[version])
    assert dispatcher.knows(piece)


def run(seed: int, crashes: int) -> None:
    rng = random.Random(seed)
    targets = tables()
    upstream = Upstream(rng, targets)
    transactions = [upstream.transaction(10 * number) for number in range(1, 40)]
    downstream = Downstream()
    positions = [Position(0)] * LANES
    parts: dict[tuple[int, int], list[Chunk]] = {}  # by lane and commit_ts
    while True:
        dispatcher = Dispatcher(positions, cut_rows=5)
        start_ts = min(position.complete_ts for position in positions)
        queues: list[list[Chunk]] = [[] for _ in range(LANES)]
        crash_at = rng.randrange(60) if crashes else -1
        steps = 0
        crashed = False
        pending = [
            piece
            for txn in transactions
            if txn.commit_ts > start_ts
            for piece in (in_pieces(txn, rng) if rng.random() < 0.3 else [txn])
        ]
        while pending or any(queues):
            if pending and (rng.random() < 0.5 or not any(queues)):
                piece = pending.pop(0)
                learn(dispatcher, piece, targets, rng)
                assert dispatcher.dispatch(piece) == sum(len(events.rows) for events in piece.tables)
                if rng.random() < 0.5 or not pending:
                    for lane, chunk in dispatcher.take():
                        queues[lane].append(chunk)
            else:
                lane = rng.choice([lane for lane in range(LANES) if queues[lane]])
                chunk = queues[lane].pop(0)
                assert chunk.first_ts <= chunk.position.commit_ts
                assert chunk.size_bytes == sum(len(change[ROW]) for change in chunk.changes)
                assert {lane_of(change) for change in chunk.changes} == {lane}
                assert all((b">" in change[ROW]) is (change[SPLIT] > 0) for change in chunk.changes)
                kept = [change for change in chunk.changes if change[TABLE].keyed and change[OP] != REMOVE]
                for ts in {upstream.came[change[TABLE].fold_id, change[ROW]] for change in kept}:
                    parts.setdefault((lane, ts), []).append(chunk)
                downstream.apply(chunk)
                positions[lane] = chunk.position
            steps += 1
            if steps == crash_at:
                crashes -= 1
                crashed = True
                break
        if not crashed:
            break
    assert downstream.contents() == upstream.model.contents()
    assert all(chunk.cut for chunks in parts.values() if len(chunks) > 1 for chunk in chunks)


def test_exactly_once_over_crashes() -> None:
    for seed in range(150):
        with case(seed):
            run(seed, crashes=seed % 6)


def test_a_large_transaction_is_cut_inside_a_lane() -> None:
    targets = tables()
    version = next(iter(targets))
    rows = [b"k%d=1" % number for number in range(100)]
    dispatcher = dispatcher_of([Position(0)], targets, cut_rows=30)
    assert dispatcher.dispatch(Transaction(5, 6, (TableEvents(version, [INSERT] * 100, rows, 0),), 1)) == 100
    chunks = [chunk for _, chunk in dispatcher.take()]
    assert [chunk.position for chunk in chunks] == [
        Position(6, 30),
        Position(6, 60),
        Position(6, 90),
        Position(6, COMPLETE),
    ]
    assert [chunk.first_ts for chunk in chunks] == [6] * 4
    assert [chunk.sequence for chunk in chunks] == [1, 2, 3, 4]
    assert all(chunk.cut for chunk in chunks)


def test_whole_transactions_are_never_cut() -> None:
    targets = tables()
    version = next(iter(targets))
    dispatcher = Dispatcher([Position(0)], cut_rows=1, whole=True)
    dispatcher.learn(targets[version])
    transaction = Transaction(
        5, 6, (TableEvents(version, [INSERT] * 9, [b"k%d=1" % n for n in range(9)], 0),), 1
    )
    *pieces, last = in_pieces(transaction, random.Random(1))
    for piece in pieces:
        dispatcher.dispatch(piece)
        assert dispatcher.take() == []
        assert dispatcher.reached == Position(0)
    dispatcher.dispatch(last)
    assert dispatcher.reached == Position(6)
    ((_, chunk),) = dispatcher.take()
    assert (len(chunk.changes), chunk.position, chunk.cut) == (9, Position(6), False)


def test_only_chunks_with_a_part_of_a_cut_transaction_are_marked() -> None:
    targets = tables()
    version = next(iter(targets))
    dispatcher = dispatcher_of([Position(0)], targets)

    def send(commit_ts: int, *, last: bool = True) -> bool:
        rows = [b"k%d=1" % commit_ts]
        dispatcher.dispatch(
            Transaction(commit_ts - 1, commit_ts, (TableEvents(version, [INSERT], rows, 0),), 1, last=last)
        )
        ((_, chunk),) = dispatcher.take()
        return chunk.cut

    assert [send(1), send(8, last=False), send(8), send(10)] == [False, True, True, False]


def test_a_restart_inside_a_transaction_skips_what_was_done() -> None:
    targets = tables()
    version = next(iter(targets))
    rows = [b"k%d=1" % number for number in range(10)]
    dispatcher = dispatcher_of([Position(6, 4)], targets)
    dispatcher.dispatch(Transaction(5, 6, (TableEvents(version, [INSERT] * 10, rows, 0),), 1))
    ((_, chunk),) = dispatcher.take()
    assert [change[ROW] for change in chunk.changes] == rows[4:]
    assert dispatcher.skipped == 4


def test_a_move_counts_as_one_row_event_on_both_lanes() -> None:
    targets = tables()
    version = next(iter(targets))
    row = b"k1=a>k7=b"
    dispatcher = dispatcher_of([Position(6, 1)] * LANES, targets)
    dispatcher.dispatch(Transaction(5, 6, (TableEvents(version, [INSERT, UPDATE], [b"k1=a", row], 0),), 1))
    changes = [change for _, chunk in dispatcher.take() for change in chunk.changes]
    assert sorted(change[KEY] for change in changes) == [b"k1", b"k7"]
