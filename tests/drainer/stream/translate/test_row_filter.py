"""Row filters: what passes, in runs whose ordinals are those of the whole payload."""

from __future__ import annotations

import itertools

import pytest

from drainer.mysql.mark import is_mark_table
from drainer.stream.translate.row_filter import CLOSED, MarkRows, RowFilter
from drainer.txn import DELETE, INSERT, UPDATE, TableVersion
from tests.drainer.stream.translate.setting import mark_table
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import (
    VARCHAR,
    FieldType,
    TableInfo,
)

KINDS = (INSERT, UPDATE, DELETE)
TABLE = TableVersion(TableInfo(1, "t", ()), "db", "t", 1)


def test_every_short_sequence_passes_with_its_ordinals() -> None:
    dropped_sets = [frozenset(out) for size in range(3) for out in itertools.combinations(KINDS, size)]
    for size in range(7):
        for kinds in itertools.product(KINDS, repeat=size):
            rows = [b"%d" % place for place in range(size)]
            for dropped in dropped_sets:
                row_filter = RowFilter(1, TABLE, dropped)
                seen = []
                for events in row_filter.passed(kinds, list(rows), 100, 1):
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
    assert RowFilter(1, TABLE).plain
    assert not RowFilter(1, TABLE, frozenset({DELETE})).plain


CHANNEL = 7


@pytest.mark.parametrize("clustered", [True, False])
def test_every_kind_of_row_counts_and_only_of_our_channel(clustered: bool) -> None:
    info = mark_table(clustered=clustered)
    encoder, rows = RowEncoder(info), MarkRows(info, CHANNEL)
    handle = None if clustered else 1

    def made(kind: int, channel: int) -> bytes:
        old, new = (1, channel, 1, ""), (1, channel, 2, "")
        if kind == INSERT:
            return encoder.insert(old, handle)
        return encoder.update(old, new, handle) if kind == UPDATE else encoder.delete(old, handle)

    for kind in (INSERT, UPDATE, DELETE):
        assert rows.is_ours((kind,), [made(kind, CHANNEL)], 5)
        assert not rows.is_ours((kind,), [made(kind, CHANNEL + 1)], 5)
        assert rows.is_ours((kind, kind), [made(kind, 1), made(kind, CHANNEL)], 5), "any of them"
    assert not rows.is_ours((), [], 5)


def test_a_mark_that_cannot_be_read_stops() -> None:
    with pytest.raises(Corruption, match="commit_ts 5 cannot be read"):
        MarkRows(mark_table(), CHANNEL).is_ours((INSERT,), [b"\xff"], 5)


@pytest.mark.parametrize(
    "info", [mark_table(channel=FieldType(VARCHAR, 1, 9, -1, "utf8mb4", "utf8mb4_bin")), mark_table(name="x")]
)
def test_a_table_without_a_whole_number_as_channel_stops(info: TableInfo) -> None:
    with pytest.raises(Corruption, match="no column channel_id of an integer type"):
        MarkRows(info, CHANNEL)


def test_the_table_is_known_by_name_in_any_case() -> None:
    assert is_mark_table("RETL", "_Drainer_Repl_Mark")
    assert not is_mark_table("retl", "_drainer_repl_mark2")
    assert not is_mark_table("db", "_drainer_repl_mark")
