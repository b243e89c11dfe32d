"""Table filter: allow step, block step, patterns, case, bad entries."""

from __future__ import annotations

import pytest

from drainer.stream.rules.table_rules import TableFilter
from tidb_binlog.errors import ConfigError


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
