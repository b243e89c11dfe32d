"""Routed text: names are replaced, nothing else."""

from __future__ import annotations

import pytest

from drainer.reparo.ddl_screen import NotRoutable, routed_text


def route(schema: str, table: str) -> tuple[str, str]:
    """Everything of `a` goes to `b`, its table `t` to `u`."""
    if schema != "a":
        return schema, table
    return "b", "u" if table == "t" else table


CASES = [
    ("CREATE TABLE t (a INT, t INT) COMMENT 't'", "CREATE TABLE `b`.`u` (a INT, t INT) COMMENT 't'"),
    ("create table if not exists `a`.`t` like c.d", "create table if not exists `b`.`u` like `c`.`d`"),
    ("CREATE TABLE x (LIKE t)", "CREATE TABLE `b`.`x` (LIKE `b`.`u`)"),
    ("/* t */ DROP TABLE IF EXISTS t, x /* t */", "/* t */ DROP TABLE IF EXISTS `b`.`u`, `b`.`x` /* t */"),
    ("ALTER TABLE a . t ADD COLUMN t INT", "ALTER TABLE `b`.`u` ADD COLUMN t INT"),
    ("ALTER TABLE t RENAME COLUMN a TO t", "ALTER TABLE `b`.`u` RENAME COLUMN a TO t"),
    ("ALTER TABLE t RENAME TO x", "ALTER TABLE `b`.`u` RENAME TO `b`.`x`"),
    (
        "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES t (a)",
        "ALTER TABLE `b`.`u` ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES `b`.`u` (a)",
    ),
    (
        "ALTER TABLE x EXCHANGE PARTITION p WITH TABLE t",
        "ALTER TABLE `b`.`x` EXCHANGE PARTITION p WITH TABLE `b`.`u`",
    ),
    ("CREATE UNIQUE INDEX t ON t (t)", "CREATE UNIQUE INDEX t ON `b`.`u` (t)"),
    ("DROP INDEX t ON t", "DROP INDEX t ON `b`.`u`"),
    ("TRUNCATE t", "TRUNCATE `b`.`u`"),
    ("TRUNCATE TABLE a.t", "TRUNCATE TABLE `b`.`u`"),
    ("RENAME TABLE t TO x, x TO a.y", "RENAME TABLE `b`.`u` TO `b`.`x`, `b`.`x` TO `b`.`y`"),
    ("CREATE DATABASE `a` CHARACTER SET utf8", "CREATE DATABASE `b` CHARACTER SET utf8"),
    ("DROP SCHEMA IF EXISTS a", "DROP SCHEMA IF EXISTS `b`"),
]


@pytest.mark.parametrize(("query", "wanted"), CASES)
def test_names_are_replaced(query: str, wanted: str) -> None:
    assert routed_text(query, "a", route) == wanted


@pytest.mark.parametrize(
    "query",
    [
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE TABLE x AS SELECT * FROM t",
        "ANALYZE TABLE t",
        "DROP TABLE",
        "",
    ],
)
def test_what_cannot_be_said_with_other_names_is_refused(query: str) -> None:
    with pytest.raises(NotRoutable):
        routed_text(query, "a", route)
