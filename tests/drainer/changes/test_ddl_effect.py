"""DDL effects: every action has one, all who ask cover all kinds, and recorded jobs do what theirs says."""

from __future__ import annotations

from collections import Counter

import pytest

from drainer.changes.ddl_effect import (
    KINDS,
    DdlEffect,
    EffectKind,
    effect,
    effect_kind,
    forces_auto_id,
    sub_actions,
)
from drainer.ddl.derive import derive
from drainer.ddl.derive.derive import Change
from drainer.ddl.run import plan, recycle_bin
from drainer.ddl.run.plan import statement_of
from drainer.sink import ddl_text
from drainer.stream.schema import history_reader, tracker
from drainer.stream.schema.tracker import SchemaTracker
from drainer.txn import Ddl
from tests.cases import case
from tests.drainer.support import recorded
from tidb_binlog.ddl_job import ActionType, DdlJob, parse

FUTURE = 200
ROWS_GO = {ActionType.DROP_TABLE, ActionType.TRUNCATE_TABLE}
UNSEEN_ROWS = {
    ActionType.RECOVER_SCHEMA,
    ActionType.RECOVER_TABLE,
    ActionType.CREATE_TABLES,
    ActionType.EXCHANGE_TABLE_PARTITION,
    ActionType.FLASHBACK_CLUSTER,
    ActionType.TRUNCATE_TABLE_PARTITION,
    ActionType.DROP_TABLE_PARTITION,
}


def test_every_kind_is_covered_where_there_is_a_table_of_them() -> None:
    assert set(tracker._HANDLERS) == set(EffectKind)
    assert set(derive._HANDLERS) == set(EffectKind)
    assert set(KINDS.values()) | {EffectKind.ALTER} == set(EffectKind)


def test_all_agree_on_an_action() -> None:
    for action in [*ActionType, FUTURE]:
        with case(action):
            done = effect(action)
            assert done == Change(action).effect
            assert done.kind is effect_kind(action)
            assert done.takes_rows_away == (action in ROWS_GO)
            assert done.replaces_rows == (action in UNSEEN_ROWS)
            # what is kept in the recycle bin is what takes rows away, and comes back by what brings rows
            assert recycle_bin.takes_away(done) == (action in {*ROWS_GO, ActionType.DROP_SCHEMA})
            assert recycle_bin.brings_back(done) == (
                action in {ActionType.RECOVER_TABLE, ActionType.RECOVER_SCHEMA}
            )
            assert not (recycle_bin.takes_away(done) and recycle_bin.brings_back(done))
            # rows that the binlog does not have cannot come by a text of an archive
            assert (done.kind in ddl_text._DERIVED) <= (done.kind is not EffectKind.ALTER)
            # of the actions that are read by the heads of their jobs none is about more than one table
            by_head = [
                action in found
                for found in (history_reader._DROPS, history_reader._PLACES, history_reader._UPDATES)
            ]
            assert sum(by_head) <= 1
            if done.kind.name.endswith("DATABASE") or done.kind in plan.NEVER_AS_TEXT:
                assert not any(by_head)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (ActionType.DROP_TABLE, b"DROP TABLE IF EXISTS `d`.`a`"),
        (ActionType.DROP_VIEW, b"DROP VIEW IF EXISTS `d`.`a`"),
        (ActionType.DROP_SEQUENCE, b"DROP SEQUENCE IF EXISTS `d`.`a`"),
        (ActionType.DROP_INDEX, b"DROP x a, b"),
    ],
)
def test_a_drop_of_several_is_run_for_what_its_job_is_about(action: int, text: bytes) -> None:
    assert statement_of(Ddl(1, 1, action, "d", "DROP x a, b", (("d", "a"),), 1)) == text


def test_a_multi_schema_change_does_all_that_it_consists_of() -> None:
    job = {"multi_schema_info": {"sub_jobs": [{"type": 12}, {"type": 20}]}}
    done = effect(ActionType.MULTI_SCHEMA_CHANGE, sub_actions(job))
    assert (done.kind, done.modifies_columns, done.drops_partitions) == (EffectKind.ALTER, True, True)
    assert done.replaces_rows
    assert not done.rebases_auto_id
    assert not done.empties_partitions


def judged(job: DdlJob, done: DdlEffect) -> bool:
    """Whether the definitions before and after a job are what its kind says."""
    before = {one.id: (one.schema, one.name) for one in done.before}
    after = {one.id: (one.schema, one.name) for one in done.after}
    match done.kind:
        case EffectKind.CREATE_DATABASE | EffectKind.ALTER_DATABASE:
            return not before and not after
        case EffectKind.DROP_DATABASE:
            return not after and len(before) == len(done.inside)
        case EffectKind.CREATE | EffectKind.RESTORE | EffectKind.RECOVER | EffectKind.RECOVER_DATABASE:
            return len(after) >= len(before)
        case EffectKind.DROP:
            return not after and len(before) <= 1
        case EffectKind.TRUNCATE:
            return list(before.values()) == list(after.values()) and not set(before) & set(after)
        case EffectKind.RENAME:
            return set(before) == set(after) and set(after.values()) <= set(done.tables)
        case EffectKind.EXCHANGE:
            return sorted(before.values()) == sorted(after.values())
        case EffectKind.REWIND:
            return not done.tables
        case EffectKind.ALTER:
            return list(before.values()) == list(after.values()) or job.table_info is None
    raise AssertionError(done.kind)


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_recorded_jobs_do_what_their_kind_says(scenario: str) -> None:
    follows, seen = SchemaTracker(), Counter[EffectKind]()
    for data in recorded.jobs(scenario):
        job = parse(data)
        done = follows.apply(job)
        if job.took_effect:
            seen[done.kind] += 1
            assert judged(job, done), (job.id, job.query, done)
            assert done.actions >= {job.action}
            assert follows.apply(job) == done  # a job is decided once
    assert seen


@pytest.mark.parametrize("raw_args", [None, [], [5], [5, False], [5, True], {"new_base": 5}, 5])
def test_a_counter_is_forced_where_the_job_says_so(raw_args: object) -> None:
    forced = raw_args == [5, True]
    part = {"type": int(ActionType.REBASE_AUTO_ID), "raw_args": raw_args}
    assert forces_auto_id(part) is forced
    assert forces_auto_id({"type": 62, "multi_schema_info": {"sub_jobs": [{"type": 5}, part]}}) is forced
    assert not forces_auto_id({"type": int(ActionType.REBASE_AUTO_RANDOM_BASE), "raw_args": raw_args})
    assert not forces_auto_id(None)
