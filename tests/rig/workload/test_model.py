"""The model against a naive oracle: contents are the committed changes in order, however interleaved."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from binlog_playground.check.verify import ColumnForm, ExpectedTable
from tests.rig.rule_changes import split
from tests.rig.workload import evolution, kinds, tables
from tests.rig.workload.evolution import Evolution, creation
from tests.rig.workload.model import DELETE, INSERT, UPDATE, Model, Row, Transaction, unique_keys
from tests.rig.workload.tables import Table
from tests.rig.workload.values import same_key
from tests.rig.workload.workload import Ending, Mix, Plan, Workload


def demo_model() -> tuple[Model, itertools.count[int]]:
    ids = itertools.count(1000)
    model = Model("demo")
    for table in tables.standing_tables("demo", ids):
        evolution.apply(model, creation(table))
    return model, ids


class Naive:
    """Rows by table name and row id; every change is checked against what is there."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, Row]] = {}

    def apply(self, plan: Plan) -> None:
        touched = set()
        for change in plan.transaction.changes:
            rows = self.rows.setdefault(change.table.name, {})
            touched.add((change.table, change.table.name))
            if change.kind == INSERT:
                assert change.row_id not in rows
                assert change.new is not None
                rows[change.row_id] = change.new
            else:
                assert rows[change.row_id] == change.old, "the old image is what was committed before"
                if change.kind == DELETE:
                    del rows[change.row_id]
                else:
                    assert change.kind == UPDATE
                    assert change.new is not None
                    rows[change.row_id] = change.new
            self.check_unique(change.table)

    def check_unique(self, table: Table) -> None:
        keys = Counter(key for row in self.rows[table.name].values() for key in unique_keys(table, row))
        assert not [key for key, count in keys.items() if count > 1]


@pytest.mark.parametrize("seed", range(6))
def test_contents_are_the_committed_changes_in_commit_order(seed: int) -> None:
    random = Random(seed)
    model, _ = demo_model()
    workload = Workload(Random(seed), model, Mix(roll_back=0.2))
    naive = Naive()
    under_way: list[Plan] = []
    for _ in range(600):
        if len(under_way) < 8 and random.random() < 0.6:
            plan = workload.next()
            if plan is not None:
                under_way.append(plan)
        elif under_way:
            plan = under_way.pop(random.randrange(len(under_way)))
            committed = plan.ending is Ending.COMMIT
            if committed:
                naive.apply(plan)
            model.end(plan.transaction, committed=committed)
    for plan in under_way:
        model.end(plan.transaction, committed=False)
    for name, state in model.tables.items():
        assert state.rows == naive.rows.get(name, {})
        assert not state.locked_rows
        assert not state.locked_keys
        assert state.in_flight == 0
    assert sum(len(state) for state in model.tables.values()) > 200


def test_concurrent_transactions_never_share_a_row_or_a_key() -> None:
    model, _ = demo_model()
    workload = Workload(Random(3), model)
    for _ in range(200):
        plan = workload.next()
        assert plan is not None
        model.end(plan.transaction, committed=True)
    held: set[object] = set()
    for _ in range(20):
        plan = workload.next()
        assert plan is not None
        mine = set()
        for change in plan.transaction.changes:
            for image in (change.old, change.new):
                if image is not None:
                    mine |= {(change.table.name, key) for key in unique_keys(change.table, image)}
            mine.add((change.table.name, "row", change.row_id))
        assert not mine & held
        held |= mine


def test_the_same_seed_gives_the_same_transactions() -> None:
    def changes(seed: int) -> list[object]:
        model, _ = demo_model()
        workload = Workload(Random(seed), model)
        found: list[object] = []
        for _ in range(50):
            plan = workload.next()
            assert plan is not None
            found.append(
                (plan.ending, [(c.table.name, c.kind, c.old, c.new) for c in plan.transaction.changes])
            )
            model.end(plan.transaction, committed=plan.ending is Ending.COMMIT)
        return found

    assert changes(7) == changes(7)
    assert changes(7) != changes(8)


def test_all_forms_of_change_occur() -> None:
    model, _ = demo_model()
    workload = Workload(Random(11), model, Mix(roll_back=0.1))
    seen: Counter[str] = Counter()
    for _ in range(1500):
        plan = workload.next()
        assert plan is not None
        changes = plan.transaction.changes
        seen[plan.ending.value] += 1
        per_row = Counter((change.table.name, change.row_id) for change in changes)
        seen["one row several times"] += any(count > 1 for count in per_row.values())
        seen["several tables"] += len({change.table.name for change in changes}) > 1
        keyed = [c for c in changes if c.kind == UPDATE and c.table.primary and c.old and c.new]
        moves = [c for c in keyed if unique_keys(c.table, c.old or ()) != unique_keys(c.table, c.new or ())]
        seen["key moves"] += bool(moves)
        taken = {unique_keys(c.table, c.old or ())[0] for c in moves}
        seen["swaps"] += any(unique_keys(c.table, c.new or ())[0] in taken for c in moves)
        seen["keyless changes"] += any(not change.table.unique_parts for change in changes)
        model.end(plan.transaction, committed=plan.ending is Ending.COMMIT)
    for what in ("commit", "roll back", "one row several times", "several tables", "key moves", "swaps"):
        assert seen[what] > 10, (what, seen)
    assert seen["keyless changes"] > 10
    everything = [row for state in model.tables.values() for row in state.rows.values()]
    assert any(None in row for row in everything)


def test_a_moved_key_can_be_taken_by_another_row_in_the_same_transaction() -> None:
    model, _ = demo_model()
    state = model.tables["integer_key"]
    first = Transaction()
    one, two = first.insert(state, (1, "1.000000", "a")), first.insert(state, (2, "2.000000", "b"))
    assert one is not None
    assert two is not None
    model.end(first, committed=True)
    swap = Transaction()
    assert not swap.update(state, one, (2, "1.000000", "a"))
    assert swap.update(state, one, (3, "1.000000", "a"))
    assert swap.update(state, two, (1, "2.000000", "b"))
    assert swap.update(state, one, (2, "1.000000", "a"))
    model.end(swap, committed=True)
    assert sorted(state.rows.values()) == [(1, "2.000000", "b"), (2, "1.000000", "a")]


@pytest.mark.parametrize(
    ("one", "other", "length", "same"),
    [
        ("abc", "ABC", -1, True),
        ("abc ", "abc", -1, True),
        ("é", "E", -1, True),
        ("abcx", "ABCy", 3, True),
        ("ab x", "ab", 3, True),
        ("abc", "abd", -1, False),
    ],
)
def test_keys_are_compared_as_the_server_does(one: str, other: str, length: int, same: bool) -> None:
    kind = kinds.varchar(20, tables.GENERAL_CI)
    assert (same_key(kind, one, length) == same_key(kind, other, length)) is same


def test_ddl_keeps_model_and_definition_together() -> None:
    model, ids = demo_model()
    changes = Evolution(Random(5), model, ids)
    workload = Workload(Random(5), model)
    kinds: Counter[int] = Counter()
    for _ in range(400):
        for _ in range(5):
            plan = workload.next()
            if plan is not None:
                model.end(plan.transaction, committed=True)
        name = changes.choose()
        before = dict(model.tables[name].rows) if name else {}
        ddl = changes.plan(name)
        evolution.apply(model, ddl)
        kinds[ddl.kind] += 1
        if ddl.after is None:
            assert name not in model.tables
            continue
        state = model.tables[ddl.after.name]
        assert state.table == ddl.after
        if ddl.before is not None and ddl.rewrite is None:
            assert not state.rows
            assert ddl.after.id != ddl.before.id
        else:
            assert len(state.rows) == len(before)
        assert all(len(row) == len(ddl.after.columns) for row in state.rows.values())
        assert len({column.id for column in ddl.after.columns}) == len(ddl.after.columns)
        assert all(column.id <= ddl.after.max_column_id for column in ddl.after.columns)
    assert set(kinds) == {3, 4, 5, 6, 7, 8, 11, 12, 14, 18}


def test_closed_and_reserved_tables_are_left_alone() -> None:
    model, _ = demo_model()
    for name, state in model.tables.items():
        state.closed = name != "no_key"
    model.tables["no_key"].reserved = True
    assert Workload(Random(1), model).next() is None
    model.tables["no_key"].reserved = False
    plan = Workload(Random(1), model).next()
    assert plan is not None
    assert {change.table.name for change in plan.transaction.changes} == {"no_key"}


def test_shards_share_a_target_and_keep_their_keys_apart() -> None:
    ids = itertools.count(1000)
    model = Model("demo")
    for table in tables.shards("demo", ids):
        evolution.apply(model, creation(table))
    workload = Workload(Random(4), model, Mix(roll_back=0.0))
    for _ in range(300):
        plan = workload.next()
        assert plan is not None
        model.end(plan.transaction, committed=True)
    (shared,) = model.expected({"shard_1": "shards", "shard_2": "shards"})
    apart = model.expected()
    assert (shared.name, len(apart)) == ("shards", 2)
    assert Counter(shared.rows) == Counter(row for table in apart for row in table.rows)
    for table in apart:
        assert {row[0] for row in table.rows} == {table.name}


def test_a_key_that_is_lost_is_broken_before_its_ddl() -> None:
    ids = itertools.count(1000)
    model = Model("demo")
    evolution.apply(model, creation(tables.losing_table("demo", next(ids))))
    workload = Workload(Random(4), model, Mix(roll_back=0.0))
    (empty, gain), lose = Evolution(Random(1), model, ids).gained_and_lost("losing_key")
    for ddl in (empty, gain, lose):
        evolution.apply(model, ddl)
    for _ in range(300):
        plan = workload.next()
        assert plan is not None
        model.end(plan.transaction, committed=True)
    assert gain.after is not None
    rows = model.tables["losing_key"].rows.values()
    keys = Counter(key for row in rows for key in unique_keys(gain.after, row))
    assert max(keys.values()) > 1


def test_moved_rows_are_expected_where_they_are_and_once() -> None:
    form = ColumnForm("id", "int")
    table = ExpectedTable("d", "moving", (form,), ("id",), [("1",), ("2",), ("3",)])
    stayed, moved = split(table, [("2",), ("9",)])
    assert (stayed.name, stayed.rows, moved.name, moved.rows) == (
        "moving",
        [("1",), ("3",)],
        "moved",
        [("2",)],
    )
