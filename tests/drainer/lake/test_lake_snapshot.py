"""Rows of a snapshot in changelogs: killed at every step, each row is there once."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drainer.lake.lake_sink import LakeItems
from drainer.lake.lake_table import Lake
from drainer.points.rows.snapshot_position import SnapshotPosition
from drainer.txn import INSERT, LargeTransaction, TableEvents, TableVersion, Transaction
from tests.contract.lake_beds import BEDS, LakeBed
from tests.drainer.support.lake_world import Killed, Mortal, change, column, sink_of, transaction, version_of
from tidb_binlog.errors import Conflict
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import VARCHAR

TS = 1 << 58
T = version_of(column(1, "id"), column(2, "v", VARCHAR, flen=64))
U = version_of(column(1, "id"), column(2, "v", VARCHAR, flen=64), name="u", number=8)


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> LakeBed:
    return BEDS[request.param](tmp_path)


def chunk(version: TableVersion, first: int, count: int, ts: int = TS) -> LargeTransaction:
    """Rows `first` and on of a snapshot, in two pieces."""
    rows = [RowEncoder(version.info).insert((number, "x"), 1) for number in range(first, first + count)]
    text = SnapshotPosition(ts, first + count, "d.t", "[]").text()

    def pieces() -> Iterator[Transaction]:
        for some, at in ((rows[:1], first), (rows[1:], first + 1)):
            events = TableEvents(version, [INSERT] * len(some), some, at)
            yield Transaction(ts, ts, (events,), 1, last=at > first, snapshot=text)

    return LargeTransaction(ts, ts, 1, pieces)


CHUNKS = [chunk(T, 0, 3), chunk(T, 3, 2), chunk(U, 5, 4)]
AFTER = transaction(TS + 5, change(T, INSERT, (100, "y")))


def give(lake: Lake, items: list[Any]) -> None:
    """Until it dies; the next life begins with what came last."""
    sink = sink_of(lake)
    sink.open()
    while items:
        sink.write(LakeItems()(items[:1]), 0)
        items.pop(0)
    sink.close()


def found(bed: LakeBed, table: str) -> list[tuple[int, str, int]]:
    return sorted((row["_commit_ts"], row["_kind"], row["after"]["id"]) for row in bed.changes(table))


def test_killed_at_every_step_each_row_is_there_once(bed: LakeBed) -> None:
    for step in itertools.count(1):
        died = False
        for moment in ("before", "after"):
            shutil.rmtree(bed.warehouse, ignore_errors=True)
            left = [*CHUNKS, AFTER]
            with contextlib.suppress(Killed):
                give(Mortal(bed.lake(), (step, moment)), left)
            died = died or bool(left)
            give(bed.lake(), left)
            assert found(bed, "t") == [
                *((TS, "snapshot", number) for number in range(5)),
                (TS + 5, "insert", 100),
            ]
            assert found(bed, "u") == [(TS, "snapshot", number) for number in range(5, 9)]
        if not died:
            break
    assert step > 3


def test_a_changelog_that_has_changes_takes_no_snapshot(bed: LakeBed) -> None:
    give(bed.lake(), [replace(AFTER, commit_ts=TS - 5)])
    with pytest.raises(Conflict, match="has changes already"):
        give(bed.lake(), [CHUNKS[0]])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_rows_of_another_snapshot_are_not_taken_for_those_of_this_one(bed: LakeBed, count: int) -> None:
    """Of a life whose data-dir is gone: fewer of them, as many, or more."""
    give(bed.lake(), [chunk(T, 0, 3)])
    with pytest.raises(Conflict, match="rows of another snapshot"):
        give(bed.lake(), [chunk(T, 0, count, TS + (1 << 20))])


def test_rows_that_were_counted_otherwise_are_not_passed_over(bed: LakeBed) -> None:
    """By other rules than those they were begun with."""
    give(bed.lake(), [chunk(T, 0, 5)])
    with pytest.raises(Conflict, match="has changes already"):
        give(bed.lake(), [chunk(T, 0, 4)])
