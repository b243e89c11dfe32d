"""Audit, coverage: every fault that files and records show is found, and nothing else; no session needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.drainer.support import recorded
from tests.spark.support.audit_world import (
    coverage,
    files,
    outcome,
    records,
    rewrite,
    without_indexes,
    write_archive,
)
from tidb_binlog import tso


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_a_clean_archive_has_no_finding(tmp_path: Path, scenario: str) -> None:
    found = coverage(write_archive(tmp_path, scenario))
    assert (found.listed, found.notes) == ([], [])


def lose(directory: Path) -> None:
    files(directory)[3].unlink()


def copy(directory: Path) -> None:
    third = files(directory)[3]
    third.with_name(third.name[:-1] + ("1" if third.name[-1] != "1" else "2")).write_bytes(third.read_bytes())


def damage(directory: Path) -> None:
    data = bytearray(files(directory)[3].read_bytes())
    data[9000] ^= 0x20
    files(directory)[3].write_bytes(data)


def tear(directory: Path) -> None:
    third = files(directory)[3]
    third.write_bytes(third.read_bytes()[:-7])


def double(directory: Path) -> None:
    rewrite(files(directory)[3], lambda found: [*found[:20], found[19], *found[20:]])


def double_elsewhere(directory: Path) -> None:
    moved = records(files(directory)[1])[5]
    rewrite(files(directory)[3], lambda found: [*found[:20], moved, *found[20:]])


def swap(directory: Path) -> None:
    rewrite(files(directory)[3], lambda found: [*found[:20], found[21], found[20], *found[22:]])


def drop(directory: Path) -> None:
    rewrite(files(directory)[3], lambda found: [*found[:20], *found[21:]])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lose, "missing file"),
        (copy, "doubled file"),
        (damage, "damaged bytes"),
        (tear, "damaged bytes"),
        (drop, "other contents"),
    ],
)
def test_a_fault_of_a_file_is_found_where_it_is(
    tmp_path: Path, fault: Callable[[Path], None], kind: str
) -> None:
    names = [path.name for path in files(write_archive(tmp_path, "multi-pump"))]
    fault(tmp_path)
    found = coverage(tmp_path)
    kinds = {one.kind for one in found.listed}
    assert kind in kinds
    # A file that is there twice has all of its records twice; nothing else brings a second finding.
    assert kinds == {kind} or kinds == {kind, "doubled record"}
    place = next(one.place for one in found.listed if one.kind == kind)
    assert place in (names[3], names[4]) or place.startswith(names[3][:-1])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(double, "doubled record"), (double_elsewhere, "doubled record"), (swap, "swapped order")],
)
def test_a_misplaced_record_is_found_with_its_place(
    tmp_path: Path, fault: Callable[[Path], None], kind: str
) -> None:
    third = files(write_archive(tmp_path, "multi-pump"))[3]
    without_indexes(tmp_path)
    fault(tmp_path)
    (one,) = coverage(tmp_path).listed
    assert (one.kind, one.file) == (kind, third.name)
    assert any(record.message.commit_ts == one.commit_ts for record in records(third))


def test_a_torn_tail_of_the_newest_file_is_a_note(tmp_path: Path) -> None:
    newest = files(write_archive(tmp_path, "multi-pump"))[-1]
    without_indexes(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-5])
    found = coverage(tmp_path)
    assert found.listed == []
    (note,) = found.notes
    assert note.place == newest.name


def test_the_lag_of_a_file_is_known_where_its_writer_left_it(tmp_path: Path) -> None:
    write_archive(tmp_path, "multi-pump")
    for path in files(tmp_path):
        last_s = tso.physical_s(records(path)[-1].message.commit_ts)
        os.utime(path, (0, last_s + 5))
    lags = outcome(tmp_path).figures.lags
    assert len(lags) == len(files(tmp_path))
    assert {round(one.lag_s, 2) for one in lags} == {5.0}
