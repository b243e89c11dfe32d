"""DDL jobs: reading the JSON, names of actions, names in RENAME statements."""

from __future__ import annotations

import pytest

from common.errors import Corruption
from drainer.schema import ddl_job
from drainer.schema.ddl_job import DdlJob, RenamePair, action_name, rename_pairs
from tests.drainer.support import recorded


def test_reads_what_it_needs_and_keeps_the_document() -> None:
    job = ddl_job.parse(
        b'{"id":7,"type":5,"state":6,"schema_state":5,"schema_id":2,"table_id":3,"schema_name":"d",'
        b'"table_name":"t","query":"ALTER","raw_args":[1],"binlog":{"SchemaVersion":9,"FinishedTS":10,'
        b'"DBInfo":null,"TableInfo":{"id":3},"MultipleTableInfos":null}}'
    )
    assert (job.id, job.action, job.schema_version, job.finished_ts) == (7, 5, 9, 10)
    assert (job.schema_id, job.table_id, job.schema_name, job.table_name) == (2, 3, "d", "t")
    assert (job.table_info, job.table_infos, job.db_info, job.raw_args) == ({"id": 3}, (), None, [1])
    assert job.took_effect
    assert job.document["id"] == 7


@pytest.mark.parametrize(
    ("state", "version", "took_effect"),
    [(6, 9, True), (4, 9, True), (3, 9, False), (5, 9, False), (6, 0, False)],
)
def test_only_finished_jobs_with_a_schema_version_took_effect(
    state: int, version: int, took_effect: bool
) -> None:
    job = DdlJob.from_document({"id": 1, "type": 7, "state": state, "binlog": {"SchemaVersion": version}})
    assert job.took_effect == took_effect


def test_a_job_without_history_part_reads_as_zero() -> None:
    job = DdlJob.from_document({"id": 1, "type": 999, "binlog": None})
    assert (job.schema_version, job.finished_ts, job.took_effect) == (0, 0, False)


def test_unknown_codes_are_data() -> None:
    assert action_name(999) == "DDL of type 999"
    assert action_name(42) == "exchange partition"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"17", b'{"type":1}', b'{"id":"x","type":1}', b'{"id":1,"type":1,"binlog":5}']
)
def test_what_is_no_job_is_corruption(data: bytes) -> None:
    with pytest.raises(Corruption):
        ddl_job.parse(data)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_job_reads_and_has_a_name(scenario: str) -> None:
    for data in recorded.jobs(scenario):
        assert ddl_job.parse(data).action in ddl_job.ACTION_NAMES


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("RENAME TABLE a TO b", [("", "a", "", "b")]),
        ("rename table `d`.`a` to `e`.`b`;", [("d", "a", "e", "b")]),
        (
            "RENAME TABLE a TO tmp, d.b TO a, tmp TO d.b",
            [("", "a", "", "tmp"), ("d", "b", "", "a"), ("", "tmp", "d", "b")],
        ),
        (
            "RENAME TABLE `a``b` TO `to`, `x.y` TO `RENAME`",
            [("", "a`b", "", "to"), ("", "x.y", "", "RENAME")],
        ),
        ("ALTER TABLE d.a RENAME TO b", [("d", "a", "", "b")]),
        ("ALTER TABLE a RENAME AS e . b", [("", "a", "e", "b")]),
        ("ALTER TABLE `rename` RENAME = b", [("", "rename", "", "b")]),
        ("ALTER TABLE a RENAME b", [("", "a", "", "b")]),
        ("/* c */ RENAME /* x TO y */ TABLE a -- TO z\n TO b", [("", "a", "", "b")]),
        ("/*!40101 RENAME TABLE a TO b */", [("", "a", "", "b")]),
        ('RENAME TABLE "a" TO "d"."b"', [("", "a", "d", "b")]),
        ("RENAME TABLE таблица TO 表", [("", "таблица", "", "表")]),
        ("CREATE TABLE a (b INT)", []),
        ("RENAME TABLE a", []),
        ("RENAME TABLE a TO", []),
        ("RENAME", []),
        ("", []),
    ],
)
def test_names_in_a_rename(query: str, pairs: list[tuple[str, str, str, str]]) -> None:
    assert rename_pairs(query) == tuple(RenamePair(*pair) for pair in pairs)
