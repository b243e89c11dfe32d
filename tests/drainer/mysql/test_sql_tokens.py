"""DDL text: tokens and the names of events."""

from __future__ import annotations

import pytest

from drainer.mysql.sql_tokens import RenamePair, events_of, rename_pairs, tables_read, tokens, unquote
from tests.cases import case


def test_events() -> None:
    for query, events in [
        ("CREATE DATABASE `a`", ("create database",)),
        ("create schema if not exists a", ("create database",)),
        ("DROP SCHEMA a", ("drop database",)),
        ("ALTER DATABASE a CHARSET utf8mb4", ("alter database",)),
        ("CREATE TABLE `index` (`view` INT)", ("create table",)),
        ("CREATE /*T! GLOBAL */ TEMPORARY TABLE t (a INT)", ("create table",)),
        ("DROP TABLE IF EXISTS a, b", ("drop table",)),
        ("DROP TABLES a", ("drop table",)),
        ("TRUNCATE t", ("truncate table",)),
        ("TRUNCATE TABLE t", ("truncate table",)),
        ("RENAME TABLE a TO b", ("rename table",)),
        ("RENAME USER a TO b", ()),
        ("CREATE UNIQUE INDEX i ON t (a)", ("create index",)),
        ("CREATE INDEX `table` ON t (a)", ("create index",)),
        ("DROP INDEX i ON t", ("drop index",)),
        (
            "CREATE OR REPLACE ALGORITHM=UNDEFINED DEFINER=`root`@`%`"
            " SQL SECURITY DEFINER VIEW v AS SELECT 1",
            ("create view",),
        ),
        ("DROP VIEW v", ("drop view",)),
        ("ALTER TABLE t ADD COLUMN c INT", ("alter table",)),
        ("ALTER TABLE t ADD INDEX (c)", ("alter table",)),
        ("ALTER TABLE t RENAME TO u", ("alter table",)),
        ("ALTER TABLE t ADD PARTITION (PARTITION p VALUES IN (3))", ("add table partition", "alter table")),
        ("alter table t drop partition p1", ("drop table partition", "alter table")),
        ("ALTER TABLE t TRUNCATE PARTITION p1", ("truncate table partition", "alter table")),
        ("ALTER TABLE t COMMENT 'drop partition'", ("alter table",)),
        ("ALTER TABLE `drop partition` ADD c INT", ("alter table",)),
        ("-- CREATE TABLE\n/* DROP */ ALTER TABLE t ADD c INT # x", ("alter table",)),
        ("/*!40101 CREATE */ TABLE t (a INT)", ("create table",)),
        ("CREATE SEQUENCE s", ()),
        ("CREATE PLACEMENT POLICY p FOLLOWERS=1", ()),
        ("ALTER SEQUENCE s", ()),
        ("FLASHBACK TABLE t", ()),
        ("RECOVER TABLE t", ()),
        ("SELECT 1", ()),
        ("CREATE", ()),
    ]:
        with case(query, events):
            assert events_of(query, 12) == events


@pytest.mark.parametrize(
    ("action", "events"),
    [(60, ("create table",)), (3, ("create table",)), (1, ("create database",)), (5, ()), (999, ())],
)
def test_without_a_statement_the_job_says_it(action: int, events: tuple[str, ...]) -> None:
    for query in ("", "  ", "/* restored */"):
        assert events_of(query, action) == events


def test_quoted_names_and_strings_are_one_token() -> None:
    found = tokens("""a`b``c`."d""e" 'it''s \\' -- x', /* y */ #z""")
    assert found == ["a", "`b``c`", ".", '"d""e"', "'it''s \\' -- x'", ","]
    assert [unquote(token) for token in found[1:4:2]] == ["b`c", 'd"e']


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE VIEW v AS SELECT t, `a.t` FROM u", {"d.u"}),
        ("CREATE VIEW v AS SELECT 't' FROM e.T WHERE x = 't'", {"e.t"}),
        ("create or replace algorithm=merge view v as select * from `t`, (e.u) join e . x on t.a=x.a",
         {"d.t", "e.u", "e.x", "t.a", "x.a"}),
        ("CREATE VIEW v AS SELECT (SELECT t FROM u WHERE y) FROM x UNION SELECT z FROM (SELECT q FROM r) s",
         {"d.u", "d.x", "d.r", "d.s"}),
        ("CREATE VIEW v AS TABLE t", {"d.t"}),
        ("CREATE VIEW v AS SELECT a FROM u WHERE t LIKE t ORDER BY t", {"d.u"}),
        ("CREATE VIEW v (t) AS SELECT a FROM e.u", {"e.u"}),
        ("CREATE TABLE a LIKE t", {"d.t"}),
        ("CREATE TABLE a (LIKE `e`.`t`)", {"e.t"}),
        ("CREATE TABLE a (t INT, CHECK (t > 'LIKE'))", set()),
        ("ALTER TABLE t ADD c INT", set()),
        ("", set()),
    ],
)  # fmt: skip
def test_tables_that_a_statement_reads(query: str, expected: set[str]) -> None:
    found = {".".join(name) for name in tables_read(query, "D")} - {"d.on", "d.join", "d.as"}
    assert found == expected


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("RENAME TABLE a TO b", [("", "a", "", "b")]),
        ("rename table `d`.`a` to `e`.`b`;", [("d", "a", "e", "b")]),
        (
            "RENAME TABLE a TO tmp, d.b TO a, tmp TO d.b",
            [("", "a", "", "tmp"), ("d", "b", "", "a"), ("", "tmp", "d", "b")],
        ),
        (
            "RENAME TABLE `a``b` TO `to`, `x.y` TO `RENAME`",
            [("", "a`b", "", "to"), ("", "x.y", "", "RENAME")],
        ),
        ("ALTER TABLE d.a RENAME TO b", [("d", "a", "", "b")]),
        ("ALTER TABLE a RENAME AS e . b", [("", "a", "e", "b")]),
        ("ALTER TABLE `rename` RENAME = b", [("", "rename", "", "b")]),
        ("ALTER TABLE a RENAME b", [("", "a", "", "b")]),
        ("/* c */ RENAME /* x TO y */ TABLE a -- TO z\n TO b", [("", "a", "", "b")]),
        ("/*!40101 RENAME TABLE a TO b */", [("", "a", "", "b")]),
        ('RENAME TABLE "a" TO "d"."b"', [("", "a", "d", "b")]),
        ("RENAME TABLE таблица TO 表", [("", "таблица", "", "表")]),
        ("CREATE TABLE a (b INT)", []),
        ("RENAME TABLE a", []),
        ("RENAME TABLE a TO", []),
        ("RENAME", []),
        ("", []),
    ],
)
def test_names_in_a_rename(query: str, pairs: list[tuple[str, str, str, str]]) -> None:
    assert rename_pairs(query) == tuple(RenamePair(*pair) for pair in pairs)
