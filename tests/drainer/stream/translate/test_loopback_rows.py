"""Mark rows: which transactions a drainer of our channel wrote."""

from __future__ import annotations

import pytest

from drainer.stream.translate.row_filter import MarkRows, is_mark_table
from drainer.txn import DELETE, INSERT, UPDATE
from tests.drainer.stream.translate.setting import mark_table
from tidb_binlog.errors import Corruption
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import (
    VARCHAR,
    FieldType,
    TableInfo,
)

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
