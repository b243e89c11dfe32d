"""Every way in which two tables can differ is found and named; equal ones are counted."""

from __future__ import annotations

import pytest

from binlog_playground.check.verify import (
    ActualTable,
    ColumnForm,
    ExpectedTable,
    Limit,
    Raw,
    Row,
    canonical,
    compare,
    show,
)
from tests.rig.workload.limits import MARIADB, as_stored
from tidb_binlog.errors import Corruption

COLUMNS = (ColumnForm("id", "int"), ColumnForm("v", "text"))


def table(rows: list[Row], key: tuple[str, ...] = ("id",)) -> ExpectedTable:
    return ExpectedTable("db", "t", COLUMNS, key, rows)


def found(rows: list[Row], columns: tuple[str, ...] = ("id", "v")) -> dict[tuple[str, str], ActualTable]:
    return {("db", "t"): ActualTable(columns, rows)}


def test_equal_tables_in_any_order() -> None:
    report = compare([table([("1", "a"), ("2", None)])], found([("2", None), ("1", "a")]))
    assert report.equal
    assert (report.tables, report.rows_identical) == (1, 2)


def test_a_changed_row_names_table_key_column_and_both_rows() -> None:
    report = compare([table([("1", "a"), ("2", "b")])], found([("1", "a"), ("2", "x")]))
    (difference,) = report.differences
    assert (difference.table, difference.key) == ("db.t", "(2)")
    assert (difference.expected, difference.actual) == (("2", "b"), ("2", "x"))
    assert "row differs in v" in str(difference)
    assert "upstream:   (2, b)" in str(difference)
    assert "downstream: (2, x)" in str(difference)
    assert report.rows_identical == 1


def test_missing_and_surplus_rows() -> None:
    report = compare([table([("1", "a")])], found([("2", "a")]))
    assert [d.what for d in report.differences] == ["row is missing downstream", "row exists downstream only"]
    assert "no such row" in str(report.differences[0])


def test_without_a_key_rows_are_a_multiset() -> None:
    assert compare([table([("1", "a"), ("1", "a")], ())], found([("1", "a"), ("1", "a")])).equal
    report = compare([table([("1", "a"), ("1", "a")], ())], found([("1", "a")]))
    assert [d.what for d in report.differences] == ["row is missing downstream"]
    report = compare([table([("1", "a")], ())], found([("1", "a"), ("1", "a")]))
    assert [d.what for d in report.differences] == ["row exists downstream only"]


def test_a_key_that_is_there_twice_downstream_is_found() -> None:
    report = compare([table([("1", "a")])], found([("1", "a"), ("1", "b")]))
    assert [d.what for d in report.differences] == ["row exists downstream only"]


def test_null_is_not_the_empty_text() -> None:
    assert not compare([table([("1", None)])], found([("1", "")])).equal


def test_tables_and_columns_on_one_side_only() -> None:
    assert compare([table([])], {}).differences[0].what == "table is missing downstream"
    report = compare([], found([]))
    assert report.differences[0].what == "table exists downstream only"
    report = compare([table([])], found([], ("id", "w")))
    assert "columns are ['id', 'w'], must be ['id', 'v']" in report.differences[0].what


def test_limits_are_counted_and_never_hide_another_column() -> None:
    limit = Limit("no b", "because", lambda column, expected, actual: expected == "b")
    report = compare([table([("1", "b"), ("2", "c")])], found([("1", "?"), ("2", "?")]), [limit])
    assert report.limited == {"no b": 1}
    assert [d.key for d in report.differences] == ["(2)"]
    assert report.rows_identical == 0
    wide = ExpectedTable("db", "t", (*COLUMNS, ColumnForm("w", "text")), ("id",), [("1", "b", "x")])
    report = compare([wide], found([("1", "?", "y")], ("id", "v", "w")), [limit])
    assert not report.limited
    assert len(report.differences) == 1


@pytest.mark.parametrize(
    ("text", "form", "shown"),
    [
        (None, "int", None),
        ("007", "int", "7"),
        ("-3", "int", "-3"),
        ("18446744073709551615", "uint", "18446744073709551615"),
        ("000000001.500", "dec", "1.500"),
        ("-0.000001", "dec", "-0.000001"),
        ("00000", "dec", "0"),
        ("1.100000023841858", "double", "1.100000023841858"),
        ("1e300", "double", "1e+300"),
        ("-0", "double", "-0.0"),
        ("00FF", "hex", "00ff"),
        (b"\xc3\xa9", "text", "é"),
        (b"\xff", "text", Raw("ff")),
        ("", "text", ""),
    ],
)
def test_canonical_forms(text: str | bytes | None, form: str, shown: str | None) -> None:
    assert canonical(text, form) == shown


def test_a_value_that_is_no_number_is_an_error() -> None:
    with pytest.raises(Corruption, match="cannot be shown as int"):
        canonical("abc", "int")


def test_show() -> None:
    assert show(("1", None, Raw("ff"))) == "(1, NULL, x'ff')"
    assert show(None) == "no such row"


def test_the_documented_limit_is_about_characters_the_charset_lacks() -> None:
    (limit,) = [one for one in MARIADB if one.name == "text outside the character set"]
    assert limit.reason
    latin1 = ColumnForm("c", "text", "varchar(10)", "latin1")
    assert limit.explains(latin1, "日本", "??")
    assert limit.explains(latin1, "日本", "æ—¥æœ¬")
    assert limit.explains(latin1, Raw("ff"), "ÿ")
    assert not limit.explains(latin1, "日本", "日")
    assert not limit.explains(latin1, Raw("ff"), "?")
    assert not limit.explains(latin1, "é", "?")
    assert not limit.explains(ColumnForm("c", "text", "varchar(10)", "utf8mb4"), "日本", "??")


def test_a_text_outside_the_charset_is_stored_as_its_bytes_where_they_are_legal_and_fit() -> None:
    def stored(kind: str, charset: str, text: str) -> object:
        return as_stored(ColumnForm("c", "text", kind, charset), text)

    assert stored("varchar(6)", "latin1", "日本") == "æ—¥æœ¬"
    assert stored("varchar(5)", "latin1", "日本") == "??"
    assert stored("text", "latin1", "日本") == "æ—¥æœ¬"
    assert stored("tinytext", "latin1", "日" * 86) == "?" * 86
    assert stored("tinytext", "ascii", "谩a") == "?a"
    assert stored("varchar(9)", "latin1", "é") == "é"
    assert stored("varchar(9)", "utf8mb4", "日") == "日"
    assert stored("varchar(9)", "utf8", "日😀") == "日?"


def test_rows_whose_key_the_charset_lacks_find_each_other() -> None:
    columns = (ColumnForm("k", "text", "varchar(10)", "latin1"), ColumnForm("v", "int", "int"))
    expected = [ExpectedTable("d", "t", columns, ("k",), [("日本", "1"), ("é", "2")])]
    report = compare(expected, {("d", "t"): ActualTable(("k", "v"), [("æ—¥æœ¬", "1"), ("é", "2")])}, MARIADB)
    assert report.equal
    assert report.limited == {"text outside the character set": 1}
    other = compare(expected, {("d", "t"): ActualTable(("k", "v"), [("æ—¥æœ¬", "7"), ("é", "2")])}, MARIADB)
    assert not other.equal


def test_the_documented_limit_of_negative_zero() -> None:
    (limit,) = [one for one in MARIADB if one.name == "negative zero"]
    assert limit.explains(ColumnForm("c", "double"), "-0.0", "0.0")
    assert not limit.explains(ColumnForm("c", "double"), "0.0", "-0.0")
    assert not limit.explains(ColumnForm("c", "text"), "-0.0", "0.0")
