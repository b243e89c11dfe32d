"""Table routes: levels, what is kept of a name, contradictions."""

from __future__ import annotations

import pytest

from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.table_rules import RouteRule, TableRouter
from tidb_binlog.errors import ConfigError


def router(*rules: tuple[str, str, str, str], case_sensitive: bool = False) -> TableRouter:
    return TableRouter(
        RouteRule(f"`table-migrate-rule` {n}", Source.of(*rule[:2], case_sensitive=case_sensitive), *rule[2:])
        for n, rule in enumerate(rules, 1)
    )


def test_without_rules_names_stay() -> None:
    assert TableRouter().route("Db", "T") == ("Db", "T")
    assert TableRouter().is_empty


def test_a_rule_for_the_table_goes_before_one_for_the_database() -> None:
    found = router(("shop_*", "", "shop", ""), ("shop_*", "order_?", "shop", "orders"))
    assert found.route("Shop_1", "Order_7") == ("shop", "orders")
    assert found.route("shop_1", "Order_77") == ("shop", "Order_77"), "the spelling upstream is kept"
    assert found.route("shop_1") == ("shop", "")
    assert found.route("other", "order_7") == ("other", "order_7"), "no rule is an allow-list"


def test_a_database_follows_rules_for_databases_only() -> None:
    assert router(("a", "*", "b", "x")).route("a") == ("a", "")
    assert router(("a", "*", "b", "x")).route("a", "t") == ("b", "x")
    assert router(("a", "", "b", "x")).route("a", "t") == ("b", "x"), "all tables of a into one"


def test_several_tables_may_go_to_one() -> None:
    found = router(("a", "t1", "c", "t"), ("b", "t2", "c", "t"))
    assert found.route("a", "t1") == found.route("b", "t2") == ("c", "t")


@pytest.mark.parametrize(
    "rules", [[("a*", "t", "x", ""), ("*", "t", "y", "")], [("a", "", "x", ""), ("?", "", "y", "")]]
)
def test_two_rules_for_one_name_are_an_error_naming_both(rules: list[tuple[str, str, str, str]]) -> None:
    found = router(*rules)
    with pytest.raises(ConfigError, match=r"a\.t is routed .*rule` 1 .* and .*rule` 2 ") as raised:
        found.route("a", "t")
    assert raised.value.hint
    assert found.route("bb", "u") == ("bb", "u")


def test_the_same_source_twice_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match=r"rule` 1 .* and .*rule` 2 "):
        router(("A", "t", "x", ""), ("a", "T", "y", ""))
    assert router(("A", "t", "x", ""), ("a", "T", "y", ""), case_sensitive=True).route("a", "T") == ("y", "T")


def test_a_target_needs_a_database() -> None:
    with pytest.raises(ConfigError, match="`table-migrate-rule` 1: target has no schema"):
        router(("a", "t", "", "x"))
