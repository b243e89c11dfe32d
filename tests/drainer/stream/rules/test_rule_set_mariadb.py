"""Rules end to end on a real MariaDB: recorded workloads under routes, and every kind of rule at once."""

from __future__ import annotations

import json

import pytest

from drainer.mysql.connection import Target, connect
from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import (
    ColumnRule,
    ColumnRules,
    EventFilter,
    EventRule,
    RouteRule,
    TableFilter,
    TableRouter,
)
from drainer.txn import DELETE, INSERT, UPDATE
from tests.drainer.stream.rules.made_tables import Made, contents, shard, unique
from tests.drainer.support import recorded
from tests.drainer.support.apply_life import (
    Life,
    Recording,
    clean,
    read,
    stored_ts,
)
from tidb_binlog.observe.metrics import REGISTRY

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "scenario",
    ["ddl-swap", "ddl-rename-db", "ddl-multischema", "ddl-exchange", "ddl-fk"],
)
async def test_under_routes_everything_arrives_under_other_names(scenario: str, target: Target) -> None:
    recording = read(scenario)
    recording.entries = recorded.merged(scenario)
    # A name inside an expression (`DEFAULT NEXTVAL(seq)`) stays what it is: leave the sequence out.
    names = TableFilter(ignore_table=[("~.*", "~seq")])
    assert await Life(recording, target, rules=Rules(names)).run()
    plain = contents(target)
    assert any(plain.values())
    clean(target)
    routes = [
        RouteRule(f"rule {n}", Source.of(schema, ""), f"{schema}_routed")
        for n, schema in enumerate({*plain, *_databases(recording)})
    ]
    assert await Life(recording, target, rules=Rules(names, router=TableRouter(routes))).run()
    routed = contents(target)
    assert set(routed) == {f"{schema}_routed" for schema in plain}
    for schema, tables in plain.items():
        assert routed[f"{schema}_routed"] == tables


def _databases(recording: Recording) -> set[str]:
    infos = [entry.job["binlog"].get("DBInfo") for entry in recording.entries if entry.job]
    return {info["db_name"]["O"] for info in infos if info}


# -- every kind of rule -----------------------------------------------------------------------------------


async def test_shards_into_one_table_without_deletes_and_without_one_column(target: Target) -> None:
    made = Made(shard(1, "orders_1"), shard(2, "orders_2"), shard(3, "audit"))
    made.transaction(1001, ("orders_1", INSERT, (1, "a", "x")), ("orders_2", INSERT, (2, "b", "x")))
    made.transaction(1011, ("audit", INSERT, (1, "never", "x")))
    made.transaction(
        1021,
        ("orders_1", DELETE, (1, "a", "x")),
        ("orders_1", INSERT, (3, "c", "x")),
        ("orders_2", UPDATE, (2, "b", "x")),
    )
    made.transaction(1031, ("orders_2", INSERT, (99, "passed over", "x")))
    made.transaction(1041, ("orders_2", DELETE, (2, "b+", "x")), ("orders_2", INSERT, (4, "d", "x")))
    source = Source.of("d", "orders_?")
    rules = Rules(
        names=TableFilter(ignore_table=[("d", "audit")]),
        events=EventFilter([(source, EventRule.of("no-deletes", ["delete"], []))]),
        router=TableRouter([RouteRule("rule 1", source, "shop", "orders")]),
        columns=ColumnRules([ColumnRule.of("rule", "d", "~^orders", ["secret"], keep=False)]),
        passed_over=frozenset({1031}),
    )
    connection = connect(target)
    for statement in (b"CREATE DATABASE d", b"CREATE DATABASE shop"):
        connection.run(statement)
    connection.close()
    life = Life(made.recording, target, rules=rules)
    assert await life.run()
    found = contents(target)
    assert found["d"] == {}
    _, rows = found["shop"].pop("orders")
    assert not found["shop"]
    assert rows == ["(1, 'a', None)", "(2, 'b+', None)", "(3, 'c', None)", "(4, 'd', None)"]
    assert life.runner.resolved_ts >= 1041, "what is filtered moves the checkpoint, too"


WITHHELD = {
    "no-deletes": {"events": EventFilter([(Source.of("d", "t"), EventRule.of("r", ["delete"], []))])},
    "ignore-txn-commit-ts": {"passed_over": frozenset({1011})},
    "truncate": {"events": EventFilter([(Source.of("d", "t"), EventRule.of("r", ["truncate table"], []))])},
}


def drifted(table: str) -> float:
    return REGISTRY.get_sample_value("binlog_drainer_drift_rows_total", {"table": table}) or 0.0


@pytest.mark.parametrize("way", WITHHELD)
async def test_a_unique_value_comes_back_that_upstream_had_freed(target: Target, way: str) -> None:
    """The old row is still there, because its end was left out: the new one takes its place, counted."""
    made = Made(unique(1, "t"))
    made.recording.entries[0].job["query"] = (  # type: ignore[index]
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `name` VARCHAR(64), `secret` VARCHAR(64), UNIQUE u(`name`))"
    )
    made.recording.jobs[:] = [json.dumps(made.recording.entries[0].job).encode()]
    made.transaction(1001, ("t", INSERT, (1, "a", "x")), ("t", INSERT, (2, "b", "x")))
    if way == "truncate":
        made.truncate(1011, "t")
    else:
        made.transaction(1011, ("t", DELETE, (1, "a", "x")))
    made.transaction(1021, ("t", INSERT, (3, "a", "y")), ("t", INSERT, (4, "c", "y")))
    made.transaction(1031, ("t", DELETE, (4, "c", "y")))
    rules = Rules(**WITHHELD[way])
    connection = connect(target)
    connection.run(b"CREATE DATABASE d")
    connection.close()
    before = drifted("d.t")
    for _ in range(2):
        assert await Life(made.recording, target, rules=rules).run()
        kept = ["(2, 'b', 'x')", "(3, 'a', 'y')", *["(4, 'c', 'y')"] * (way == "no-deletes")]
        assert contents(target)["d"]["t"][1] == kept
    assert drifted("d.t") - before == 1


async def test_a_rename_by_which_a_table_is_to_replicate_waits_for_a_decision(target: Target) -> None:
    """Its rows so far are not downstream: it is not made there, its further rows wait, others go on."""
    made = Made(shard(1, "hidden"), shard(2, "other"))
    made.transaction(1001, ("hidden", INSERT, (1, "a", "x")))
    made.rename(1011, "hidden", "shown")
    made.transaction(1021, ("shown", INSERT, (2, "b", "x")), ("other", INSERT, (1, "c", "x")))
    rules = Rules(TableFilter(ignore_table=[("d", "hidden")]))
    for _ in range(2):
        assert await Life(made.recording, target, rules=rules).run()
        found = contents(target)["d"]
        assert set(found) == {"other"}
        assert found["other"][1] == ["(1, 'c', 'x')"]
        assert stored_ts(target) < 1011
    connection = connect(target)
    waiting = repr(connection.rows(b"SELECT * FROM tidb_binlog.quarantine"))
    connection.close()
    assert "d.hidden did not replicate under this name" in waiting
