"""Event filter: lists of events against a naive reading, and the documented example."""

from __future__ import annotations

import itertools

import pytest

from drainer.stream.rules.name_pattern import Source
from drainer.stream.rules.table_rules import EVENTS, EventFilter, EventRule
from drainer.txn import DELETE, INSERT, UPDATE
from tidb_binlog.errors import ConfigError

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


def test_documented_example() -> None:
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
