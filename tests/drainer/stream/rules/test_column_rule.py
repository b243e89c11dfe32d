"""Column rules: selection, exclusion, keys, contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.stream.rules.table_rules import ColumnRule, ColumnRules
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
