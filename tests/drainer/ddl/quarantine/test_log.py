"""Quarantine log: what was kept comes back in stream order, from several strands too; the disk is bounded."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drainer.ddl.quarantine import log as quarantine_log
from drainer.ddl.quarantine.log import Cursor, Directory, Item, KeptDdl, QuarantineLog
from drainer.txn import Ddl, TableEvents, TableVersion, Transaction
from tidb_binlog.errors import Corruption
from tidb_binlog.table_info import TableInfo

MakeLog = Callable[[Directory], QuarantineLog]
TABLES = [TableVersion(TableInfo(number, f"t{number}", ()), "d", f"t{number}", 1) for number in range(4)]


def rows(commit_ts: int, *tables: int, size: int = 3, last: bool = True, first: int = 0) -> Transaction:
    events = []
    for number in tables:
        data = [b"%d-%d-%d" % (commit_ts, number, index) for index in range(size)]
        events.append(TableEvents(TABLES[number], [index % 3 for index in range(size)], data, first))
        first += size
    return Transaction(commit_ts - 1, commit_ts, tuple(events), 0, last=last)


def ddl(commit_ts: int) -> KeptDdl:
    return KeptDdl(Ddl(commit_ts, commit_ts, 5, "d", "ALTER", (("d", "t0"),), 1), 0, None)


def shown(item: Item | None) -> object:
    if not isinstance(item, Transaction):
        return item
    return item.start_ts, item.commit_ts, item.last, [
        (events.table, list(events.kinds), events.rows, events.first_ordinal) for events in item.tables
    ]  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[MakeLog]:
    made: list[QuarantineLog] = []

    def make(directory: Directory) -> QuarantineLog:
        made.append(QuarantineLog(directory))
        return made[-1]

    yield make
    for log in made:
        log.remove()


def read(cursor: Cursor) -> list[object]:
    found = []
    while (item := cursor.next()) is not None:
        found.append(shown(item))
    return found


def whole(log: QuarantineLog) -> list[object]:
    cursor = log.cursor()
    try:
        return read(cursor)
    finally:
        cursor.close()


def room(directory: Directory) -> bool:
    return directory.has_room


def by_table(transaction: Transaction) -> list[object]:
    """As it is read back: a piece for each table."""
    pieces = []
    for index, events in enumerate(transaction.tables):
        last = transaction.last and index == len(transaction.tables) - 1
        pieces.append(
            shown(Transaction(transaction.start_ts, transaction.commit_ts, (events,), 0, last=last))
        )
    return pieces


def test_everything_comes_back_in_order_and_a_cursor_sees_what_comes_later(
    tmp_path: Path, logs: MakeLog
) -> None:
    directory = Directory(tmp_path, 1 << 30)
    log = logs(directory)
    cursor = log.cursor()
    assert cursor.next() is None
    log.append(ddl(1))
    log.append(rows(2, 0, 1))
    assert read(cursor) == [ddl(1), *by_table(rows(2, 0, 1))]
    log.append(Transaction(2, 3, (), 0))
    log.append(rows(4, 2, size=0))
    assert read(cursor) == [(2, 3, True, []), *by_table(rows(4, 2, size=0))]
    cursor.close()
    assert whole(log) == [
        ddl(1), *by_table(rows(2, 0, 1)), (2, 3, True, []), *by_table(rows(4, 2, size=0)),
    ]  # fmt: skip


def test_logs_that_become_one_are_read_in_stream_order(tmp_path: Path, logs: MakeLog) -> None:
    """Random streams over three logs, joined one after the other, against a sorted list."""
    for seed in range(20):
        dice = random.Random(seed)
        directory = Directory(tmp_path, 1 << 30)
        three = [logs(directory) for _ in range(3)]
        expected: list[tuple[int, int, object]] = []
        for commit_ts in range(2, 40):
            if commit_ts in (20, 30):
                three[0].absorb(three.pop())
            first = 0
            for log in three:
                if dice.random() < 0.6:
                    part = rows(commit_ts, dice.randrange(4), size=dice.randrange(1, 3), first=first)
                    log.append(part)
                    expected.append((commit_ts, first, part.tables[0].rows))
                    first += 10
        cursor = three[0].cursor()
        found = []
        ends = []
        while (item := cursor.next()) is not None:
            assert isinstance(item, Transaction)
            found.append((item.commit_ts, item.tables[0].first_ordinal, item.tables[0].rows))
            ends.append((item.commit_ts, item.last))
        cursor.close()
        assert found == sorted(expected, key=lambda entry: entry[:2])
        for number, (commit_ts, last) in enumerate(ends):
            assert last == (number + 1 == len(ends) or ends[number + 1][0] != commit_ts)


def test_files_that_are_applied_go_and_make_room(
    tmp_path: Path, logs: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine_log, "SEGMENT_BYTES", 500)
    directory = Directory(tmp_path, 4000)
    log = logs(directory)
    commit_ts = 1
    while room(directory):
        commit_ts += 1
        log.append(rows(commit_ts, 0))
    cursor = log.cursor()
    assert shown(cursor.next()) == by_table(rows(2, 0))[0]
    cursor.close()
    files = len(list(tmp_path.iterdir()))
    assert files > 5
    assert directory.size_bytes == log.size_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    log.free(commit_ts - 1)
    assert room(directory)
    assert len(list(tmp_path.iterdir())) == 1
    log.append(rows(commit_ts + 1, 1))
    assert whole(log)[-1:] == by_table(rows(commit_ts + 1, 1))
    log.remove()
    assert list(tmp_path.iterdir()) == []
    assert directory.size_bytes == 0


def test_a_full_disk_takes_no_room_and_loses_nothing(
    tmp_path: Path, logs: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(tmp_path, 1 << 30)
    log = logs(directory)
    log.append(rows(2, 0))
    cursor = log.cursor()
    assert read(cursor) == by_table(rows(2, 0))
    write = os.write

    def half(file: int, data: bytes) -> int:
        write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    log.append(rows(3, 0))
    log.append(rows(4, 1))
    assert not room(directory)
    assert "No space left" in directory.trouble
    assert cursor.next() is None
    assert not log.flush()
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    assert not log.flush()
    monkeypatch.setattr(os, "write", write)
    flushed: bool = log.flush()
    assert flushed
    assert room(directory)
    assert read(cursor) == [*by_table(rows(3, 0)), *by_table(rows(4, 1))]
    cursor.close()


@pytest.mark.parametrize("at", [0, 5, 14, 20, 60])
def test_a_damaged_file_is_named(tmp_path: Path, logs: MakeLog, at: int) -> None:
    log = logs(Directory(tmp_path, 1 << 30))
    log.append(rows(2, 0))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)
    cursor = log.cursor()
    with pytest.raises(Corruption, match=path.name):
        cursor.next()
    cursor.close()


def test_what_an_earlier_life_left_is_removed(tmp_path: Path, logs: MakeLog) -> None:
    logs(Directory(tmp_path, 1 << 30)).append(rows(2, 0))
    directory = Directory(tmp_path, 1 << 30)
    assert list(tmp_path.iterdir()) == []
    assert directory.size_bytes == 0
