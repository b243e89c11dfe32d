"""DDL jobs: reading and writing the JSON, names of actions."""

from __future__ import annotations

import pytest

from tests.cases import case
from tests.drainer.support import recorded
from tidb_binlog import ddl_job
from tidb_binlog.ddl_job import ActionType, DdlJob, JobState, action_name
from tidb_binlog.errors import Corruption


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


def test_what_is_written_reads_back() -> None:
    for action in ActionType:
        with case(action):
            job = DdlJob(7, action, schema_id=1, table_id=2, schema_name="d", query="Q", schema_version=3)
            read = ddl_job.parse(job.to_json(9))
            assert (read.id, read.action, read.took_effect, read.finished_ts) == (7, action, True, 9)
            assert (read.schema_id, read.table_id, read.schema_name, read.query) == (1, 2, "d", "Q")
            assert read.schema_state == ddl_job.state_after(action)
            head = ddl_job.head(job.to_json())
            assert head is not None
            assert (head.action, head.effective_version) == (action, 3)


def test_every_action_and_state_has_its_own_words() -> None:
    assert len({action.words for action in ActionType}) == len(ActionType)
    assert len({state.words for state in JobState}) == len(JobState)
    assert [action_name(action) for action in ActionType] == [action.words for action in ActionType]
