"""DDL filter: renames against a simulated downstream, shared targets, databases, events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from drainer.mysql.sql_tokens import rename_pairs
from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.rule_set import Rules
from drainer.stream.rules.table_rules import EventFilter, EventRule, RouteRule, TableFilter, TableRouter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.ddl_filter import Verdict, judge
from tests.drainer.stream.schema.upstream_jobs import Upstream, database, table
from tidb_binlog.ddl_job import ActionType

Name = tuple[str, str]
Pairs = tuple[tuple[str, str], ...]


def routed(*rules: tuple[str, str, str, str], **more: Any) -> Rules:
    made = [RouteRule(f"rule {n}", Source.of(*rule[:2]), *rule[2:]) for n, rule in enumerate(rules, 1)]
    return Rules(router=TableRouter(made), **more)


class Setting:
    """Db (1000) with t (1), u (2); other (2000) with t (3)."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.up = Upstream()
        self.tracker = SchemaTracker()
        for job in (
            self.up.create_database(),
            self.up.create_database(2000, "other"),
            self.up.create(table(1, "t")),
            self.up.create(table(2, "u")),
            self.up.create(table(3, "t"), schema_id=2000),
        ):
            self.tracker.apply(job)

    def judge(self, action: int, **fields: Any) -> Verdict:
        job = self.up.job(action, **fields)
        return judge(job, self.tracker.apply(job), self.rules, self.tracker.names())

    def rename(self, *pairs: tuple[int, Name, Name]) -> Verdict:
        """(table id, old, new) in statement order."""
        homes = {"Db": 1000, "other": 2000, "away": 3000}
        query = "RENAME TABLE " + ", ".join(f"{'.'.join(old)} TO {'.'.join(new)}" for _, old, new in pairs)
        infos = [table(table_id, new[1]) for table_id, _, new in pairs]
        ids = [homes[new[0]] for *_, new in pairs]
        return self.judge(
            ActionType.RENAME_TABLES, query=query, schema_id=ids[0], infos=infos, raw_args=[[], ids]
        )


# -- renames, by all small statements ---------------------------------------------------------------------


def statements(existing: tuple[str, ...], names: str, pairs_max: int) -> Iterator[Pairs]:
    """Every RENAME of at most so many pairs that the upstream would have taken."""

    def further(present: frozenset[str], pairs: Pairs) -> Iterator[Pairs]:
        if pairs:
            yield pairs
        if len(pairs) < pairs_max:
            for old in sorted(present):
                for new in names:
                    if new not in present:
                        yield from further(present - {old} | {new}, (*pairs, (old, new)))

    yield from further(frozenset(existing), ())


def renamed(contents: dict[str, int], pairs: Any) -> dict[str, int]:
    """What a server makes of it. `KeyError` where it would refuse."""
    after = dict(contents)
    for old, new in pairs:
        if new in after:
            raise KeyError(new)
        after[new] = after.pop(old)
    return after


def test_every_small_rename_leaves_each_replicated_table_downstream_under_its_name() -> None:
    """Contents are table ids. Refused is exactly what makes an ignored table replicate."""
    names = "abcd"
    tried = refusals = partial = 0
    for ignored_count in range(4):
        for ignored in itertools.combinations(names, ignored_count):
            rules = Rules(names=TableFilter(ignore_table=[("db", name) for name in ignored]))
            for existing in (("a",), ("a", "b"), ("a", "b", "c")):
                upstream = {name: number for number, name in enumerate(existing, 1)}
                downstream = {name: number for name, number in upstream.items() if name not in ignored}
                for pairs in statements(existing, names, 3):
                    tried += 1
                    verdict, after = small(rules, upstream, pairs)
                    arrivals = [
                        number
                        for name, number in after.items()
                        if name not in ignored and number not in downstream.values()
                    ]
                    assert bool(verdict.refused) == bool(arrivals), (ignored, pairs)
                    if verdict.refused:
                        refusals += 1
                        continue
                    ours = downstream
                    if not verdict.skip:
                        ours = renamed(downstream, executed(verdict, pairs))
                        partial += bool(verdict.instead)
                    assert {n: i for n, i in ours.items() if n not in ignored} == {
                        n: i for n, i in after.items() if n not in ignored
                    }, (ignored, pairs)
                    assert set(ours.values()) == set(downstream.values()), "nothing is destroyed"
    assert tried > 2000
    assert refusals > 300
    assert partial > 100


def small(rules: Rules, upstream: dict[str, int], pairs: Pairs) -> tuple[Verdict, dict[str, int]]:
    up, tracker = Upstream(), SchemaTracker()
    jobs = [up.create_database(1000, "db")]
    jobs += [up.create(table(number, name)) for name, number in upstream.items()]
    for job in jobs:
        tracker.apply(job)
    ids, infos, current = [], [], dict(upstream)
    for old, new in pairs:
        current = renamed(current, [(old, new)])
        infos.append(table(current[new], new))
        ids.append(1000)
    query = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in pairs)
    job = up.job(ActionType.RENAME_TABLES, query=query, infos=infos, raw_args=[[], ids])
    return judge(job, tracker.apply(job), rules, tracker.names()), current


def executed(verdict: Verdict, pairs: Pairs) -> list[tuple[str, str]]:
    if not verdict.instead:
        return list(pairs)
    (statement,) = verdict.instead
    return [(pair.old_table, pair.new_table) for pair in rename_pairs(statement)]


# -- renames between databases and under routes ---------------------------------------------------------


def test_a_rename_into_a_database_that_does_not_replicate_makes_it_first() -> None:
    s = Setting(Rules(names=TableFilter(ignore_schemas=["other"])))
    verdict = s.rename((1, ("Db", "t"), ("other", "x")))
    assert verdict == Verdict(
        (("Db", "t"), ("other", "x")),
        instead=("CREATE DATABASE IF NOT EXISTS `other`", "RENAME TABLE `Db`.`t` TO `other`.`x`"),
    )


def test_a_rename_out_of_an_ignored_database_is_refused_with_the_next_step() -> None:
    s = Setting(Rules(names=TableFilter(ignore_schemas=["other"])))
    verdict = s.rename((3, ("other", "t"), ("Db", "x")))
    assert "other.t did not replicate under this name and does as Db.x" in verdict.refused
    assert "copy it downstream" in verdict.refused


def test_routed_tables_are_renamed_under_their_downstream_names() -> None:
    rules = routed(("db", "t", "shop", "orders"), ("db", "old_*", "shop", ""))
    assert Setting(rules).rename((1, ("Db", "t"), ("Db", "old_1"))).instead == (
        "RENAME TABLE `shop`.`orders` TO `shop`.`old_1`",
    )
    assert Setting(rules).rename((2, ("Db", "u"), ("Db", "v"))).instead == ()


def test_a_rename_between_two_names_of_one_target_is_passed_over() -> None:
    rules = routed(("db", "t*", "shop", "orders"))
    assert (
        Setting(rules).rename((1, ("Db", "t"), ("Db", "t2"))).skip
        == "both names are routed to the same table"
    )


@pytest.mark.parametrize(
    "pair", [(1, ("Db", "t"), ("Db", "x")), (2, ("Db", "u"), ("Db", "t9"))], ids=["leaves", "joins"]
)
def test_a_rename_that_would_touch_rows_of_other_tables_is_refused(pair: tuple[int, Name, Name]) -> None:
    verdict = Setting(routed(("*", "t*", "shop", "orders"))).rename(pair)
    assert "other.t" in verdict.refused
    assert "shop.orders" in verdict.refused


def test_a_rename_that_would_join_two_tables_is_refused() -> None:
    rules = routed(("db", "x*", "shop", "orders"))
    verdict = Setting(rules).rename((1, ("Db", "t"), ("Db", "x1")), (2, ("Db", "u"), ("Db", "x2")))
    assert "would join tables" in verdict.refused


# -- other statements -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "info"), [(ActionType.DROP_TABLE, table(1, "t")), (ActionType.TRUNCATE_TABLE, table(9, "t"))]
)
def test_dropping_one_of_several_tables_of_a_target_is_refused(action: int, info: dict[str, Any]) -> None:
    shared = Setting(routed(("*", "t", "shop", "orders"))).judge(action, table_id=1, info=info)
    assert "other.t replicate into shop.orders too" in shared.refused
    alone = Setting(routed(("db", "t", "shop", "orders"))).judge(action, table_id=1, info=info)
    assert alone == Verdict((("Db", "t"),))


@pytest.mark.parametrize("action", [ActionType.TRUNCATE_TABLE_PARTITION, ActionType.DROP_TABLE_PARTITION])
def test_a_partition_of_one_of_several_tables_of_a_target_has_rows_of_all(action: int) -> None:
    parted = table(1, "t", partitions=(6, 7))
    shared = Setting(routed(("*", "t", "shop", "orders"))).judge(action, table_id=1, info=parted)
    assert "other.t replicate into shop.orders too" in shared.refused
    alone = Setting(routed(("db", "t", "shop", "orders"))).judge(action, table_id=1, info=parted)
    assert alone == Verdict((("Db", "t"),))


def test_an_exchange_is_about_both_tables() -> None:
    s = Setting(routed(("*", "t", "shop", "orders")))
    s.tracker.apply(s.up.create(table(5, "parted", partitions=(6, 7))))
    verdict = s.judge(
        ActionType.EXCHANGE_TABLE_PARTITION, table_id=1, info=table(5, "parted", partitions=(1, 7))
    )
    assert "other.t replicate into shop.orders too" in verdict.refused


def test_of_tables_created_together_those_that_replicate_are() -> None:
    s = Setting(Rules(names=TableFilter(ignore_table=[("db", "x")])))
    verdict = s.judge(ActionType.CREATE_TABLES, infos=[table(11, "x"), table(12, "y")])
    assert verdict == Verdict((("Db", "y"),))
    assert s.judge(ActionType.CREATE_TABLES, infos=[table(13, "x")]).skip == "filtered"


def test_an_exchange_with_a_table_that_does_not_replicate_is_refused() -> None:
    s = Setting(Rules(names=TableFilter(ignore_table=[("db", "t")])))
    s.tracker.apply(s.up.create(table(5, "parted", partitions=(6, 7))))
    verdict = s.judge(
        ActionType.EXCHANGE_TABLE_PARTITION, table_id=1, info=table(5, "parted", partitions=(1, 7))
    )
    assert "exchange partition brings in rows of Db.t" in verdict.refused


def test_a_dropped_database_takes_along_what_replicates_of_it() -> None:
    s = Setting(Rules(names=TableFilter(do_table=[("db", "t"), ("db", "v")])))
    s.tracker.apply(s.up.create(table(8, "v", view={})))
    verdict = s.judge(ActionType.DROP_SCHEMA, db=database(1000, "Db"))
    assert verdict == Verdict(
        (("Db", "t"), ("Db", "v")),
        instead=("DROP VIEW IF EXISTS `Db`.`v`", "DROP TABLE IF EXISTS `Db`.`t`"),
    )
    assert s.judge(ActionType.DROP_SCHEMA, schema_id=2000, db=database(2000, "other")).skip == "filtered"
    everything = Setting(Rules()).judge(ActionType.DROP_SCHEMA, db=database(1000, "Db"))
    assert everything == Verdict((("Db", ""),))


def test_a_database_that_comes_back_brings_along_what_replicates_of_it() -> None:
    s = Setting(Rules(names=TableFilter(do_table=[("back", "t")])))
    tables = [{"TableInfo": table(8, "t")}, {"TableInfo": table(9, "u")}]
    again: Any = {"schema_id": 5000, "db": database(5000, "Back"), "raw_args": [{"RecoverTabsInfo": tables}]}
    assert s.judge(ActionType.RECOVER_SCHEMA, **again) == Verdict((("Back", "t"),))
    ignored = Setting(Rules(names=TableFilter(do_db=["db"])))
    assert ignored.judge(ActionType.RECOVER_SCHEMA, **again).skip == "filtered"


def test_a_dropped_database_under_routes() -> None:
    drop: Any = {"action": ActionType.DROP_SCHEMA, "db": database(1000, "Db")}
    whole = Setting(routed(("db", "", "shop", ""))).judge(**drop)
    assert whole == Verdict((("Db", ""),), instead=("DROP DATABASE IF EXISTS `shop`",)), "shop is all its own"
    untouched = Setting(routed(("other", "", "shop", ""))).judge(**drop)
    assert untouched == Verdict((("Db", ""),))
    away = Setting(routed(("db", "t", "shop", "orders"))).judge(**drop)
    assert away.instead == ("DROP TABLE IF EXISTS `shop`.`orders`, `Db`.`u`",)
    beside = Setting(routed(("db", "t", "shop", "x"), ("db", "u", "shop", "y"), ("other", "", "shop", "")))
    assert beside.judge(**drop).instead == ("DROP TABLE IF EXISTS `shop`.`x`, `shop`.`y`",)
    visited = Setting(routed(("db", "", "shop", ""), ("other", "t", "shop", "x"))).judge(**drop)
    assert visited.instead == ("DROP TABLE IF EXISTS `shop`.`t`, `shop`.`u`",), "shop holds a table of other"
    shared = Setting(routed(("*", "t", "shop", "orders"))).judge(**drop)
    assert "drop database of Db.t: other.t replicate into shop.orders too" in shared.refused


# -- events -----------------------------------------------------------------------------------------------


def by_event(*events: str, table: str = "t*", sql: tuple[str, ...] = ()) -> Rules:
    rule = EventRule.of("rule", events, sql)
    return Rules(events=EventFilter([(Source.of("db", table), rule)]))


def test_events_and_statements_are_filtered_by_rule() -> None:
    add: Any = {"action": 5, "query": "ALTER TABLE t ADD COLUMN aaa INT", "info": table(1, "t", "id", "aaa")}
    for rules in (by_event("alter table"), by_event(sql=("add column aaa",)), by_event("all")):
        assert Setting(rules).judge(**add).skip == "filtered by binlog-filter-rule rule"
    assert not Setting(by_event("drop table", sql=("drop column",))).judge(**add).skip
    assert not Setting(by_event("alter table", table="u")).judge(**add).skip


def test_partition_events_match() -> None:
    add: Any = {
        "action": 19,
        "query": "ALTER TABLE t ADD PARTITION (PARTITION p VALUES IN (1))",
        "info": table(1, "t"),
    }
    assert Setting(by_event("add table partition")).judge(**add).skip
    assert Setting(by_event("alter table")).judge(**add).skip
    assert not Setting(by_event("drop table partition")).judge(**add).skip


def test_a_rename_is_asked_for_by_its_new_name() -> None:
    assert not Setting(by_event("rename table", table="t")).rename((1, ("Db", "t"), ("Db", "x"))).skip
    assert Setting(by_event("rename table", table="x")).rename((1, ("Db", "t"), ("Db", "x"))).skip


def test_of_tables_created_together_rules_take_out_single_ones() -> None:
    batch: Any = {"action": ActionType.CREATE_TABLES, "infos": [table(11, "t1"), table(12, "y")]}
    assert Setting(by_event("create table")).judge(**batch).tables == (("Db", "y"),)
    assert Setting(by_event("create table", table="*")).judge(**batch).skip
