"""Rows about which a DDL has something to say: before it, and of transactions that began before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from drainer.sink.early_rows import EarlyRows
from drainer.sink.runner import Runner
from drainer.stream.pull.merged import MergedBatch
from drainer.txn import (
    DELETE,
    INSERT,
    UPDATE,
    Ddl,
    LargeTransaction,
    TableEvents,
    TableVersion,
    Tracked,
    Transaction,
)
from tests.common.rowcodec.tables import kind, table
from tests.contract.beds import Medium, MemorySink
from tests.drainer.support.archive_life import Ready, merged_of
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.tso import compose

T, U = (TableVersion(replace(table(("a", kind("int"))), id=number), "d", "t", 1) for number in (1, 2))
TAKES = (
    ActionType.TRUNCATE_TABLE_PARTITION,
    ActionType.DROP_TABLE_PARTITION,
    ActionType.EXCHANGE_TABLE_PARTITION,
)


def ddl(commit_ts: int, action: int, *, skip: str = "", early: str = "") -> Ddl:
    tracked = (Tracked("d", "t", {"id": 1}),)
    return Ddl(
        commit_ts, 7, action, "d", "ALTER", (("d", "t"),), 1, skip, early=early, before=tracked, after=tracked
    )


def rows(of: TableVersion, start_ts: int, *kinds: int) -> Transaction:
    return Transaction(start_ts, start_ts + 20, (TableEvents(of, list(kinds), [b""] * len(kinds), 0),), 1)


@pytest.mark.parametrize("action", TAKES)
def test_rows_of_a_transaction_around_a_ddl_that_takes_partitions_are_told(action: int) -> None:
    early = EarlyRows(SystemClock())
    early.note_rows(rows(T, 90, INSERT))
    early.note_ddl(ddl(100, action))
    assert early.told == []
    for harmless in (rows(T, 100, INSERT), rows(U, 90, INSERT), rows(T, 90, DELETE, DELETE)):
        early.note_rows(harmless)
    assert early.told == []
    early.note_rows(rows(T, 90, DELETE, UPDATE))
    early.note_rows(rows(T, 91, INSERT))
    (told,) = early.told
    assert (told.job_id, told.commit_ts, told.tables) == (7, 100, ["d.t"])


def test_rows_by_definitions_of_before_a_ddl_that_takes_partitions_are_told() -> None:
    """A TiDB learns of a DDL a moment after it has ended."""
    early = EarlyRows(SystemClock())
    early.note_ddl(replace(ddl(100, TAKES[0]), schema_version=60))
    for version in (0, 60, 61):
        early.note_rows(replace(rows(T, 110, INSERT), schema_version=version))
    early.note_ddl(replace(ddl(105, TAKES[0]), schema_version=61, before=(), after=()))
    early.note_rows(replace(rows(T, 110, INSERT), schema_version=60))
    assert early.told == []
    early.note_rows(replace(rows(T, 110, INSERT), schema_version=59))
    (told,) = early.told
    assert (told.job_id, told.schema_version) == (7, 60)


def test_a_table_is_watched_as_long_as_a_transaction_may_live() -> None:
    early = EarlyRows(SystemClock())
    hour = compose(3_600_000)
    early.note_ddl(ddl(100, TAKES[0]))
    early.note_ddl(ddl(200, ActionType.ADD_COLUMN))
    assert early.watched(100 + hour - 1) == (1,)
    assert early.watched(100 + hour) == ()


class ReadsLarge(MemorySink):
    reads_large = True

    async def take_large(self, large: LargeTransaction) -> None:
        list(large.pieces())


@pytest.mark.parametrize("sink", [MemorySink, ReadsLarge])
async def test_rows_of_a_large_one_are_told_too_whoever_reads_them(sink: type[MemorySink]) -> None:
    source = Ready([ddl(100, TAKES[0])], large={120: [rows(T, 90, DELETE), rows(T, 90, INSERT)]})
    runner = Runner(sink(Medium()), source)

    async def batches() -> AsyncIterator[MergedBatch]:
        yield MergedBatch([merged_of(source, 100), merged_of(source, 120)], 120)

    await runner.run(batches())
    assert [told["commit_ts"] for told in runner.facts()["EarlyRows"]] == [100]


def test_of_other_ddl_and_of_one_that_does_not_count_nothing_is_told() -> None:
    early = EarlyRows(SystemClock())
    early.note_ddl(ddl(100, ActionType.ADD_COLUMN))
    early.note_ddl(ddl(101, ActionType.DROP_TABLE_PARTITION, skip="filtered", early="rows lack values"))
    early.note_rows(rows(T, 90, INSERT))
    assert early.told == []


def test_rows_before_a_ddl_are_told_by_it() -> None:
    early = EarlyRows(SystemClock())
    early.note_ddl(ddl(100, ActionType.MULTI_SCHEMA_CHANGE, early="rows lack values"))
    assert [told.commit_ts for told in early.told] == [100]


def test_a_statement_is_told_once_by_the_next_process_too() -> None:
    before, after = EarlyRows(SystemClock()), EarlyRows(SystemClock())
    before.note_ddl(ddl(100, ActionType.DROP_TABLE_PARTITION, early="rows are gone"))
    after.load(before.kept())
    assert [told.commit_ts for told in after.told] == [100]
    after.note_ddl(ddl(100, ActionType.DROP_TABLE_PARTITION, early="rows are gone"))
    after.note_rows(rows(T, 90, INSERT))
    assert [told.commit_ts for told in after.told] == [100]
    assert after.told[0].last_s >= before.told[0].last_s


async def test_a_ddl_is_noted_before_it_is_taken() -> None:
    class Dies(MemorySink):
        async def take_ddl(self, ddl: Ddl) -> None:
            raise RuntimeError

    source = Ready([ddl(100, TAKES[0], early="rows lack values")])
    runner = Runner(Dies(Medium()), source)

    async def batches() -> AsyncIterator[MergedBatch]:
        yield MergedBatch([merged_of(source, 100)], 100)

    with pytest.raises(RuntimeError):
        await runner.run(batches())
    assert [told["commit_ts"] for told in runner.facts()["EarlyRows"]] == [100]


def test_a_lane_may_keep_what_it_met_while_a_ddl_is_noted() -> None:
    early = EarlyRows(SystemClock())

    def note(number: int) -> None:
        before = cast(tuple[Tracked], (SimpleNamespace(id=number),))
        early.note_ddl(replace(ddl(100, TAKES[0]), before=before, after=()))

    class Number(int):
        def __str__(self) -> str:  # of the lane's reading, while the stream goes on
            note(6)
            return int.__repr__(self)

    note(Number(5))
    assert "5" in early.kept().took
