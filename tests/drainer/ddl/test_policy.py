"""DDL policy: the first rule that means a statement decides, the default skips what has no meaning
downstream, and a rule that cannot be meant so is refused with its number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from drainer.ddl import rules as ddl_rules
from drainer.ddl.policy import NO_DOWNSTREAM_MEANING, Policy
from drainer.ddl.rules import APPLY, REWRITE, SKIP, STOP
from drainer.txn import Ddl
from tests.cases import case
from tidb_binlog import ddl_job
from tidb_binlog.errors import ConfigError


def ddl(
    action: int = 5,
    query: str = "ALTER TABLE `t` ADD COLUMN c INT",
    tables: tuple[tuple[str, str], ...] = (("Shop", "Orders"),),
    skip: str = "",
) -> Ddl:
    return Ddl(100, 7, action, "Shop", query, tables, 5, skip=skip)


def policy(*rules: dict[str, Any]) -> Policy:
    return Policy(ddl_rules.parse(rules))


def test_default_skips_what_has_no_meaning_downstream_and_applies_the_rest() -> None:
    for action in [*sorted(ddl_job.ACTION_NAMES), 200]:
        with case(action):
            ruling = Policy().rule(ddl(action))
            assert ruling.action == (SKIP if action in NO_DOWNSTREAM_MEANING else APPLY)
            assert ddl_job.action_name(action) in ruling.reason
            assert ruling.rule == 0


@pytest.mark.parametrize("action", sorted(NO_DOWNSTREAM_MEANING))
def test_an_operator_overrides_the_default(action: int) -> None:
    assert policy({"kind": "all", "action": "apply"}).rule(ddl(action)).action == APPLY


def test_what_did_nothing_upstream_or_is_filtered_stays_so() -> None:
    ruling = policy({"kind": "all", "action": "stop"}).rule(ddl(skip="filtered"))
    assert (ruling.action, ruling.reason) == (SKIP, "filtered")


def test_first_rule_that_means_the_statement_decides() -> None:
    """All orders of four overlapping rules, against a naive search."""
    rules = [
        {"kind": "add column", "action": "skip"},
        {"db-name": "shop", "tbl-name": "~^ord", "action": "stop"},
        {"sql": "rename", "action": "rewrite", "text": "DO 0"},
        {"kind": ["index", "placement"], "db-name": "other", "action": "skip"},
    ]
    holds = [
        lambda d: d.action == 5,
        lambda d: any(t[0].lower() == "shop" and t[1].lower().startswith("ord") for t in d.tables),
        lambda d: "rename" in d.query.lower(),
        lambda d: d.action in (7, 51) and any(t[0].lower() == "other" for t in d.tables),
    ]
    statements = [
        ddl(action, query, tables)
        for action in (5, 7, 51, 14)
        for query in ("ALTER", "ReName x")
        for tables in ((), (("SHOP", "orders"),), (("other", ""),), (("x", "y"), ("shop", "Order_x")))
    ]
    for order in itertools.permutations(range(len(rules))):
        subject = policy(*(rules[number] for number in order))
        for statement in statements:
            wanted = next((place for place, number in enumerate(order) if holds[number](statement)), None)
            ruling = subject.rule(statement)
            assert ruling.rule == (0 if wanted is None else wanted + 1)
            if wanted is not None:
                assert ruling.action == rules[order[wanted]]["action"]
                assert f"ddl-rule {wanted + 1} (" in ruling.reason
            explained = subject.explain(statement.action, statement.tables, statement.query)
            assert (explained.action, explained.rule) == (ruling.action, ruling.rule)


@pytest.mark.parametrize("word", ["add index", "Add-Index", "ADD_INDEX", " add  index "])
def test_kind_in_every_spelling(word: str) -> None:
    subject = policy({"kind": word, "action": "skip"})
    assert subject.rule(ddl(7)).action == SKIP
    assert subject.rule(ddl(8)).action == APPLY


def test_every_kind_means_something_and_only_that() -> None:
    for kind in ddl_rules.kinds():
        with case(kind):
            codes = [*ddl_job.ACTION_NAMES, 200]
            meant = {
                code
                for code in codes
                if policy({"kind": kind, "action": "stop"}).rule(ddl(code)).action == STOP
            }
            assert meant
            if kind == "all":
                assert meant == set(codes)
            elif kind == "unknown":
                assert meant == {200}
            elif kind in ddl_rules.GROUPS:
                assert meant == ddl_rules.GROUPS[kind]
            else:
                assert {ddl_job.ACTION_NAMES[code] for code in meant} == {kind}


def test_rewrite_fills_in_the_names() -> None:
    subject = policy(
        {"kind": "add column", "action": "rewrite", "text": "ALTER TABLE {db}.{table} ADD c INT"}
    )
    ruling = subject.rule(ddl(tables=(("a`b", "t"), ("x", "y"))))
    assert (ruling.action, ruling.text) == (REWRITE, "ALTER TABLE `a``b`.`t` ADD c INT")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"kind": "all"}, "action '' is unknown"),
        ({"kind": "all", "action": "ignore"}, "action 'ignore' is unknown"),
        ({"action": "skip"}, "does not say what it means"),
        ({"kind": "add colum", "action": "skip"}, "kind 'add colum' is unknown"),
        ({"kind": [], "action": "skip"}, "kind is empty"),
        ({"kind": [7], "action": "skip"}, "kind 7 is unknown"),
        ({"kind": "all", "action": "rewrite"}, "no text to rewrite into"),
        ({"kind": "all", "action": "skip", "text": "x"}, "text without a use in skip"),
        ({"sql": "(", "action": "skip"}, "sql is not a regular expression"),
        ({"sql": 3, "action": "skip"}, "sql is not a text"),
        ({"db-name": "~(", "action": "skip"}, "db-name"),
        ({"tbl-name": " ", "action": "skip"}, "tbl-name"),
        ({"table": "x", "action": "skip"}, "unknown key 'table'"),
    ],
)
def test_a_wrong_rule_is_named(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy({"kind": "all", "action": "apply"}, rule)
    assert "syncer.ddl-rule 2" in caught.value.message
    assert says in caught.value.message
    assert caught.value.hint
