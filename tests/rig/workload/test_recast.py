"""Type changes of the demo: each that is chosen has a value for any value, which a binlog can hold."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from tests.rig.workload import evolution, kinds, recast, tables
from tests.rig.workload.encoding import RowImages
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.kinds import Kind
from tests.rig.workload.model import INSERT, Change, Model
from tests.rig.workload.values import random_value, shown
from tests.rig.workload.workload import Mix, Workload
from tidb_binlog.ddl_job import ActionType

SOURCES = tuple(recast.BY_TYPE.values())


@pytest.mark.parametrize("before", SOURCES, ids=lambda kind: kind.sql)
def test_any_value_becomes_one_that_can_be_written(before: Kind) -> None:
    random = Random(1)
    for after in recast.targets(before, indexed=False):
        columns = (("id", kinds.INT), ("x", after))
        table = tables.new_table(1, "demo", "t", columns, primary=("id",), storage=tables.HANDLE)
        for _ in range(100):
            text = recast.recast(before, after, shown(before, random_value(before, random)))
            value = recast.value_of(after, text)
            assert shown(after, value) == text
            assert list(RowImages().encode([Change(table, INSERT, 1, None, (1, value))]))


@pytest.mark.parametrize(
    ("before", "after", "text", "wanted"),
    [
        (kinds.varchar(20), kinds.INT, "12.5 apples", "13"),
        (kinds.DOUBLE, kinds.INT, "2.5", "2"),
        (kinds.INT, kinds.SMALLINT, "70000", "32767"),
        (kinds.INT, kinds.YEAR, "70", "1970"),
        (kinds.DATETIME, kinds.JSON, "2024-02-03 04:05:06.700", '"2024-02-03 04:05:06.700000"'),
        (kinds.ENUM, kinds.varchar(20), "big", "big"),
        (kinds.ENUM, kinds.INT, "big", "2"),
    ],
)
def test_values_are_those_of_tidb(before: Kind, after: Kind, text: str, wanted: str) -> None:
    assert recast.recast(before, after, text) == wanted


def test_a_type_change_moves_rows_into_a_column_of_its_own() -> None:
    model, ids = Model("demo"), itertools.count(1000)
    for table in (
        tables.losing_table("demo", next(ids), tables.RECASTING),
        *tables.standing_tables("demo", ids)[-1:],
    ):
        evolution.apply(model, creation(table))
    changes, workload = Evolution(Random(2), model, ids), Workload(Random(2), model, Mix(roll_back=0.0))
    seen: Counter[int] = Counter()
    pairs = set()
    for _ in range(500):
        for _ in range(3):
            if (plan := workload.next()) is not None:
                model.end(plan.transaction, committed=True)
        name = changes.choose()
        ddl = changes.plan(name)
        evolution.apply(model, ddl)
        if name != tables.RECASTING:
            continue
        assert ddl.before is not None
        assert ddl.after is not None
        seen[ddl.kind] += 1
        if ddl.kind == ActionType.MODIFY_COLUMN:
            (new,) = set(ddl.after.columns) - set(ddl.before.columns)
            old = ddl.before.columns[ddl.before.position(new.name)]
            assert new.id == ddl.after.max_column_id > old.id
            pairs.add((old.kind.sql, new.kind.sql))
    assert set(seen) == {ActionType.ADD_COLUMN, ActionType.MODIFY_COLUMN}, "no turn is lost"
    assert seen[ActionType.MODIFY_COLUMN] > 100
    assert len(pairs) > 40


def test_both_shards_come_to_one_definition() -> None:
    model, ids = Model("demo"), itertools.count(1000)
    for table in tables.shards("demo", ids):
        evolution.apply(model, creation(table))
    changes, workload = Evolution(Random(3), model, ids), Workload(Random(3), model, Mix(roll_back=0.0))
    seen: Counter[int] = Counter()
    for _ in range(120):
        for _ in range(3):
            if (plan := workload.next()) is not None:
                model.end(plan.transaction, committed=True)
        for ddl in changes.of_shards():
            evolution.apply(model, ddl)
            seen[ddl.kind] += 1
        one, other = (model.tables[name].table for name in tables.SHARDS)
        assert (one.columns, one.indexes) == (other.columns, other.indexes)
    assert set(seen) == set(evolution.SHARD_FORMS)
