"""Row gates: what passes, in runs whose ordinals are those of the whole payload."""

from __future__ import annotations

import itertools

from drainer.stream.translate.row_filter import CLOSED, RowGate
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tidb_binlog.table_info import TableInfo

KINDS = (INSERT, UPDATE, DELETE)
TABLE = TableVersion(TableInfo(1, "t", ()), "db", "t", 1)


def test_every_short_sequence_passes_with_its_ordinals() -> None:
    dropped_sets = [frozenset(out) for size in range(3) for out in itertools.combinations(KINDS, size)]
    for size in range(7):
        for kinds in itertools.product(KINDS, repeat=size):
            rows = [b"%d" % place for place in range(size)]
            for dropped in dropped_sets:
                gate = RowGate(1, TABLE, dropped)
                seen = []
                for events in gate.passed(kinds, list(rows), 100, 1):
                    assert events.table is TABLE
                    assert len(events.rows) == len(events.kinds)
                    assert events.rows or not size
                    for place, (kind, row) in enumerate(zip(events.kinds, events.rows, strict=True)):
                        seen.append((events.first_ordinal + place, kind, row))
                wanted = [
                    (100 + place, kind, rows[place])
                    for place, kind in enumerate(kinds)
                    if kind not in dropped
                ]
                assert seen == wanted


def test_nothing_passes_a_closed_gate() -> None:
    assert not CLOSED.opens
    assert list(CLOSED.passed((INSERT,), [b"x"], 0, 1)) == []
    assert not CLOSED.is_ours((INSERT,), [b"x"], 1)


def test_a_gate_without_filters_is_plain() -> None:
    assert RowGate(1, TABLE).plain
    assert not RowGate(1, TABLE, frozenset({DELETE})).plain
