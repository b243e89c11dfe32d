"""Comparison of two servers' tables: what counts as the same, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binlog_playground.check.verify import ColumnForm, Difference, ExpectedTable, Report
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.rig.tidb.binlogs import Overwritten
from tests.rig.tidb.comparison import UNREAL, Tables, compared, leave_out_unreal, meaning, prove

pytestmark = pytest.mark.integration


def test_documents_and_chars_are_compared_by_their_meaning() -> None:
    forms = (
        ColumnForm("d", "text", "json"),
        ColumnForm("c", "text", "char(5)"),
        ColumnForm("v", "text", "varchar(5)"),
    )
    table = ExpectedTable("a", "t", forms, (), ())
    one = meaning(table, [('{"b": 1, "a": [1.0]}', "x  ", "x ")])
    assert one == meaning(table, [('{"a":[1],"b":1}', "x", "x ")])
    assert one != meaning(table, [('{"a":[1],"b":1}', "x", "x")])
    assert one != meaning(table, [('{"a":[1],"b":"1"}', "x", "x ")])


def test_a_column_that_its_server_cannot_compute_is_told(
    mariadb: MariaDbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = mariadb.connect()
    connection.run(b"CREATE DATABASE a")
    try:
        connection.run(b"CREATE TABLE a.t (id INT, g INT AS (id * 2))")
        tables = Tables(connection)
        assert tables.computes(("a", "t"), "g")
        assert not tables.computes(("a", "t"), "h")  # which is not even there
        assert "h cannot be read" in capsys.readouterr().out
    finally:
        connection.run(b"DROP DATABASE a")
        connection.close()


def test_rows_of_each_form_are_found_without_a_key(mariadb: MariaDbServer) -> None:
    one, other = mariadb.connect(), mariadb.connect()
    try:
        one.run(b"CREATE DATABASE a")
        one.run(
            b"CREATE TABLE a.t (id INT, j JSON, b VARBINARY(9), f FLOAT, t TIMESTAMP NULL, y YEAR, z BIT(9))"
        )
        one.run(
            b"INSERT INTO a.t VALUES (1, '[1]', x'00ff', 0.1, '2020-01-01 00:00:00', 2020, 257),"
            b" (1, NULL, '', 1, NULL, 0, 0)"
        )
        report = compared(one, other, ())
        assert (report.tables, report.rows_identical, report.differences) == (1, 2, [])
        assert compared(one, other, {"a.t"}).tables == 0
    finally:
        one.run(b"DROP DATABASE a")
        one.close()
        other.close()


def test_a_date_that_does_not_exist_is_looked_for_where_it_is_not(mariadb: MariaDbServer) -> None:
    connection = mariadb.connect()
    connection.run(b"SET sql_mode = 'ALLOW_INVALID_DATES'")
    connection.run(b"CREATE DATABASE a")
    try:
        halves = b"PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN MAXVALUE"
        connection.run(b"CREATE TABLE a.t (d DATE) PARTITION BY RANGE (TO_DAYS(d)) (" + halves + b")")
        connection.run(b"INSERT INTO a.t VALUES ('2023-02-31'), ('2023-02-28')")
        days = ("2023-02-31", "2023-02-28")
        assert [connection.run(f"DELETE FROM a.t WHERE d = '{day}'".encode()) for day in days] == [0, 1]
    finally:
        connection.run(b"DROP DATABASE a")
        connection.close()
    others = [Difference("a.t", "", actual=(days[1],)), Difference("a.u", "", actual=(days[0],))]
    report = Report(differences=[Difference("a.t", "", actual=(days[0],)), *others])
    leave_out_unreal(report, {"a.t"})
    assert (report.differences, report.limited) == (others, {UNREAL: 1})


def test_what_an_upstream_contradicts_itself_about_is_shown_and_no_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a key two inserts with one rowid, as many as rows; with one two rows, of two partitions."""
    forms = ColumnForm("id", "int", "int"), ColumnForm("v", "int", "int")
    table = ExpectedTable("a", "t", forms, (), [("1", "1")])
    once = Overwritten(7, 11, 21)
    for told, left in (([], 1), ([once], 0), ([once, once], 1)):
        report = Report(differences=[Difference("a.t", "row exists downstream only", actual=("2", "2"))])
        prove(report, table, lambda name, told=told: told)
        assert len(report.differences) == left, told
    assert f"a.t: TiDB put a row in the place of another one: {once}" in capsys.readouterr().out
    keyed = replace(table, key=("id",), rows=[("1", "1"), ("2", "5"), ("2", "6")])
    missing = Difference("a.t", "row is missing downstream", "2", expected=("2", "5"))
    others = [Difference("a.t", "row differs", "1", expected=("1", "1")), Difference("a.u", "", "2", ("2",))]
    report = Report(differences=[missing, *others])
    prove(report, keyed, lambda name: ())
    assert report.differences == others
    assert "[('2', '5'), ('2', '6')]" in capsys.readouterr().out
