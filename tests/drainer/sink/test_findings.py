"""What a stream brings to light of its downstream, told by the processes after it, too."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from drainer.sink.findings import Findings, Lacks
from drainer.txn import Ddl
from tidb_binlog.clock import SystemClock
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import Unavailable
from tidb_binlog.filesystem import replace_file
from tidb_binlog.foreign_document import left_in
from tidb_binlog.status.drainer import LackStatus

EARLY = Ddl(
    100, 7, ActionType.DROP_TABLE_PARTITION, "d", "ALTER", (("d", "t"),), 1, "", early="rows lack values"
)


def life(path: Path) -> Findings:
    findings = Findings(SystemClock())
    findings.keep_in(lambda: left_in(str(path)), functools.partial(replace_file, str(path)))
    return findings


def lack(job_id: int, *lines: str) -> LackStatus:
    return LackStatus(job_id=job_id, commit_ts=100, tables=["d.t"], missing=list(lines))


def test_all_that_is_told_outlives_the_process(tmp_path: Path) -> None:
    first = life(tmp_path / "findings.json")
    first.early_rows.note_ddl(EARLY)
    first.missing.append(lack(7, "key k"))
    first.drift.note({"d.t": 3}, {"d.t.c": 2}, 1, 2)
    second = life(tmp_path / "findings.json")
    assert second.early_rows.kept() == first.early_rows.kept()
    assert list(second.missing) == [lack(7, "key k")]
    assert second.drift.status() == first.drift.status()
    second.drift.note_rows("d.t", 1, 5, 5)
    second.drift.note_texts("d.t", "c", 1, 5, 5)
    (kept,) = {str(life(tmp_path / "findings.json").drift.status()) for _ in range(2)}
    assert kept == str(second.drift.status())
    assert (second.drift.total, second.drift.texts()) == (4, {"d.t": {"c": 3}})
    assert 0.0 < first.drift.status().texts_last_s <= second.drift.status().texts_last_s


def test_what_two_processes_have_told_is_told_once() -> None:
    first, second = Findings(SystemClock()), Findings(SystemClock())
    for findings in (first, second):
        findings.early_rows.note_ddl(EARLY)
        findings.missing.append(lack(7, "key k"))
    first.drift.note({"d.t": 3, "d.u": 1}, {"d.t.c": 2}, 1, 2)
    second.drift.note({"d.t": 4}, {"d.t.d": 1}, 1, 2)
    for _ in range(2):
        second.load(json.loads(first.document()))
    assert [told.job_id for told in second.early_rows.told] == [7]
    assert list(second.missing) == [lack(7, "key k")]
    assert (second.drift.rows(), second.drift.texts()) == ({"d.t": 4, "d.u": 1}, {"d.t": {"c": 2, "d": 1}})
    assert second.drift.status().last_s >= first.drift.status().last_s


def test_what_is_told_is_kept_at_once(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    life(path).early_rows.note_ddl(EARLY)
    life(path).missing.append(lack(8, "key k"))
    life(path).drift.note_rows("d.t", 3, 1, 2)
    last = life(path)
    assert [told.job_id for told in last.early_rows.told] == [7]
    assert (list(last.missing), last.drift.rows()) == ([lack(8, "key k")], {"d.t": 3})


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"early_rows": {"told": 1, "took": {"x": {}, "5": 7}}, "missing": {}, "drift": 4}']
)
def test_of_a_file_that_says_something_else_nothing_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "findings.json"
    path.write_text(text)
    findings = life(path)
    assert (findings.early_rows.told, list(findings.missing), findings.drift.total) == ([], [], 0)


@pytest.mark.parametrize("error", [OSError("no space"), Unavailable("the bucket is away")])
def test_what_cannot_be_kept_is_told_all_the_same(error: Exception) -> None:
    def store(_document: bytes) -> None:
        raise error

    findings = Findings(SystemClock())
    findings.keep_in(lambda: None, store)
    findings.early_rows.note_ddl(EARLY)
    findings.missing.append(lack(7, "key k"))
    findings.drift.note_rows("d.t", 3, 1, 2)
    assert [told.commit_ts for told in findings.early_rows.told] == [100]
    assert (len(findings.missing), findings.drift.total) == (1, 3)


def test_what_a_ddl_lacks_is_told_once_also_where_it_ran_twice() -> None:
    kept: list[LackStatus] = []
    lacks = Lacks(kept.append)
    for one in (lack(7, "key k", "check c"), lack(8, "key k"), lack(7, "check c", "check d")):
        lacks.append(one)
    assert list(lacks) == [lack(8, "key k"), lack(7, "key k", "check c", "check d")]
    assert kept == [lack(7, "key k", "check c"), *lacks]


def test_a_ddl_whose_lack_cannot_be_stored_does_not_count_as_done() -> None:
    def keep(_lack: LackStatus) -> None:
        raise Unavailable("the downstream is away")

    with pytest.raises(Unavailable):
        Lacks(keep).append(lack(7, "key k"))
