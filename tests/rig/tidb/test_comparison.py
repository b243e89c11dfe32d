"""Comparison of two servers' tables: what counts as the same, and what does not."""

from __future__ import annotations

import pytest

from binlog_playground.check.verify import ColumnForm, ExpectedTable
from binlog_playground.cluster.mariadb import MariaDbServer
from tests.rig.tidb.comparison import compared, meaning

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
