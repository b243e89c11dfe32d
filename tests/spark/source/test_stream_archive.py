"""A directory that is written, rotated, thinned out and compressed while it is followed: no JVM needed."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from drainer.formats import binlog_file, compression
from drainer.formats.binlog_file import Synced
from drainer.places.place import Place
from drainer.reading.archive.decode.definitions import of_archive
from drainer.reading.archive.decode.reading import read
from drainer.reading.archive.decode.records import SchemaChange
from drainer.reading.archive.files.selection import Selection
from drainer.spark.source.stream_archive import StreamArchive, StreamPart
from drainer.spark.source.stream_offsets import START, Admission, Offset
from drainer.txn import Transaction
from tests.spark.support.growing import WRITERS, ArchiveWriter, History, RelayLogWriter, remove_before
from tidb_binlog.errors import ConfigError, Corruption


def taken(path: Path, archive: StreamArchive, start: Offset, end: Offset, size: int = 1 << 20) -> list[int]:
    """commit_ts of all records of a batch."""
    return read_of(path, archive, archive.parts(start, end, size))


def read_of(path: Path, archive: StreamArchive, parts: list[StreamPart]) -> list[int]:
    location = Place(str(path))
    known = of_archive(location, archive.survey(parts))
    return [
        record.ddl.commit_ts if isinstance(record, SchemaChange) else record.commit_ts
        for part in parts
        for record in read(location, archive.present(part), Selection(part.start_ts), known)
    ]


@pytest.mark.parametrize("kind", ["pb", "relay"])
@pytest.mark.parametrize("seed", range(3))
def test_all_is_read_once_whatever_writer_and_retention_do(kind: str, seed: int, tmp_path: Path) -> None:
    rng, history = random.Random(seed), History(seed, ddl_at=40)
    writer = WRITERS[kind](tmp_path)
    archive = StreamArchive(Place(str(tmp_path)))
    at, found, written = START, [], []
    for _ in range(60):
        what = rng.choice(("write", "write", "more", "remove", "read", "read", "restart"))
        if what in ("write", "more"):
            items = list(history.items(rng.randrange(1, 8)))
            written += [item.commit_ts for item in items]
            writer.write(iter(items), sync=what == "write")
        elif what == "remove":
            remove_before(tmp_path, at.segment)
        elif what == "restart":
            writer.close()
            writer = WRITERS[kind](tmp_path)
        else:
            end = archive.latest(
                at, Admission(max_rows=rng.choice((0, 1, 20)), max_bytes=rng.choice((0, 3000)))
            )
            assert end >= at
            found += taken(tmp_path, archive, at, end, rng.choice((500, 1 << 20)))
            at = end
            assert found == written[: len(found)]
    writer.write(iter([]))
    end = archive.latest(at, Admission())
    assert found + taken(tmp_path, archive, at, end) == written
    writer.close()


@pytest.mark.parametrize("kind", ["pb", "relay"])
def test_what_is_not_synced_is_not_read(kind: str, tmp_path: Path) -> None:
    history, writer = History(1), WRITERS[kind](tmp_path, 1 << 20)
    archive = StreamArchive(Place(str(tmp_path)))
    writer.write(history.items(3))
    synced = archive.latest(START, Admission())
    writer.write(history.items(3), sync=False)
    assert archive.latest(START, Admission()) == synced
    writer.write(iter([]))
    assert archive.latest(synced, Admission()) > synced
    writer.close()


def test_of_a_go_drainers_archive_whole_records_count(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1 << 20)
    writer.write(history.items(5))
    writer.close()
    (tmp_path / ".synced").unlink()
    archive = StreamArchive(Place(str(tmp_path)))
    whole = archive.latest(START, Admission())
    assert whole.commit_ts == history.last_ts
    (name,) = (path for path in tmp_path.glob("binlog-*"))
    size = name.stat().st_size
    assert whole.position == size
    os.truncate(name, size - 3)
    assert archive.latest(START, Admission()).position < size - 3


def test_a_relay_logs_records_that_were_written_anew_are_read_once(tmp_path: Path) -> None:
    history, writer = History(1), RelayLogWriter(tmp_path)
    archive = StreamArchive(Place(str(tmp_path)))
    first, second, third = (list(history.items(10)) for _ in range(3))
    writer.write(iter(first))
    at = archive.latest(START, Admission())
    # It starts again from a checkpoint in the middle.
    writer.write(iter([*first[5:], *second, *second[3:], *third]))
    wanted = [item.commit_ts for item in [*second, *third]]
    end = archive.latest(at, Admission())
    assert taken(tmp_path, archive, at, end) == wanted
    assert taken(tmp_path, archive, at, end, 700) == wanted
    writer.close()


def test_a_segment_that_was_read_and_closed_may_go(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    archive = StreamArchive(Place(str(tmp_path)))
    writer.write(history.items(30))
    at = archive.latest(START, Admission())
    assert remove_before(tmp_path, at.segment) > 3
    writer.write(history.items(1))
    end = archive.latest(at, Admission())
    assert taken(tmp_path, archive, at, end) == [history.last_ts]
    writer.close()


def test_a_segment_that_went_unread_is_an_error_or_is_said(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    location = Place(str(tmp_path))
    archive, going_on = StreamArchive(location), StreamArchive(location, keep_going=True)
    writer.write(history.items(10))
    at = archive.latest(START, Admission(max_rows=1))
    writer.write(history.items(30))
    end = archive.latest(at, Admission())
    remove_before(tmp_path, end.segment - 1)
    for ask in (lambda: archive.latest(at, Admission()), lambda: archive.parts(at, end, 1 << 20)):
        with pytest.raises(Corruption, match=r"segment \d to \d+ is gone"):
            ask()
    assert going_on.latest(at, Admission()) == end
    rest = taken(tmp_path, going_on, at, end)
    assert rest[-1] == history.last_ts
    assert len(rest) < 30
    writer.close()


def test_a_segment_that_is_missing_in_the_middle_is_an_error(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    writer.write(history.items(30))
    writer.close()
    (tmp_path / sorted(path.name for path in tmp_path.glob("binlog-*"))[2]).unlink()
    with pytest.raises(Corruption, match="after segment 1 comes 3"):
        StreamArchive(Place(str(tmp_path))).latest(START, Admission())


def test_damage_is_an_error_or_left_out_with_the_rest_of_its_segment(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    items = list(history.items(30))
    writer.write(iter(items))
    writer.close()
    names = sorted(tmp_path.glob("binlog-*"))
    data = bytearray(names[1].read_bytes())
    data[-3] ^= 1
    names[1].write_bytes(data)
    (tmp_path / "index" / f"{names[1].name}.json").unlink()
    location = Place(str(tmp_path))
    with pytest.raises(Corruption, match="checksum mismatch"):
        StreamArchive(location).latest(START, Admission(max_rows=1000))
    end = StreamArchive(location, damage="report").latest(START, Admission(max_rows=1000))
    assert end.commit_ts == history.last_ts


def test_an_archive_that_was_replaced_by_an_older_copy_is_an_error(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    writer.write(history.items(30))
    writer.close()
    archive = StreamArchive(Place(str(tmp_path)))
    at = archive.latest(START, Admission())
    names = sorted(tmp_path.glob("binlog-*"))
    for path in names[3:]:
        path.unlink()
    (tmp_path / ".synced").write_bytes(Synced(2, names[2].stat().st_size).to_bytes())
    with pytest.raises(Corruption, match="ends before segment"):
        archive.latest(at, Admission())


def test_a_ddl_that_a_restarted_writer_takes_back_is_waited_for(tmp_path: Path) -> None:
    """It is after the checkpoint, so it comes again: the same bytes at the same place."""
    history, writer = History(1, ddl_at=6), ArchiveWriter(tmp_path, 1 << 20)
    items = list(history.items(6))
    writer.write(iter(items))
    archive = StreamArchive(Place(str(tmp_path)))
    at = archive.latest(START, Admission())
    writer.close()
    writer = ArchiveWriter(tmp_path, 1 << 20, stored_ts=items[-2].commit_ts)
    assert archive.extents()[-1].size < at.position
    assert archive.latest(at, Admission()) == at
    more = list(history.items(2))
    writer.write(iter([items[-1], *more]))
    end = archive.latest(at, Admission())
    assert taken(tmp_path, archive, at, end) == [item.commit_ts for item in more]
    writer.close()


def test_following_begins_at_a_segment_and_ends_where_it_was_asked_to(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    items = [item for item in history.items(40) if isinstance(item, Transaction)]
    writer.write(iter(items))
    archive = StreamArchive(Place(str(tmp_path)))
    begin = archive.beginning(items[25].commit_ts)
    assert begin.segment > 2
    found = taken(tmp_path, archive, begin, archive.latest(begin, Admission()))
    assert items[25].commit_ts in found
    assert items[5].commit_ts not in found
    end = archive.latest(START, Admission(stop_ts=items[9].commit_ts))
    assert taken(tmp_path, archive, START, end) == [item.commit_ts for item in items[:10]]
    assert archive.latest(end, Admission(stop_ts=items[9].commit_ts)) == end
    frozen = archive.end()
    writer.write(history.items(20))
    assert archive.latest(START, Admission(), frozen).commit_ts == items[-1].commit_ts
    assert archive.latest(frozen, Admission(), frozen) == frozen
    writer.close()


def test_an_empty_archive_is_waited_for(tmp_path: Path) -> None:
    archive = StreamArchive(Place(str(tmp_path)))
    assert archive.latest(START, Admission()) == START
    assert archive.parts(START, START, 100) == []
    with pytest.raises(ConfigError, match="cannot be followed"):
        StreamArchive(Place(str(tmp_path)), "pump")


def test_a_segment_may_be_compressed_between_being_planned_and_being_read(tmp_path: Path) -> None:
    history, writer = History(1), ArchiveWriter(tmp_path, 1000)
    items = list(history.items(30))
    writer.write(iter(items))
    writer.close()
    location = Place(str(tmp_path))
    archive = StreamArchive(location)
    start = archive.latest(START, Admission(max_rows=10))
    end = archive.latest(start, Admission())
    parts = archive.parts(start, end, 1 << 20)
    for _, name in binlog_file.in_order(str(tmp_path), os.listdir(tmp_path))[:-1]:
        compression.compress(str(tmp_path), name, 1, lambda: False)
    assert read_of(tmp_path, archive, parts) == [
        item.commit_ts for item in items if item.commit_ts > start.commit_ts
    ]
    assert StreamArchive(location).latest(start, Admission()) == end


def test_a_directory_is_listed_while_files_come_and_go(tmp_path: Path) -> None:
    location, done = Place(str(tmp_path)), threading.Event()

    def churn() -> None:
        while not done.is_set():
            for number in range(50):
                (tmp_path / f"f{number}").touch()
            for number in range(50):
                (tmp_path / f"f{number}").unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert max(len(location.list()) for _ in range(300)) <= 50
    finally:
        done.set()
        thread.join()
