"""Patterns for tables, the Drainer's rules beside them, and what is refused."""

from __future__ import annotations

import itertools
import random
from fnmatch import fnmatchcase
from typing import Any

import pytest

from drainer.reading.errors import NoSuchTable
from drainer.reading.subscribe.subscription import EncodedStream
from drainer.reading.subscribe.table_choice import check_exist, choose, read_patterns, read_upstream
from drainer.stream.rules.rule_set import Rules
from tidb_binlog.errors import ConfigError

NAMES = [
    f"{schema}.{table}" for schema, table in itertools.product(("shop", "Shop2", "a"), ("t", "tmp_1", "o"))
]


def chosen(*tables: str, rules: dict[str, Any] | None = None) -> Rules:
    return choose(read_patterns(tables), rules)


def test_patterns_decide_as_they_say() -> None:
    rng = random.Random(1)
    for _ in range(500):
        wanted = [
            rng.choice("sa?*") + rng.choice(("hop", "*", "hop2", "")) + ".*" for _ in range(rng.randrange(3))
        ]
        out = [
            "!" + rng.choice(("*", "shop")) + "." + rng.choice(("tmp*", "?", "o"))
            for _ in range(rng.randrange(3))
        ]
        rules = chosen(*wanted, *out)
        for name in NAMES:
            expected = not wanted or any(fnmatchcase(name.lower(), one) for one in wanted)
            expected = expected and not any(fnmatchcase(name.lower(), one[1:]) for one in out)
            assert rules.allows(*name.split(".")) is expected, (name, wanted, out)


def test_a_pattern_is_no_regular_expression() -> None:
    assert chosen("sh.op+").allows("sh", "op+")
    assert not chosen("sh.o[p]").allows("sh", "op")
    assert not chosen("shop.t").allows("shop", "t\n")


def test_a_database_is_read_with_all_its_tables_only() -> None:
    assert chosen("shop.*").allows("shop", "")
    assert not chosen("shop.orders").allows("shop", "")


def test_rules_of_a_drainer() -> None:
    rules = chosen(
        "shop.*",
        rules={
            "ignore-table": [{"db-name": "shop", "tbl-name": "tmp"}],
            "table-migrate-rule": [
                {"source": {"schema": "shop", "table": "o*"}, "target": {"schema": "out", "table": "orders"}}
            ],
        },
    )
    assert not rules.allows("shop", "tmp")
    assert rules.router.route("shop", "o1") == ("out", "orders")


@pytest.mark.parametrize(
    ("tables", "rules", "said"),
    [
        (("shop",), None, "no pattern: 'shop'"),
        (("shop.",), None, "no pattern: 'shop.'"),
        (("a.b.c",), None, "no pattern: 'a.b.c'"),
        ((3,), None, "no text: 3"),
        ((), {"ignore-tables": []}, "no rule: 'ignore-tables'"),
        ((), {"db-type": "mysql"}, "no rule: 'db-type'"),
        ((), {"ignore-table": "shop"}, "rules: ignore-table: a list of tables is expected"),
        ((), [], "rules is"),
        (("a.b",), {"replicate-do-db": ["a"]}, "both tables and rules"),
    ],
)
def test_what_cannot_be_is_named(tables: tuple[Any, ...], rules: Any, said: str) -> None:
    if rules == []:
        rules = [1]
    with pytest.raises(ConfigError, match=said) as caught:
        chosen(*tables, rules=rules)
    assert caught.value.hint


def test_a_text_is_no_list_of_patterns() -> None:
    with pytest.raises(ConfigError, match="tables is the text 'shop") as caught:
        read_patterns("shop.*")
    assert caught.value.hint == 'give a list: tables=["shop.*"]'


@pytest.mark.parametrize("snapshot", ["mysql://root:hunter2@db", {"host": "db", "security": "hunter2"}])
def test_a_password_in_the_wrong_place_is_not_shown(snapshot: Any) -> None:
    with pytest.raises(ConfigError, match="snapshot is no dict") as caught:
        read_upstream(snapshot)
    assert "hunter2" not in str(caught.value)


def test_a_stream_does_not_show_its_password() -> None:
    snapshot = {"host": "db", "password": "hunter2"}
    assert "hunter2" not in repr(EncodedStream("127.0.0.1:2379", snapshot=snapshot))
    assert "hunter2" not in repr(read_upstream(snapshot))


def test_a_pattern_that_fits_nothing() -> None:
    patterns = read_patterns(["shop.*", "!gone.*", "shop.order"])
    with pytest.raises(
        NoSuchTable, match=r"shop\.order fits no table of the upstream, which has 2"
    ) as caught:
        check_exist(patterns, [("shop", "orders"), ("a", "b")], 7)
    assert caught.value.position == 7
    assert caught.value.hint.startswith("did you mean shop.orders?")
    check_exist(patterns, [("SHOP", "Order")], 7)


@pytest.mark.parametrize("tables", [[], ["shop.*"], ["shop.*", "!shop.tmp_*"], ["!a.b"], ["a?.*", "b.c"]])
def test_without_rules_it_is_what_the_defaults_of_the_keys_make(tables: list[str]) -> None:
    patterns = read_patterns(tables)
    plain, read = choose(patterns, None), choose(patterns, {"sync-ddl": True})
    for schema in ("shop", "SHOP", "a1", "a", "b", "mysql", "INFORMATION_SCHEMA", "performance_schema"):
        for table in ("", "t", "tmp_1", "b", "c", "TMP_x"):
            assert plain.allows(schema, table) == read.allows(schema, table), (schema, table)
    assert plain.keep_all_as_is == read.keep_all_as_is
    for name in ("passed_over", "sync_ddl", "channel_id", "own_schemas"):
        assert getattr(plain, name) == getattr(read, name), name
