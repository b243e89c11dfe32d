"""DDL screen: verdicts on statements of which only the text is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drainer.changes.statement_effect import pb_ddl
from drainer.reparo.ddl_screen import NotRoutable, routed_text, screened
from drainer.reparo.options import ReparoConfig
from drainer.txn import Ddl

SHARDS = ({"source": {"schema": "d", "table": "t*"}, "target": {"schema": "d", "table": "all"}},)


def verdict(text: str, known: Sequence[tuple[str, str]] = (), **rules: Any) -> Ddl:
    return screened(pb_ddl(9, text.encode()), ReparoConfig(**rules).rules, known)


def test_without_rules_the_text_runs_as_it_is() -> None:
    ddl = verdict("use `d`; ALTER TABLE t ADD COLUMN a INT;;")
    assert (ddl.skip, ddl.refused, ddl.instead, ddl.query) == ("", "", (), "ALTER TABLE t ADD COLUMN a INT")


def test_filtered_statements_are_left_out_with_the_reason() -> None:
    assert verdict("use `d`; TRUNCATE t", replicate_ignore_db=("d",)).skip == "filtered"
    assert verdict("use `mysql`; TRUNCATE t").skip == "system schema"
    assert verdict("use `d`; TRUNCATE t", sync_ddl=False).skip == "sync-ddl is false"


def test_a_drop_of_several_tables_drops_those_that_are_wanted_and_still_there() -> None:
    """Each of its jobs has the whole text."""
    ddl = verdict("use `d`; DROP TABLE a, b, c")
    assert ddl.instead == tuple(f"DROP TABLE IF EXISTS `d`.`{name}`" for name in "abc")
    ignored = ({"db-name": "d", "tbl-name": "b"},)
    ddl = verdict("use `d`; DROP TABLE a, b", replicate_ignore_table=ignored)
    assert (ddl.tables, ddl.instead) == ((("d", "a"),), ("DROP TABLE IF EXISTS `d`.`a`",))


def test_a_database_that_goes_takes_only_what_is_wanted_of_it() -> None:
    wanted = ({"db-name": "d", "tbl-name": "a"},)
    ddl = verdict("DROP DATABASE d;", [("d", "a"), ("d", "b")], replicate_do_table=wanted)
    assert ddl.instead == ("DROP TABLE IF EXISTS `d`.`a`",)


def test_a_rename_from_what_was_left_out_is_refused() -> None:
    ddl = verdict("use `d`; RENAME TABLE a TO b", replicate_do_table=({"db-name": "d", "tbl-name": "b"},))
    assert "did not replicate under this name" in ddl.refused


def test_what_would_take_rows_of_other_shards_is_refused() -> None:
    ddl = verdict("use `d`; DROP TABLE t1", [("d", "t1"), ("d", "t2")], table_migrate_rule=SHARDS)
    assert "d.t2 replicate into d.all too" in ddl.refused


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("DROP COLUMN c", True),
        ("MODIFY c INT", True),
        ("ADD UNIQUE KEY (c)", True),
        ("ADD c INT NOT NULL", True),
        ("truncate partition p", True),
        ("ADD c INT, ADD KEY (c)", False),
        ("COMMENT 'drop it'", False),
    ],
)
def test_what_may_leave_no_room_for_rows_of_other_shards_is_refused(text: str, waits: bool) -> None:
    for known, refused in ((["t1"], False), (["t1", "t2"], waits)):
        names = [("d", name) for name in known]
        ddl = verdict(f"use `d`; ALTER TABLE t1 {text}", names, table_migrate_rule=SHARDS)
        assert bool(ddl.refused) is refused


def test_routed_statements_have_the_names_downstream() -> None:
    ddl = verdict("use `d`; ALTER TABLE t1 ADD COLUMN a INT", table_migrate_rule=SHARDS)
    assert ddl.instead == ("ALTER TABLE `d`.`all` ADD COLUMN a INT",)
    assert ddl.targets == (("d", "all"),)


def test_a_statement_that_cannot_be_routed_is_refused_and_runs_without_routes() -> None:
    text = "use `d`; CREATE VIEW t AS SELECT 1"
    assert "cannot be said with the names" in verdict(text, table_migrate_rule=SHARDS).refused
    assert not verdict(text).refused
    assert "cannot be read from it" in verdict("FLUSH x", table_migrate_rule=SHARDS).refused


# -- routed text ----------------------------------------------------------------------------------------


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
