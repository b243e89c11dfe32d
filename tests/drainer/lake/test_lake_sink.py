"""A sink of changelogs: dies at every step, follows columns, sees what others did to its tables."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyiceberg
import pytest

from drainer.lake.data_files import DataFiles
from drainer.lake.lake_sink import LakeSink
from drainer.lake.lake_table import Lake, Name
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.files.segments import survey
from drainer.reading.archive.files.selection import Selection
from drainer.txn import DELETE, INSERT, UPDATE, LargeTransaction, Transaction
from tests.contract.lake_beds import BEDS, LakeBed, others_row
from tests.drainer.support import archive_life
from tests.drainer.support.lake_world import (
    Killed,
    Mortal,
    change,
    column,
    give,
    sink_of,
    transaction,
    version_of,
)
from tests.drainer.support.payloads import sent
from tests.missing import without
from tidb_binlog.clock import ManualClock
from tidb_binlog.errors import BinlogError, ConfigError, Conflict, DownstreamError, Unavailable
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import DATE, LONGLONG, VARCHAR

ID, V = column(1, "id"), column(2, "v", VARCHAR, flen=64)
T1 = version_of(ID, V)
T2 = version_of(ID, V, column(3, "n"))
T3 = version_of(ID, column(4, "v", LONGLONG), column(3, "n"))
U = version_of(ID, V, name="u", number=8)


@pytest.fixture(params=BEDS)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> LakeBed:
    return BEDS[request.param](tmp_path)


def rows(bed: LakeBed, table: str) -> list[tuple[Any, ...]]:
    """(commit_ts, seq, kind, before, after), in the order of the stream."""
    ordered = sorted(bed.changes(table), key=lambda each: (each["_commit_ts"], each["_seq"]))
    return [
        tuple(each[key] for key in ("_commit_ts", "_seq", "_kind", "before", "after")) for each in ordered
    ]


STREAM = (
    transaction(10, change(T1, INSERT, (1, "a")), change(U, INSERT, (1, "x"))),
    transaction(20, change(T1, UPDATE, (1, "a"), (1, "b"))),
    transaction(30, change(T2, INSERT, (2, "c", 5)), change(U, DELETE, (1, "x"))),
    transaction(40, change(T2, DELETE, (1, "b", None))),
    transaction(50, change(T3, INSERT, (3, 77, 6)), change(U, INSERT, (2, "y"))),
)
WHOLE = {
    "t": [
        (10, 0, "insert", None, {"id": 1, "v": "a", "n": None}),
        (20, 0, "update", {"id": 1, "v": "a", "n": None}, {"id": 1, "v": "b", "n": None}),
        (30, 0, "insert", None, {"id": 2, "v": "c", "n": 5}),
        (40, 0, "delete", {"id": 1, "v": "b", "n": None}, None),
    ],
    "t__v2": [(50, 0, "insert", None, {"id": 3, "v": 77, "n": 6})],
    "u": [
        (10, 1, "insert", None, {"id": 1, "v": "x"}),
        (30, 1, "delete", {"id": 1, "v": "x"}, None),
        (50, 1, "insert", None, {"id": 2, "v": "y"}),
    ],
}


def batches(size: int) -> Iterator[tuple[Transaction, ...]]:
    return (STREAM[at : at + size] for at in range(0, len(STREAM), size))


def play(lake: Lake, size: int) -> None:
    sink = sink_of(lake)
    for batch in batches(size):
        give(sink, batch)
    sink.close()


def steps(bed: LakeBed) -> int:
    lake = Mortal(bed.lake())
    play(lake, 2)
    shutil.rmtree(bed.warehouse)
    return len(lake.steps)


def test_a_stream_is_there_whatever_its_batches(bed: LakeBed) -> None:
    for size in (1, 2, 5):
        play(bed.lake(), size)
        assert {table: rows(bed, table) for table in WHOLE} == WHOLE
        shutil.rmtree(bed.warehouse)


def test_a_death_at_any_step_neither_loses_nor_doubles(bed: LakeBed) -> None:
    """At the first step, and after each that changes something; then all comes again, in other batches."""
    count = steps(bed)
    assert count >= 10
    for number, where in [(1, "before"), *((number, "after") for number in range(1, count + 1))]:
        size = 1 if number % 2 else 5
        with pytest.raises(Killed):
            play(Mortal(bed.lake(), (number, where)), 2)
        play(bed.lake(), size)
        assert {table: rows(bed, table) for table in WHOLE} == WHOLE, (number, where, size)
        shutil.rmtree(bed.warehouse)


def test_two_deaths(bed: LakeBed) -> None:
    for first, second in ((2, 3), (4, 1), (6, 2), (8, 3)):
        for death in (first, second):
            with pytest.raises(Killed):
                play(Mortal(bed.lake(), (death, "after")), 2)
        play(bed.lake(), 3)
        assert {table: rows(bed, table) for table in WHOLE} == WHOLE, (first, second)
        shutil.rmtree(bed.warehouse)


def test_a_widened_column(bed: LakeBed) -> None:
    """INT becomes BIGINT: in the table where the format can, else in the next one."""
    wide = version_of(column(1, "id", LONGLONG), V)
    sink = sink_of(bed.lake())
    give(sink, STREAM[:2])
    give(sink, [transaction(60, change(wide, INSERT, (1 << 40, "w")))])
    widened = (60, 0, "insert", None, {"id": 1 << 40, "v": "w"})
    if bed.lake().can_widen:
        assert [each[4]["id"] for each in rows(bed, "t")] == [1, 1, 1 << 40]
    else:
        assert (len(rows(bed, "t")), rows(bed, "t__v2")) == (2, [widened])
    narrow = version_of(ID, V, number=9)
    give(sink, [transaction(70, change(narrow, INSERT, (5, "n")))])
    last = rows(bed, "t" if bed.lake().can_widen else "t__v2")[-1]
    assert last == (70, 0, "insert", None, {"id": 5, "v": "n"}), "a table made anew, which fits"


def test_a_column_dropped_and_added_while_nothing_ran(bed: LakeBed) -> None:
    """Ids are stored with the table: another life knows that it is another column."""
    give(sink_of(bed.lake()), STREAM[:1])
    other = version_of(ID, column(9, "v", VARCHAR, flen=64))
    give(sink_of(bed.lake()), [transaction(60, change(other, INSERT, (1, "z")))])
    assert (len(rows(bed, "t")), len(rows(bed, "t__v2"))) == (1, 1)
    give(sink_of(bed.lake()), [transaction(70, change(other, DELETE, (1, "z")))])
    assert len(rows(bed, "t__v2")) == 2, "and goes on there"


def test_tables_that_are_one_and_do_not_fit_are_said(bed: LakeBed) -> None:
    ours = version_of(ID, V, target=("d", "all"))
    others = version_of(ID, column(2, "v", LONGLONG), name="t9", number=99, target=("d", "all"))
    with pytest.raises(DownstreamError, match="do not fit into one table: column v was"):
        give(
            sink_of(bed.lake()),
            [transaction(10, change(ours, INSERT, (1, "a")), change(others, INSERT, (1, 2)))],
        )


def test_a_large_transaction_is_one_commit_for_each_table(bed: LakeBed) -> None:
    parts = [transaction(10, change(T1, INSERT, (n, "a")), change(U, INSERT, (n, "b"))) for n in range(50)]
    lake = Mortal(bed.lake())
    give(sink_of(lake), [LargeTransaction(9, 10, 5000, lambda: iter(parts))])
    assert lake.steps.count("append") == 2
    assert len(rows(bed, "t")) == len(rows(bed, "u")) == 50


def test_a_large_transaction_that_breaks_off_is_not_there(bed: LakeBed) -> None:
    sink = sink_of(bed.lake())
    parts = [transaction(10, change(T1, INSERT, (n, "a"))) for n in range(12_000)]
    read = iter([False, True])

    def breaks() -> Iterator[Transaction]:
        yield from parts
        if next(read):
            raise OSError("the stream is to stop")

    with pytest.raises(OSError, match="the stream is to stop"):
        give(sink, [LargeTransaction(9, 10, 5000, breaks)])
    assert rows(bed, "t") == []
    sink.close()
    sink.open()
    give(sink, [LargeTransaction(9, 10, 5000, lambda: iter(parts))])
    assert len(rows(bed, "t")) == 12_000


def test_what_a_column_cannot_hold_stands_beside(bed: LakeBed) -> None:
    dates = version_of(ID, column(2, "d", DATE), name="dates")
    events = [change(dates, INSERT, (1, "0000-00-00")), change(dates, INSERT, (2, "2024-02-29"))]
    give(sink_of(bed.lake()), [transaction(10, *events)])
    first, second = sorted(bed.changes("dates"), key=lambda each: each["_seq"])
    assert (first["after"], first["_invalid"]) == ({"id": 1, "d": None}, '{"after.d": "0000-00-00"}')
    assert str(second["after"]["d"]) == "2024-02-29"
    assert second["_invalid"] is None


def test_a_row_that_cannot_be_right_is_no_error_of_the_lake(bed: LakeBed) -> None:
    events = change(T1, INSERT, (1, "a"))
    events.rows[0] = b"\xff"
    with pytest.raises(RowError):
        give(sink_of(bed.lake()), [transaction(10, events)])


def test_names_are_directories(bed: LakeBed) -> None:
    names = {"../a b": "~2e~~2e~~2f~a~20~b", "é表": "~e9~~8868~", "t__v2": "t~5f~_v2", "a~": "a~7e~"}
    sink = sink_of(bed.lake())
    for number, name in enumerate(names):
        strange = version_of(ID, V, name=name, number=number)
        give(sink, [transaction(10, change(strange, INSERT, (number, "a")))])
    assert [rows(bed, plain)[0][4]["id"] for plain in names.values()] == [0, 1, 2, 3]


# -- what others do ----------------------------------------------------------------------------------------


def started(bed: LakeBed) -> LakeSink:
    sink = sink_of(bed.lake())
    give(sink, STREAM[:2])
    return sink


def test_two_writers_of_one_name(bed: LakeBed) -> None:
    sink = started(bed)
    give(sink_of(bed.lake()), STREAM[2:3])
    with pytest.raises(Conflict, match="another drainer writes it with the same node-id"):
        give(sink, STREAM[2:4])


def test_a_table_that_was_removed(bed: LakeBed) -> None:
    sink = started(bed)
    bed.remove("t")
    with pytest.raises(Conflict, match="gone: another program has removed it"):
        give(sink, STREAM[2:3])
    sink.close()
    sink.open()
    give(sink, STREAM[2:3])
    assert [each[0] for each in rows(bed, "t")] == [30], "a start goes on with an empty one"


def test_a_table_that_is_no_changelog(bed: LakeBed) -> None:
    bed.make_other("t")
    with pytest.raises(Conflict, match="no changelog"):
        give(sink_of(bed.lake()), STREAM[:1])


def test_a_warehouse_that_cannot_be_written(bed: LakeBed, tmp_path: Path) -> None:
    """Tried again until it can."""
    sink = started(bed)
    sink.close()
    moved = tmp_path / "moved"
    os.rename(bed.warehouse, moved)
    bed.warehouse.write_text("a file where the directory was")
    with pytest.raises(Unavailable) as raised:
        sink.open()
    assert isinstance(raised.value, sink.retriable)
    assert raised.value.hint
    os.unlink(bed.warehouse)
    os.rename(moved, bed.warehouse)
    sink.close()
    sink.open()
    give(sink, STREAM)
    assert rows(bed, "u") == WHOLE["u"]


@pytest.mark.parametrize(
    ("package", "words"),
    [
        (deltalake, r'db-type = "delta" needs deltalake .*tidb-binlog\[delta\]'),
        (pyiceberg, r'db-type = "iceberg" needs pyiceberg.* .*tidb-binlog\[iceberg\]'),
    ],
)
def test_a_package_that_is_missing(
    package: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package.__name__
    without(monkeypatch, *(each for each in sys.modules if each.split(".")[0] == name))
    with pytest.raises(ConfigError, match=words):
        BEDS["delta" if name == "deltalake" else "iceberg"](tmp_path).lake()


def test_small_files_are_joined_and_rows_are_the_same(bed: LakeBed) -> None:
    clock = ManualClock()
    sink = sink_of(bed.lake(), clock, compact_s=60.0)
    for item in STREAM[:4]:
        give(sink, [item])
    assert bed.files("t") == 4
    clock.advance(61)
    give(sink, STREAM[4:])
    assert bed.files("u") == (1 if bed.joins else 3)
    assert {table: rows(bed, table) for table in WHOLE} == WHOLE
    play(bed.lake(), 1)
    assert {table: rows(bed, table) for table in WHOLE} == WHOLE, "the position is there still"


def test_old_versions_expire_and_the_position_stays(bed: LakeBed) -> None:
    """Also when another program's snapshots are the only ones that are left."""
    clock = ManualClock()
    sink = sink_of(bed.lake(), clock, compact_s=60.0, retention=timedelta(microseconds=1))
    for item in STREAM[:4]:
        give(sink, [item])
    bed.append_by_another("u")
    clock.advance(61)
    versions = bed.versions("u")
    give(sink, STREAM[4:])
    bed.append_by_another("u")
    clock.advance(61)
    give(sink, [transaction(60, change(T3, INSERT, (4, 78, 6)), change(U, INSERT, (3, "z")))])
    assert bed.versions("u") < versions
    play(bed.lake(), 1)
    assert [each[0] for each in rows(bed, "u")] == [1, 1, 10, 30, 50, 60]


def test_young_versions_stay_whatever_the_time_zone(bed: LakeBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        clock = ManualClock()
        sink = sink_of(bed.lake(), clock, compact_s=60.0, retention=timedelta(hours=1))
        for item in STREAM[:4]:
            give(sink, [item])
        versions = bed.versions("u")
        clock.advance(61)
        give(sink, STREAM[4:])
        assert bed.versions("u") >= versions > 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_duckdb_reads_it(bed: LakeBed) -> None:
    """The files of a table, with no extension that had to be downloaded."""
    play(bed.lake(), 5)
    answer = duckdb.connect().execute(
        "SELECT after.id, count(*) FROM read_parquet(?) WHERE _kind <> 'delete' GROUP BY 1 ORDER BY 1",
        [f"{bed.warehouse}/d/t/**/*.parquet"],
    )
    assert answer.fetchall() == [(1, 2), (2, 1)]


def test_two_that_append_the_same_rows_append_them_once(bed: LakeBed) -> None:
    """A Drainer that was frozen before its commit wakes up: another life has committed its rows."""
    give(sink_of(bed.lake()), STREAM[:1])
    batches = others_row().to_batches()
    tables = []
    for lake in (bed.lake(), bed.lake()):
        lake.open()
        table = lake.load(("d", "u"))
        assert table is not None
        tables.append(table)
    stale, fresh = tables
    fresh.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches), 20)
    with contextlib.suppress(BinlogError):  # or it is told that its rows are there
        stale.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches), 20)
    assert sorted(row[0] for row in rows(bed, "u")) == [1, 10]


def write_files(sink: LakeSink, archive: Path, first: int, last: int) -> list[Name]:
    """What tasks do with a range, and the driver with what they give; the tables that it takes twice."""
    surveyed = survey(Place(str(archive)), "auto")
    definitions = of_archive(surveyed.location, surveyed)
    selection = Selection(first, last)
    parts = surveyed.plan(selection, 1 << 20)
    again: list[Name] = []
    while True:
        places = Place(str(archive)), Place(str(archive.parent / "lake"))
        work = DataFiles(*places, selection, definitions, *sink.forms())
        lacking = sink.add(list(work([parts])), definitions, last)
        if not lacking:
            return again
        again += lacking


async def test_files_of_tasks_make_the_same_changelog(bed: LakeBed, tmp_path: Path) -> None:
    """In any turn with rows that the sink writes itself; and in a range that begins before what is there."""
    archive = tmp_path / "archive"
    await archive_life.Life(archive, archive_life.Ready([*map(sent, STREAM)])).whole()
    sink = sink_of(bed.lake())
    assert write_files(sink, archive, 10, 20) == []
    give(sink, STREAM[2:3])
    assert write_files(sink, archive, 31, 45) == []
    sink.close()
    sink.open()
    taken_twice = write_files(sink, archive, 20, 50)
    assert sorted(taken_twice) == [("d", "t"), ("d", "t"), ("d", "u")], "they have 40; t__v2 begins"
    sink.close()
    assert {table: rows(bed, table) for table in WHOLE} == WHOLE
    sink.open()
    write_files(sink, archive, 1, 50)
    assert {table: rows(bed, table) for table in WHOLE} == WHOLE
