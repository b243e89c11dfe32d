"""Table filter: allow step, block step, patterns, case, bad entries."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.table_rules import (
    EVENTS,
    ColumnRule,
    ColumnRules,
    EventFilter,
    EventRule,
    RouteRule,
    TableFilter,
    TableRouter,
)
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.errors import ConfigError
from tidb_binlog.table_info import (
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONG,
    Column,
    FieldType,
    Index,
    IndexColumn,
    TableInfo,
)


def test_without_lists_everything_but_system_databases_replicates() -> None:
    found = TableFilter()
    assert found.allows("db", "t")
    assert found.allows("db")
    for schema in ("mysql", "MySQL", "information_schema", "PERFORMANCE_SCHEMA"):
        assert not found.allows(schema, "t")
        assert not found.allows(schema)


def test_documented_example() -> None:
    """Allowed by database or by table; a blocked table stays blocked though a rule allows it."""
    found = TableFilter(
        do_db=["~^do_start.*", "do_name"],
        do_table=[("test", "do_name"), ("test", "do_ignore_name"), ("test", "~^do_start.*")],
        ignore_table=[("test", "do_ignore_name")],
        ignore_schemas=["ignored"],
    )
    assert found.allows("do_start1", "x")
    assert found.allows("DO_START1", "x")
    assert not found.allows("should_not_do_start", "x")
    assert found.allows("do_name", "anything")
    assert not found.allows("do_name1", "anything")
    assert found.allows("test", "do_name")
    assert found.allows("test", "DO_START_t")
    assert not found.allows("test", "do_ignore_name")
    assert not found.allows("test", "other")


def test_block_wins_over_allow() -> None:
    assert not TableFilter(do_db=["db"], ignore_schemas=["DB"]).allows("db", "t")


def test_a_plain_entry_means_the_whole_name_a_tilde_any_part_of_it() -> None:
    assert not TableFilter(ignore_schemas=["ysq"]).allows("ysq", "t")
    assert TableFilter(ignore_schemas=["ysq"]).allows("mysql", "t")
    assert not TableFilter(ignore_schemas=["~ysq"]).allows("mysql", "t")


def test_plain_entries_are_regular_expressions_too() -> None:
    """As the Go drainer has it: not escaped."""
    assert TableFilter(do_db=["a.c"]).allows("abc", "t")
    assert TableFilter(do_table=[("db", "t[0-9]+")]).allows("db", "t12")
    assert not TableFilter(do_table=[("db", "t[0-9]+")]).allows("db", "t12x")


def test_case_classes_of_patterns_are_kept() -> None:
    assert TableFilter(do_db=[r"~^a\D$"]).allows("aX", "t")
    assert not TableFilter(do_db=[r"~^a\D$"]).allows("a1", "t")


def test_blanks_around_entries_do_not_count() -> None:
    found = TableFilter(ignore_schemas=["mysql", " test ", "other"])
    assert not found.allows("test", "t")


def test_databases_are_asked_for_with_an_empty_table_name() -> None:
    assert not TableFilter(do_table=[("db", "t")]).allows("db")
    assert TableFilter(do_table=[("db", "~.*")]).allows("db")
    assert TableFilter(do_db=["db"]).allows("db")
    assert TableFilter(ignore_table=[("db", "t")]).allows("db")


@pytest.mark.parametrize(
    ("lists", "key"),
    [
        ({"do_db": ["("]}, "replicate-do-db"),
        ({"do_db": [""]}, "replicate-do-db"),
        ({"do_table": [("db", "~[")]}, "replicate-do-table.tbl-name"),
        ({"do_table": [("", "t")]}, "replicate-do-table.db-name"),
        ({"ignore_table": [("*", "t")]}, "ignore-table.db-name"),
        ({"ignore_schemas": ["a", " ", "b"]}, "ignore-schemas"),
        ({"ignore_schemas": ["~"]}, "ignore-schemas"),
    ],
)
def test_bad_entries_name_their_key(lists: dict[str, list[str]], key: str) -> None:
    with pytest.raises(ConfigError, match=f"`{key}`") as caught:
        TableFilter(**lists)  # type: ignore[arg-type]
    assert caught.value.hint


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


PK = FieldType(LONG, FLAG_NOT_NULL | FLAG_PRIMARY)
NOT_NULL = FieldType(LONG, FLAG_NOT_NULL)


def info(**more: Any) -> TableInfo:
    columns = (
        Column(1, "Id", 0, PK),
        Column(2, "Name", 1, NOT_NULL),
        Column(3, "secret", 2, FieldType(LONG)),
        Column(4, "made", 3, FieldType(LONG), generated="`name` + 1"),
    )
    return TableInfo(**{"id": 7, "name": "t", "columns": columns, "pk_is_handle": True, **more})


def rules(*given: tuple[str, str, list[str], bool]) -> ColumnRules:
    return ColumnRules(
        ColumnRule.of(f"`column-rule` {n}", db, table, columns, keep=keep)
        for n, (db, table, columns, keep) in enumerate(given, 1)
    )


def test_ignored_and_kept_columns() -> None:
    assert rules(("db", "t", ["SECRET"], False)).left_out("Db", "T", info()) == {3}
    assert rules(("db", "t", ["id", "name"], True)).left_out("db", "t", info()) == {3}
    assert rules(("db", "~^t", ["~^sec"], False)).left_out("db", "t2", info()) == {3}
    assert rules(("db", "t", ["secret"], False)).left_out("db", "u", info()) == frozenset()
    assert ColumnRules().is_empty


def test_a_column_added_later_is_out_of_a_selection_and_in_beside_an_exclusion() -> None:
    wider = info(columns=(*info().columns, Column(9, "new", 4, FieldType(LONG))))
    assert rules(("db", "t", ["id", "name", "secret"], True)).left_out("db", "t", wider) == {9}
    assert rules(("db", "t", ["secret"], False)).left_out("db", "t", wider) == {3}


def test_columns_that_the_table_does_not_have_are_no_error() -> None:
    assert rules(("db", "t", ["gone"], False)).left_out("db", "t", info()) == frozenset()


@pytest.mark.parametrize(
    ("table", "columns", "keep", "name"),
    [
        (info(), ["id"], False, "Id"),
        (info(), ["name"], True, "Id"),
        (
            info(
                pk_is_handle=False,
                columns=(Column(1, "a", 0, NOT_NULL), Column(2, "b", 1, FieldType(LONG))),
                indexes=(Index(1, "u", (IndexColumn("a", 0),), True, False),),
            ),
            ["a"],
            False,
            "a",
        ),
    ],
)
def test_a_key_column_cannot_be_left_out(table: TableInfo, columns: list[str], keep: bool, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"`column-rule` 1 leaves out db\.t\.{name}, a column of the key"):
        rules(("db", "t", columns, keep)).left_out("db", "t", table)


def test_any_column_of_a_table_without_a_key_can() -> None:
    keyless = info(pk_is_handle=False, columns=(Column(1, "a", 0, FieldType(LONG)),))
    assert rules(("db", "t", ["a"], False)).left_out("db", "t", keyless) == {1}


def test_two_rules_for_one_table_are_an_error_naming_both() -> None:
    found = rules(("db", "t", ["secret"], False), ("~.", "~t", ["name"], False))
    with pytest.raises(ConfigError, match=r"db\.t has two column rules: `column-rule` 1 and `column-rule` 2"):
        found.left_out("db", "t", info())


@pytest.mark.parametrize(
    ("columns", "keep", "words"),
    [([], True, "`columns` is empty"), (["("], False, "ignore-columns"), ([" "], True, "columns")],
)
def test_bad_entries_name_rule_and_key(columns: list[str], keep: bool, words: str) -> None:
    with pytest.raises(ConfigError, match="`column-rule` 1") as raised:
        rules(("db", "t", columns, keep))
    assert words in str(raised.value)


ROWS = {"insert": INSERT, "update": UPDATE, "delete": DELETE}
STATEMENTS = (("alter table",), ("add table partition", "alter table"), ("drop table",), ())
WORDS = ("all", "all ddl", "all dml", "none", "none ddl", "none dml", "", "insert", "delete", "alter table")


def one(*rules: EventRule) -> EventFilter:
    return EventFilter([(Source.of("db", "t"), rule) for rule in rules])


def listed(words: tuple[str, ...], events: tuple[str, ...], group: str) -> bool:
    """What the first word that says anything about the event says."""
    says = [
        not word.startswith("none")
        for word in words
        if word and (word in events or word in ("all", "none", f"all {group}", f"none {group}"))
    ]
    return bool(says) and says[0]


def test_every_short_list_reads_as_its_first_word_that_applies() -> None:
    words = (*WORDS, "add table partition")
    for size in range(4):
        for chosen in itertools.product(words, repeat=size):
            found = one(EventRule.of("r", chosen, ()))
            ignored = found.ignored_rows("db", "t")
            assert ignored == {kind for event, kind in ROWS.items() if listed(chosen, (event,), "dml")}
            for events in STATEMENTS:
                out = found.ignores_ddl("db", "t", events, "x")
                assert bool(out) == (bool(events) and listed(chosen, events, "ddl")), (chosen, events)


def test_rules_of_one_pattern_are_one_list() -> None:
    """A `none` in the first rule ends the second one, too; patterns in another case are the same pattern."""
    first, second = EventRule.of("a", ["none dml"], []), EventRule.of("b", ["delete", "drop table"], [])
    assert one(first, second).ignored_rows("db", "t") == set()
    assert one(second, first).ignored_rows("db", "t") == {DELETE}
    apart = EventFilter([(Source.of("db", "t"), first), (Source.of("d*", "t"), second)])
    assert apart.ignored_rows("db", "t") == {DELETE}
    cased = EventFilter([(Source.of("DB", "t"), first), (Source.of("db", "T"), second)])
    assert cased.ignored_rows("db", "t") == set()
    assert one(second, first).ignores_ddl("db", "t", ("drop table",), "") == "b, a"


def test_sql_patterns_are_joined_unanchored_and_in_any_case() -> None:
    found = one(EventRule.of("a", [], ["^drop", "add column aaa int"]), EventRule.of("b", [], ["z$"]))
    for query in ("DROP TABLE x", "alter table t ADD COLUMN aaa INT", "Z"):
        assert found.ignores_ddl("db", "t", (), query)
    assert not found.ignores_ddl("db", "t", ("alter table",), "ALTER TABLE t ADD COLUMN b INT")
    assert found.ignored_rows("db", "t") == set(), "they are not about rows"
    assert [found.may_ignore_ddl("db", table) for table in ("t", "other")] == [True, False]


@pytest.mark.parametrize(
    ("events", "may"), [("alter table", True), ("all ddl", True), ("drop table", False), ("delete", False)]
)
def test_which_rules_may_keep_a_column_away(events: str, may: bool) -> None:
    assert one(EventRule.of("a", [events], [])).may_ignore_ddl("db", "t") is may


def test_documented_example_of_events() -> None:
    """Rule 1 keeps rows of truncated tables, rule 2 takes out one statement, rule 3 deletes."""
    found = EventFilter(
        [
            (Source.of("filter_?", "a*"), EventRule.of("truncates", ["truncate table"], [])),
            (Source.of("filter_?", "a*"), EventRule.of("sql", [], ["alter table .* add column aaa int"])),
            (Source.of("filter_?", "b*"), EventRule.of("deletes", ["delete"], [])),
        ]
    )
    assert found.ignores_ddl("filter_1", "a1", ("truncate table",), "TRUNCATE TABLE a1")
    assert found.ignores_ddl("filter_1", "a1", ("alter table",), "ALTER TABLE a1 ADD COLUMN aaa INT")
    assert not found.ignores_ddl("filter_1", "b1", ("truncate table",), "TRUNCATE TABLE b1")
    assert found.ignored_rows("filter_1", "b1") == {DELETE}
    assert found.ignored_rows("filter_1", "c1") == set()


def test_aliases_and_case_of_event_names() -> None:
    rule = EventRule.of("r", ["Create Schema", "DROP SCHEMA", "alter schema", "add index"], [])
    assert rule.events == ("create database", "drop database", "alter database", "create index")
    assert EventRule.of("r", EVENTS, []).events


def test_a_database_is_asked_for_without_a_table() -> None:
    rule = EventRule.of("r", ["drop database"], [])
    for table, out in (("", "r"), ("*", "r"), ("t*", "")):
        found = EventFilter([(Source.of("db", table), rule)])
        assert found.ignores_ddl("db", "", ("drop database",), "DROP DATABASE db") == out


@pytest.mark.parametrize(
    ("events", "sql", "words"),
    [
        (["delte"], [], ("no-deletes", "delte", "delete")),
        (["reindex everything"], [], ("no-deletes", "reindex everything")),
        ([], ["alter("], ("no-deletes", "ignore-sql", "alter(")),
    ],
)
def test_errors_name_rule_and_entry(events: list[str], sql: list[str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as raised:
        EventRule.of("no-deletes", events, sql)
    assert all(word in str(raised.value) for word in words)
    assert raised.value.hint


def test_expressions_that_only_break_when_joined_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"`binlog-filter-rule` a, b"):
        one(EventRule.of("a", [], ["x"]), EventRule.of("b", [], ["(?s)y"]))
