"""Value logs of a pump: transactions across files, what is cut off, what is damaged, what never ended."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from drainer.places.place import Place
from drainer.reading.archive.decode import coverage, reading
from drainer.reading.archive.decode.definitions import Definitions
from drainer.reading.archive.files.segments import survey
from drainer.reading.archive.files.selection import Selection
from tests.drainer.reading.archive.support import corpus
from tests.drainer.reading.archive.support.corpus import Change, Values
from tests.drainer.support.relay_world import items
from tidb_binlog.binlog import PREWRITE
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.record import VALUE_FOOTER, VALUE_FOOTER_MAGIC, decode_value, encode_value

SCENARIO = "basic"


@pytest.fixture
def log(tmp_path: Path) -> list[bytes]:
    """The records of a recorded value log."""
    (location,) = corpus.pumps(SCENARIO, tmp_path / "recorded")
    (path,) = (Path(location.uri) / "value").iterdir()
    data = path.read_bytes()
    if VALUE_FOOTER.unpack(data[-VALUE_FOOTER.size :])[1] == VALUE_FOOTER_MAGIC:
        data = data[: -VALUE_FOOTER.size]
    found, at = [], 0
    while at < len(data):
        payload, at = decode_value(data, at)
        found.append(encode_value(payload))
    return found


def write(directory: Path, *files: bytes) -> Place:
    directory.mkdir(exist_ok=True)
    for number, data in enumerate(files):
        (directory / f"{number:06d}.vlog").write_bytes(data)
    return Place(str(directory))


def changes(location: Place, **options: Any) -> list[Change]:
    found = corpus.records(location, corpus.of_history(SCENARIO), **options)
    return sorted(Values().of_records(found), key=lambda change: change[:2])


def expected() -> list[Change]:
    return list(Values().of_items(items(SCENARIO)))


def test_halves_of_a_transaction_may_lie_in_different_files(tmp_path: Path, log: list[bytes]) -> None:
    footer = VALUE_FOOTER.pack(1 << 60, VALUE_FOOTER_MAGIC)
    pieces = [log[at : at + 7] for at in range(0, len(log), 7)]
    location = write(tmp_path / "v", *(b"".join(piece) + footer for piece in pieces))
    assert changes(location) == expected()
    seen = survey(location)
    assert sum(head.rows for part in seen.plan(Selection()) for head in reading.heads(location, part)) == len(
        expected()
    )


def test_a_transaction_that_is_there_twice_counts_once(tmp_path: Path, log: list[bytes]) -> None:
    assert changes(write(tmp_path / "v", b"".join(log + log[10:40]))) == expected()


def test_what_a_kill_cut_off_is_passed_over_wherever_it_is(tmp_path: Path, log: list[bytes]) -> None:
    for cut in (1, 10, 16, 30):
        torn = [*log[:20], log[20][:cut], *log[20:], log[-1][:cut]]
        assert changes(write(tmp_path / "v", b"".join(torn))) == expected(), cut


def test_a_damaged_record_is_an_error_with_its_place_or_left_out(tmp_path: Path, log: list[bytes]) -> None:
    damaged = bytearray(b"".join(log))
    last = max(number for number, record in enumerate(log) if record[17] == PREWRITE)
    pos = len(b"".join(log[:last]))
    damaged[pos + 20] ^= 1
    location = write(tmp_path / "v", bytes(damaged))
    with pytest.raises(Corruption, match=rf"000000.vlog: offset {pos}: checksum mismatch"):
        changes(location)
    left = changes(location, damage="report")
    assert left
    assert len(left) < len(expected())
    found = coverage.cover(location, coverage.slices(survey(location))[0])
    assert found.problem is not None
    assert f"offset {pos}" in found.problem


def test_a_missing_file_is_an_error(tmp_path: Path, log: list[bytes]) -> None:
    location = write(tmp_path / "v", b"".join(log[:20]), b"".join(log[20:40]), b"".join(log[40:]))
    (tmp_path / "v" / "000001.vlog").unlink()
    with pytest.raises(Corruption, match="value log 000001 is missing"):
        changes(location)
    assert changes(location, damage="report")


def test_transactions_without_an_end_are_counted_and_not_read(tmp_path: Path, log: list[bytes]) -> None:
    whole = coverage.cover(
        write(tmp_path / "v", b"".join(log)), coverage.slices(survey(Place(str(tmp_path / "v"))))[0]
    )
    assert (whole.unfinished, whole.problem) == (0, None)
    assert whole.inserts + whole.updates + whole.deletes == len(expected())
    location = write(tmp_path / "v", b"".join(log[:41]))
    found = [coverage.cover(location, part) for part in coverage.slices(survey(location))]
    read = changes(location)
    assert sum(one.unfinished for one in found) > 0
    assert found[0].inserts + found[0].updates + found[0].deletes == len(read)
    assert read == expected()[: len(read)]


def test_a_range_begins_with_the_schema_of_its_first_transaction(tmp_path: Path, log: list[bytes]) -> None:
    location = write(tmp_path / "v", b"".join(log))
    stamps = sorted({change.commit_ts for change in expected()})
    selection = Selection(stamps[5], stamps[-5])
    found = corpus.records(location, corpus.of_history(SCENARIO), selection)
    wanted = [change for change in expected() if selection.wants_ts(change.commit_ts)]
    assert list(Values().of_records(found)) == wanted


def test_without_the_history_it_says_what_is_missing(tmp_path: Path, log: list[bytes]) -> None:
    with pytest.raises(ConfigError, match=r"no definitions of tables \(give the file with the DDL history"):
        corpus.records(write(tmp_path / "v", b"".join(log)), Definitions())


def test_a_file_of_nothing_but_noise_has_no_transactions(tmp_path: Path) -> None:
    location = write(tmp_path / "v", struct.pack("<IQI", 0x823A56E8, 1 << 50, 0) + bytes(100))
    assert changes(location) == []
