"""DDL derive: whatever definition is wanted, the statements reach it: columns, keys, order, contents."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.ddl.derive import definition as ddl_definition
from drainer.ddl.derive.compare import Present, PresentColumn, PresentKey, differences
from drainer.ddl.derive.derive import Change, derive, lacking, names
from drainer.ddl.derive.render import NotDerivable, Server, expression
from drainer.ddl.derive.values import Derived
from drainer.ddl.run import downstream_schema as ddl_present
from drainer.ddl.run.downstream_schema import server_of
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import Tracked
from tests.drainer.support.table_maker import Maker, kind, name
from tidb_binlog import table_info as ti
from tidb_binlog.ddl_job import ActionType

MARIADB = Server(Dialect.MARIADB, invisible="IGNORED")
MYSQL = Server(Dialect.MYSQL, invisible="INVISIBLE", functional_keys=True)
TIDB = Server(Dialect.TIDB, invisible="INVISIBLE", functional_keys=True)
HERE = ("d", "t")


def tracked(document: dict[str, Any], called: str = "t") -> Tracked:
    return Tracked("d", called, {**document, "name": name(called)})


def statements(derived: Derived) -> list[str]:
    return [text for one in derived.steps for text in one.statements]


def simple(*columns: int, table_id: int = 1, called: str = "t", **more: Any) -> Tracked:
    """A table of INT columns c1, c2 ... in a given order; the number is the id."""
    cols = [
        {"id": number, "name": name(f"c{number}"), "offset": at, "type": kind(3), "state": 5}
        for at, number in enumerate(columns)
    ]
    return tracked({"id": table_id, "cols": cols, "index_info": None, **more}, called)


def present(*columns: int, **more: Any) -> Present:
    return Present(columns=tuple(PresentColumn(f"c{number}", "int(11)") for number in columns), **more)


# -- the order of columns, exhaustively --------------------------------------------------------------------

_CLAUSE = re.compile(
    r"(ADD|CHANGE|DROP) COLUMN `(\w+)`(?: `(\w+)`)?[^,]*?(?: (FIRST)| AFTER `(\w+)`)?(?:, |$)"
)


def executed(order: list[str], statement: str) -> list[str]:
    """What MariaDB's manual says of ALTER TABLE, by hand: drops, then the rest from left to right."""
    order = list(order)
    clauses = _CLAUSE.findall(statement.partition("`t` ")[2])
    for verb, column, _, _, _ in clauses:
        if verb == "DROP":
            order.remove(column)
    for verb, column, _, first, after in clauses:
        if verb == "DROP" or (verb == "CHANGE" and not first and not after):
            continue
        if verb == "CHANGE":
            order.remove(column)
        order.insert(0 if first else order.index(after) + 1 if after else len(order), column)
    return order


def test_every_order_of_every_choice_of_columns_is_reached() -> None:
    """From three columns to every ordered choice of five, two of them new; also with one of another owner."""
    before = (1, 2, 3)
    for size in range(1, 6):
        for after in itertools.permutations((1, 2, 3, 4, 5), size):
            for extra in ((), (9,)):
                change = Change(
                    action=ActionType.MULTI_SCHEMA_CHANGE,
                    before=(simple(*before),),
                    after=(simple(*after),),
                    present={HERE: present(1, *extra, 2, 3)},
                )
                made = [f"c{number}" for number in (1, *extra, 2, 3)]
                for text in statements(derive(change)):
                    made = executed(made, text)
                ours = [column for column in made if column != "c9"]
                assert ours == [f"c{number}" for number in after], (after, extra, statements(derive(change)))
                assert ("c9" in made) == bool(extra), "a column that the upstream does not have stays"


def test_nothing_is_done_where_everything_is_as_wanted() -> None:
    change = Change(17, before=(simple(1, 2),), after=(simple(1, 2),), present={HERE: present(1, 2)})
    assert derive(change) == Derived()


def test_only_what_the_ddl_changed_is_touched() -> None:
    """The downstream has another type, no column c2 and one of its own: all on purpose."""
    there = Present(columns=(PresentColumn("c1", "bigint(20)"), PresentColumn("own", "int(11)")))
    change = Change(5, before=(simple(1, 2),), after=(simple(1, 2, 3),), present={HERE: there})
    assert statements(derive(change)) == ["ALTER TABLE `d`.`t` ADD COLUMN `c3` int NULL AFTER `c1`"]


@pytest.mark.parametrize(
    ("origin", "texts"),
    [
        ("0000", ["ADD COLUMN `c2` year NOT NULL"]),
        ("0", ["ADD COLUMN `c2` year NOT NULL DEFAULT '2000'", "CHANGE COLUMN `c2` `c2` year NOT NULL"]),
    ],
)
def test_a_year_that_older_rows_have_is_the_one_that_tidb_reads(origin: str, texts: list[str]) -> None:
    """TiDB notes 0 for what is added NOT NULL without a default, and reads it as 2000."""
    after = simple(1, 2)
    after.document["cols"][1] |= {"type": kind(ti.YEAR, 4, Flag=1), "origin_default": origin}
    change = Change(5, before=(simple(1),), after=(after,), present={HERE: present(1)}, server=MARIADB)
    assert statements(derive(change)) == [f"ALTER TABLE `d`.`t` {text}" for text in texts]


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (kind(3, 5, Flag=32 | 64), "int(5) unsigned"),
        (kind(0xF6, 3, 3, Flag=32 | 64), "decimal(3,3) unsigned"),
        (kind(5, 20, 0), "double"),
        (kind(4, 9, 0, Flag=32), "float unsigned"),
        (kind(5, 20, 2), "double(20,2)"),
    ],
)
def test_a_tidb_shows_a_type_without_all_that_it_has(type_: dict[str, Any], shown: str) -> None:
    document = simple(1).document
    document["cols"][0] |= {"type": type_}
    wanted = ddl_definition.read(tracked(document).document)
    assert differences(wanted, Present(columns=(PresentColumn("c1", shown),)), TIDB) == []
    other = Present(columns=(PresentColumn("c1", shown.replace("double", "float")),))
    assert bool(differences(wanted, other, TIDB)) is shown.startswith("double")


def test_a_default_year_is_the_one_that_tidb_reads() -> None:
    document = simple(1).document
    document["cols"][0] |= {"type": kind(ti.YEAR, 4), "default": "70"}
    made = tracked(document)
    (column,) = ddl_definition.read(made.document).columns
    assert column.default == ddl_definition.Default("1970")
    here = Present(columns=(PresentColumn("c1", "year(4)", default="1970"),))
    assert differences(ddl_definition.read(made.document), here, MARIADB) == []


@pytest.mark.parametrize(
    ("upstream", "server", "shown", "same"),
    [
        (None, MARIADB, "NULL", True),
        (None, MYSQL, None, True),
        (None, MYSQL, "NULL", False),  # a text
        ("NULL", MYSQL, "NULL", True),
        ("NULL", MARIADB, "NULL", False),
        ("NULL", MARIADB, "'NULL'", True),
        ("x", MARIADB, "'x'", True),
        ("'x'", MYSQL, "'x'", True),
        ("x", MYSQL, "'x'", False),
        ("x", TIDB, None, False),
    ],
)
def test_a_default_is_a_literal_or_a_value(
    upstream: str | None, server: Server, shown: str | None, same: bool
) -> None:
    document = simple(1).document
    document["cols"][0] |= {
        "type": kind(ti.VARCHAR, 9, Charset="utf8mb4", Collate="utf8mb4_bin"),
        "default": upstream,
    }
    here = Present(columns=(PresentColumn("c1", "varchar(9)", True, "utf8mb4_bin", shown),))
    lines = differences(ddl_definition.read(tracked(document).document), here, server)
    assert lines == ([] if same else ["column c1 has another default"])


@pytest.mark.parametrize(("server", "shown"), [(MYSQL, "0x58"), (MYSQL, "X"), (MARIADB, "'X'"), (TIDB, "X")])
def test_mysql_8_shows_bytes_of_a_default(server: Server, shown: str) -> None:
    document = simple(1).document
    document["cols"][0] |= {
        "type": kind(ti.ENUM, 1, Elems=["x", "X"], Charset="binary", Collate="binary"),
        "default": "X",
    }
    wanted = ddl_definition.read(tracked(document).document)
    other = shown.replace("58", "78").replace("X", "x")
    for default, lines in ((shown, []), (other, ["column c1 has another default"])):
        here = Present(columns=(PresentColumn("c1", "enum('x','X')", True, "binary", default),))
        assert differences(wanted, here, server) == lines


def test_a_converted_column_is_the_same_column_under_a_new_id() -> None:
    after = simple(1, 7)
    after.document["cols"][1]["name"] = name("fresh")
    change = Change(12, before=(simple(1, 2),), after=(after,), present={HERE: present(1, 2)})
    assert statements(derive(change)) == ["ALTER TABLE `d`.`t` CHANGE COLUMN `c2` `fresh` int NULL"]


# -- tables as a whole -------------------------------------------------------------------------------------


def test_drop_takes_what_is_there_whatever_its_kind() -> None:
    change = Change(4, before=(simple(1),), present={HERE: Present(kind="view")})
    assert statements(derive(change)) == ["DROP VIEW IF EXISTS `d`.`t`"]
    assert derive(dataclasses.replace(change, present={HERE: None})) == Derived()


def test_truncate_of_a_table_that_is_not_there_makes_it() -> None:
    change = Change(11, before=(simple(1),), after=(simple(1, table_id=2),), present={HERE: None})
    assert statements(derive(change)) == ["CREATE TABLE `d`.`t` (`c1` int NULL)"]
    there = dataclasses.replace(change, present={HERE: present(1)})
    assert statements(derive(there)) == ["TRUNCATE TABLE `d`.`t`"]
    again = derive(dataclasses.replace(there, ran=True))
    assert again == derive(there), "no later row can be in the table"


def test_batch_create_is_one_statement_a_table() -> None:
    change = Change(
        ActionType.CREATE_TABLES,
        after=(simple(1), simple(1, table_id=2, called="u")),
        present={HERE: None, ("d", "u"): None},
    )
    assert [text.split(" (")[0] for text in statements(derive(change))] == [
        "CREATE TABLE `d`.`t`",
        "CREATE TABLE `d`.`u`",
    ]


def test_a_table_that_lacks_downstream_cannot_be_altered_in_silence() -> None:
    change = Change(5, before=(simple(1),), after=(simple(1, 2),), present={HERE: None})
    with pytest.raises(NotDerivable, match=r"d\.t is not there"):
        derive(change)


def renamed(pairs: dict[str, str], there: str) -> list[str]:
    """Statements for a rename of tables that are numbered by their old names; `there`: names downstream."""
    before = [simple(1, table_id=number, called=old) for number, old in enumerate(pairs)]
    after = [simple(1, table_id=number, called=new) for number, new in enumerate(pairs.values())]
    looked = {("d", one): present(1) if one in there else None for one in (*pairs, *pairs.values())}
    return statements(derive(Change(47, tuple(before), tuple(after), present=looked)))


def test_every_renaming_of_three_tables_ends_with_the_right_names() -> None:
    """Also circles and swaps: by hand, a rename needs its target to be free."""
    for targets in itertools.permutations("abcdef", 3):
        pairs = dict(zip("abc", targets, strict=True))
        held = {old: old for old in "abc"}
        for text in renamed(pairs, "abc"):
            for old, new in re.findall(r"`d`\.`(\w+)` TO `d`\.`(\w+)`", text):
                assert old in held
                assert new not in held
                held[new] = held.pop(old)
        assert held == {new: old for old, new in pairs.items()}


def test_a_rename_that_is_done_is_not_done_again_and_a_lost_table_is_named() -> None:
    assert renamed({"a": "b"}, "b") == []
    with pytest.raises(NotDerivable, match=r"d\.a is not there"):
        renamed({"a": "b"}, "")


def test_flashback_of_a_cluster_is_not_derivable() -> None:
    with pytest.raises(NotDerivable, match="binlog does not have them"):
        derive(Change(ActionType.FLASHBACK_CLUSTER))


def test_databases() -> None:
    change = Change(1, database=("d", "utf8mb4", "utf8mb4_0900_ai_ci"))
    plain = "CREATE DATABASE IF NOT EXISTS `d` CHARACTER SET utf8mb4 COLLATE "
    assert statements(derive(change)) == [plain + "utf8mb4_0900_ai_ci"]
    known = Server(collations=frozenset({"utf8mb4_bin", "utf8mb4_unicode_520_ci"}))
    assert statements(derive(dataclasses.replace(change, server=known))) == [plain + "utf8mb4_unicode_520_ci"]
    assert statements(derive(dataclasses.replace(change, action=2))) == ["DROP DATABASE IF EXISTS `d`"]


def test_a_routed_database_is_not_dropped_with_what_others_have_in_it() -> None:
    change = Change(
        2,
        before=(simple(1),),
        database=("d", "utf8mb4", "utf8mb4_bin"),
        present={("all", "t"): present(1)},
        route=lambda schema, table: ("all", table),
    )
    assert statements(derive(change)) == ["DROP TABLE IF EXISTS `all`.`t`"]


# -- what a downstream cannot have -------------------------------------------------------------------------


def with_key(**more: Any) -> Tracked:
    made = simple(1, 2)
    hidden = {**made.document["cols"][1], "hidden": True, "generated_expr_string": "lower(`c1`)", **more}
    made.document["cols"][1] = hidden
    key = {"idx_name": name("e"), "idx_cols": [{"name": name("c2"), "offset": 1, "length": -1}], "state": 5}
    made.document["index_info"] = [key]
    return made


@pytest.mark.parametrize(("server", "has"), [(MARIADB, False), (MYSQL, True), (TIDB, True)])
def test_expression_keys(server: Server, has: bool) -> None:
    change = Change(3, after=(with_key(),), present={HERE: None}, server=server)
    derived = derive(change)
    assert ("KEY `e` ((lower(`c1`)))" in statements(derived)[0]) is has
    assert derived.missing == (() if has else ("expression key e",))


def test_literals_of_expression_keys_count_as_tidb_has_them() -> None:
    key = with_key(generated_expr_string="concat(`c1`, _latin1'é')")
    derived = derive(Change(3, after=(key,), present={HERE: None}, server=MYSQL))
    assert "KEY `e` ((concat(`c1`, _utf8mb4'é')))" in statements(derived)[0]


@pytest.mark.parametrize(
    ("text", "there", "on_mysql"),
    [
        ("_utf8'é' COLLATE utf8_bin", "convert('é' using utf8)", "convert(_utf8mb4'é' using utf8)"),
        ("_latin1'é' COLLATE latin1_bin", "convert('é' using latin1)", "convert(_utf8mb4'é' using latin1)"),
        ("_latin1'日' COLLATE latin1_bin", "'日'", "_utf8mb4'日'"),
        ("_utf8mb4'é' COLLATE utf8mb4_bin", "'é'", "_utf8mb4'é'"),
    ],
)
def test_a_collation_has_a_text_of_its_character_set(text: str, there: str, on_mysql: str) -> None:
    collation = text[text.index(" COLLATE") :]
    assert expression(text, MARIADB) == there + collation
    assert expression(text, MYSQL) == on_mysql + collation


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("concat('a\\\n', _latin1'é')", "concat('a\\\n', 'é')"),
        ("concat('a\\\n', `_latin1'é'`)", "concat('a\\\n', `_latin1'é'`)"),
    ],
)
def test_a_literal_may_have_a_line_end_after_a_backslash(text: str, there: str) -> None:
    assert expression(text, MARIADB) == there


def test_columns_too_long_for_a_row_become_texts() -> None:
    made = simple(1)
    made.document["cols"] += [
        {
            "id": number,
            "name": name(f"v{number}"),
            "offset": number,
            "type": {**kind(15, 9000), "Charset": "utf8mb4", "Collate": "utf8mb4_bin"},
            "state": 5,
        }
        for number in (5, 6)
    ]
    derived = derive(Change(3, after=(made,), present={HERE: None}))
    assert derived.missing == ("column v5 is text instead of varchar(9000)",)
    assert "`v6` varchar(9000)" in statements(derived)[0]


def test_a_key_that_is_too_long_is_a_prefix_and_not_unique() -> None:
    made = simple(1)
    made.document["cols"][0]["type"] = {**kind(15, 1000), "Charset": "utf8mb4", "Collate": "utf8mb4_bin"}
    parts = [{"name": name("c1"), "offset": 0, "length": -1}]
    made.document["index_info"] = [{"idx_name": name("u"), "idx_cols": parts, "is_unique": True, "state": 5}]
    derived = derive(Change(3, after=(made,), present={HERE: None}))
    assert ", KEY `u` (`c1`(768))" in statements(derived)[0]
    assert derived.missing == ("key u is longer than 3072 bytes: a prefix, and not unique",)


def test_a_type_without_a_counterpart_cannot_be_derived() -> None:
    made = simple(1)
    made.document["cols"][0]["type"]["Tp"] = 225
    with pytest.raises(NotDerivable, match="column c1 has type 225"):
        derive(Change(3, after=(made,), present={HERE: None}))


def test_checks_and_foreign_keys_are_steps_that_may_be_refused() -> None:
    made = simple(1)
    made.document["constraint_info"] = [
        {"constraint_name": name("positive"), "expr_string": "`c1` > 0", "enforced": True, "state": 5},
        {"constraint_name": name("asleep"), "expr_string": "`c1` > 1", "enforced": False, "state": 5},
    ]
    made.document["fk_info"] = [
        {"fk_name": name("f"), "ref_schema": name("d"), "ref_table": name("p"), "ref_cols": [name("id")],
         "cols": [name("c1")], "on_delete": 2, "on_update": 0, "state": 5}
    ]  # fmt: skip
    derived = derive(Change(3, after=(made,), present={HERE: None}, server=MARIADB))
    assert [one.lacks for one in derived.steps] == ["", "foreign key f", "check positive"]
    assert derived.missing == ("check asleep, which is not enforced upstream either",)
    assert statements(derived)[1].endswith("REFERENCES `d`.`p` (`id`) ON DELETE CASCADE")


def test_sequences_where_there_are_none() -> None:
    numbers = {"start": 1, "increment": 2, "min_value": 1, "max_value": 99, "cache_value": 10}
    sequence = {f"sequence_{key}": value for key, value in numbers.items()}
    made = tracked({"id": 1, "sequence": {**sequence, "sequence_cache": True}})
    on = Change(34, after=(made,), present={HERE: None}, server=MARIADB)
    assert statements(derive(on)) == [
        "CREATE SEQUENCE `d`.`t` START WITH 1 MINVALUE 1 MAXVALUE 99 INCREMENT BY 2 CACHE 10 NOCYCLE"
    ]
    assert derive(dataclasses.replace(on, server=MYSQL)).missing == ("sequence d.t",)


def test_a_default_of_a_sequence_has_no_parentheses() -> None:
    """TiDB refuses them."""
    made = simple(1)
    made.document["cols"][0] |= {"default": "nextval(`d`.`s`)", "default_is_expr": True}
    (statement,) = statements(derive(Change(3, after=(made,), present={HERE: None}, server=MARIADB)))
    assert " DEFAULT nextval(`d`.`s`)" in statement
    (statement,) = statements(derive(Change(3, after=(made,), present={HERE: None}, server=MYSQL)))
    assert "nextval" not in statement


# -- partitions --------------------------------------------------------------------------------------------


def partitioned(*limits: tuple[int, str, str], **more: Any) -> Tracked:
    definitions = [
        {"id": number, "name": name(called), "less_than": [limit]} for number, called, limit in limits
    ]
    made = {"type": 1, "expr": "`c1`", "columns": None, "enable": True, "definitions": definitions}
    return simple(1, partition={**made, **more})


TWO = ((11, "p0", "10"), (12, "p1", "20"))


def of_partitions(action: int, after: Tracked, *there: str) -> list[str]:
    change = Change(
        action, (partitioned(*TWO),), (after,), present={HERE: present(1, partitions=there)}, server=MARIADB
    )
    return statements(derive(change))


def test_partitions_are_added_dropped_emptied_and_made_anew() -> None:
    more = partitioned(*TWO, (13, "p2", "MAXVALUE"))
    add = ["ALTER TABLE `d`.`t` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (MAXVALUE))"]
    assert of_partitions(19, more, "p0", "p1") == add
    assert of_partitions(19, more, "p0", "p1", "p2") == []
    assert of_partitions(20, partitioned(TWO[1]), "p0", "p1") == ["ALTER TABLE `d`.`t` DROP PARTITION `p0`"]
    emptied = partitioned((99, "p0", "10"), TWO[1])
    assert of_partitions(23, emptied, "p0", "p1") == ["ALTER TABLE `d`.`t` TRUNCATE PARTITION `p0`"]
    split = partitioned((13, "a", "5"), (14, "b", "10"), TWO[1])
    (split_only,) = of_partitions(64, split, "p0", "p1")
    assert split_only == (
        "ALTER TABLE `d`.`t` REORGANIZE PARTITION `p0` INTO"
        " (PARTITION `a` VALUES LESS THAN (5),PARTITION `b` VALUES LESS THAN (10))"
    )
    last = partitioned(TWO[0], (13, "a", "15"), TWO[1])
    (split_last,) = of_partitions(64, last, "p0", "p1")
    assert split_last == (
        "ALTER TABLE `d`.`t` REORGANIZE PARTITION `p1` INTO"
        " (PARTITION `a` VALUES LESS THAN (15),PARTITION `p1` VALUES LESS THAN (20))"
    )
    (merged,) = of_partitions(64, partitioned(TWO[1]), "p0", "p1")
    assert merged == (
        "ALTER TABLE `d`.`t` REORGANIZE PARTITION `p0`,`p1` INTO (PARTITION `p1` VALUES LESS THAN (20))"
    )
    (anew,) = of_partitions(64, split, "p0", "other")
    assert anew.startswith("ALTER TABLE `d`.`t` PARTITION BY RANGE (`c1`) (PARTITION `a`")
    assert of_partitions(72, simple(1), "p0", "p1") == ["ALTER TABLE `d`.`t` REMOVE PARTITIONING"]


def test_without_partitions_downstream_their_rows_still_go() -> None:
    assert of_partitions(20, partitioned(TWO[1])) == [
        "DELETE FROM `d`.`t` WHERE ((`c1`)<10) OR (`c1`) IS NULL".replace("((`c1`)<10) OR (`c1`) IS NULL",
                                                                       "(((`c1`)<10) OR (`c1`) IS NULL)")
    ]  # fmt: skip
    assert of_partitions(23, partitioned(TWO[0], (99, "p1", "20"))) == [
        "DELETE FROM `d`.`t` WHERE ((`c1`)>=10 AND (`c1`)<20)"
    ]
    assert of_partitions(19, partitioned(*TWO, (13, "p2", "30"))) == []
    by_key = partitioned(*TWO, type=4, expr="", columns=[name("c1")])
    change = Change(
        23,
        (by_key,),
        (partitioned((99, "p0", "10"), TWO[1], type=4, expr="", columns=[name("c1")]),),
        present={HERE: present(1)},
    )
    with pytest.raises(NotDerivable, match="cannot be said in a condition"):
        derive(change)


# -- what a server has, or has not ------------------------------------------------------------------------


def test_a_server_without_json_gets_text() -> None:
    """MySQL 5.6."""
    old, column = Server(Dialect.MYSQL, json=False), {"id": 2, "name": name("j"), "offset": 1}
    wide = simple(1)
    wide.document["cols"].append({**column, "type": kind(ti.JSON), "state": 5})
    change = Change(3, after=(wide,), present={HERE: None}, server=old)
    derived = derive(change)
    assert "`j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL" in statements(derived)[0]
    assert derived.missing == ("column j is longtext instead of json",)
    made = Present(
        columns=(PresentColumn("c1", "int(11)"), PresentColumn("j", "longtext", True, "utf8mb4_bin"))
    )
    assert not differences(ddl_definition.read(wide.document), made, old)
    added = derive(Change(5, (simple(1),), (wide,), present={HERE: present(1)}, server=old))
    assert added.missing == derived.missing


def test_another_tidb_gets_what_only_tidb_has() -> None:
    primary = {"idx_name": name("PRIMARY"), "idx_cols": [{"name": name("c1"), "offset": 0, "length": -1}]}
    index = {**primary, "id": 1, "is_primary": True, "is_unique": True, "state": 5}
    own = {
        "auto_random_bits": 5,
        "auto_random_range_bits": 64,
        "is_common_handle": True,
        "ttl_info": {"a": 1},
    }
    change = Change(
        3, after=(simple(1, **{**own, "index_info": [index]}),), present={HERE: None}, server=TIDB
    )
    derived = derive(change)
    assert statements(derived) == [
        "CREATE TABLE `d`.`t` (`c1` int NULL AUTO_RANDOM(5, 64), PRIMARY KEY (`c1`) CLUSTERED)"
    ]
    assert derived.missing == ("TTL, which only the upstream has",)
    spread = simple(1, ShardRowIDBits=4)
    made = derive(dataclasses.replace(change, after=(spread,)))
    assert statements(made) == ["CREATE TABLE `d`.`t` (`c1` int NULL) SHARD_ROW_ID_BITS=4"]
    change = Change(21, (simple(1),), (spread,), present={HERE: present(1)}, server=TIDB)
    assert statements(derive(change)) == ["ALTER TABLE `d`.`t` SHARD_ROW_ID_BITS=4"]
    assert statements(derive(dataclasses.replace(change, server=MYSQL))) == []


def test_a_counter_ends_where_rows_may_hold_null() -> None:
    """As after MODIFY COLUMN c1 INT AUTO_INCREMENT upstream: MySQL would make a number of NULL."""

    def of(flag: int) -> Tracked:
        column = {"id": 1, "name": name("c1"), "offset": 0, "type": kind(3, 11, Flag=flag), "state": 5}
        index = {
            "id": 1,
            "idx_name": name("k"),
            "idx_cols": [{"name": name("c1"), "offset": 0, "length": -1}],
        }
        return tracked({"id": 1, "cols": [column], "index_info": [index]})

    there = PresentColumn("c1", "int(11)", False, extra="auto_increment")
    here = {HERE: Present(columns=(there,), keys=(PresentKey("k", (("c1", 0),)),))}
    change = Change(ActionType.MODIFY_COLUMN, (of(512 | 1),), (of(512),), present=here, server=MARIADB)
    derived = derive(change)
    assert statements(derived) == ["ALTER TABLE `d`.`t` CHANGE COLUMN `c1` `c1` int NULL"]
    assert derived.missing == ("column c1 is not AUTO_INCREMENT: it may hold NULL",)
    same = PresentColumn("c1", "int(11)", True)
    done = dataclasses.replace(change, before=(of(512),), present={HERE: Present(columns=(same,))})
    assert statements(derive(done)) == []
    on_tidb = statements(derive(dataclasses.replace(change, server=TIDB)))
    assert on_tidb == ["ALTER TABLE `d`.`t` CHANGE COLUMN `c1` `c1` int NULL AUTO_INCREMENT"]


def test_a_counter_goes_back_where_no_row_ids_come_from_it() -> None:
    column = {"id": 1, "name": name("c1"), "offset": 0, "type": kind(3, 11, Flag=3 | 512), "state": 5}
    handle = tracked({"id": 1, "cols": [column], "pk_is_handle": True, "auto_inc_id": 7})
    here = {HERE: Present(columns=(PresentColumn("c1", "int(11)", False, extra="auto_increment"),))}
    change = Change(ActionType.REBASE_AUTO_ID, (handle,), (handle,), present=here, server=TIDB, forced=True)
    for server, forced, expected in ((TIDB, True, "FORCE "), (TIDB, False, ""), (MARIADB, True, "")):
        derived = derive(dataclasses.replace(change, server=server, forced=forced))
        assert statements(derived)[-1] == f"ALTER TABLE `d`.`t` {expected}AUTO_INCREMENT=7"
        assert derived.missing == ()
    loose = simple(1, auto_inc_id=7)
    derived = derive(dataclasses.replace(change, before=(loose,), after=(loose,), present={HERE: present(1)}))
    assert statements(derived) == ["ALTER TABLE `d`.`t` AUTO_INCREMENT=7"]
    assert derived.missing == ("AUTO_INCREMENT=7, if the downstream's is higher",)


def test_a_tidb_drops_a_key_before_it_adds_another_one_of_that_name() -> None:
    def keyed(length: int) -> Tracked:
        part = {"name": name("c1"), "offset": 0, "length": length}
        key = {"id": 1, "idx_name": name("u"), "idx_cols": [part], "is_unique": True, "state": 5}
        column = {"id": 1, "name": name("c1"), "offset": 0, "type": kind(15, 20), "state": 5}
        return tracked({"id": 1, "cols": [column], "index_info": [key]})

    here = Present(
        columns=(PresentColumn("c1", "varchar(20)"),), keys=(PresentKey("u", (("c1", 2),), unique=True),)
    )
    change = Change(12, (keyed(2),), (keyed(3),), present={HERE: here})
    drop, add = "DROP INDEX `u`", "ADD UNIQUE KEY `u` (`c1`(3))"
    assert statements(derive(dataclasses.replace(change, server=MARIADB))) == [
        f"ALTER TABLE `d`.`t` {drop}, {add}"
    ]
    assert statements(derive(dataclasses.replace(change, server=TIDB))) == [
        f"ALTER TABLE `d`.`t` {drop}",
        f"ALTER TABLE `d`.`t` {add}",
    ]


@pytest.mark.parametrize(
    ("default", "not_null", "expected"),
    [
        ("7", True, "SET DEFAULT '7'"),
        ("7", False, "SET DEFAULT '7'"),
        (None, True, "DROP DEFAULT"),
        (None, False, "SET DEFAULT NULL"),
    ],
)
def test_a_tidb_is_told_of_a_default_alone(default: str | None, not_null: bool, expected: str) -> None:
    """It refuses to change a column by which a table is partitioned."""

    def table(default: str | None) -> Tracked:
        column = {"id": 1, "name": name("c1"), "offset": 0, "type": kind(3), "state": 5, "default": default}
        column["type"]["Flag"] = int(not_null)
        return tracked({"id": 1, "cols": [column], "index_info": None})

    here = Present(columns=(PresentColumn("c1", "int(11)", nullable=not not_null, default="5"),))
    change = Change(21, (table("5"),), (table(default),), present={HERE: here}, server=TIDB)
    assert statements(derive(change)) == [f"ALTER TABLE `d`.`t` ALTER COLUMN `c1` {expected}"]
    (whole,) = statements(derive(dataclasses.replace(change, server=MARIADB)))
    assert "CHANGE COLUMN `c1` `c1` int" in whole


# -- real servers ------------------------------------------------------------------------------------------


@pytest.fixture
def connection(mariadb: MariaDbServer) -> Iterator[Any]:
    connection = mariadb.connect()
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00'")
        cursor.execute("CREATE DATABASE d")
    yield connection
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE d")
    connection.close()


def reach(connection: Any, change: Change, server: Server) -> Derived:
    """Run what is derived from what is there; afterwards the downstream lacks nothing."""
    found = ddl_present.read_all(connection, names(change), server)
    derived = derive(dataclasses.replace(change, present=found, server=server))
    with connection.cursor() as cursor:
        for one in derived.steps:
            cursor.execute(f"SET time_zone='{'+08:00' if one.local else '+00:00'}'")
            for text in one.statements:
                cursor.execute(text)
        cursor.execute("SET time_zone='+00:00'")
    found = ddl_present.read_all(connection, names(change), server)
    assert lacking(dataclasses.replace(change, present=found, server=server), derived.missing) == []
    return derived


@pytest.mark.integration
@pytest.mark.parametrize(
    ("charset", "collate", "text", "shown"),
    [
        ("gbk", "gbk_bin", "aß", "a?"),
        ("ascii", "ascii_bin", "aß", "a?"),
        ("latin1", "latin1_bin", "ß日", "ÃŸæ—¥"),
        ("latin1", "latin1_bin", "aß", "aß"),
        ("utf8", "utf8_bin", "a😀", "a?"),
    ],
)
def test_a_default_that_its_character_set_cannot_show_is_as_rows_have_it(
    connection: Any, charset: str, collate: str, text: str, shown: str
) -> None:
    server = server_of(connection)
    form = {**kind(15, flen=9), "Charset": charset, "Collate": collate}
    held = {"id": 2, "name": name("c2"), "offset": 1, "state": 5, "type": form}
    held |= {"default": text, "origin_default": text}
    one = simple(1)
    both = tracked({**one.document, "cols": [*one.document["cols"], held]})
    made = reach(connection, Change(3, after=(both,)), server)
    reach(connection, Change(4, (both,), (), present={}), server)
    reach(connection, Change(3, after=(one,)), server)
    connection.run(b"INSERT INTO d.t VALUES (1)")
    added = reach(connection, Change(5, (one,), (both,)), server)
    assert connection.rows(b"SELECT c2, DEFAULT(c2) FROM d.t") == [(shown, shown)]
    told = () if text == shown else (f"column c2 has the default {text} as {charset} can have it",)
    assert (made.missing, added.missing) == (told, told)


@pytest.mark.integration
@pytest.mark.parametrize("type_number", [254, 15])
@pytest.mark.parametrize(
    ("charset", "longer", "cut"),
    [
        ("binary", "\0\ufffd\0\ufffd", b"\0\xef\xbf\xbd\0"),  # TiDB keeps x'00ff00ff' so
        ("binary", "\0\0\0\ufffd", b"\0\0\0\xef\xbf"),
        ("utf8mb4", "日本語日本語", "日本語日本".encode()),
        ("ascii", "-0.000", b"-0.00"),
    ],
)
def test_rows_have_a_default_that_is_longer_than_its_column_cut(
    connection: Any, type_number: int, charset: str, longer: str, cut: bytes
) -> None:
    """As TiDB shows it of rows that are older than the column."""
    server = server_of(connection)
    collation = "binary" if charset == "binary" else f"{charset}_bin"
    form = {**kind(type_number, flen=5), "Charset": charset, "Collate": collation}
    held = {"id": 2, "name": name("c2"), "offset": 1, "state": 5, "type": form}

    def having(default: str) -> Tracked:
        column = {**held, "default": default, "origin_default": default}
        return tracked({**simple(1).document, "cols": [*simple(1).document["cols"], column]})

    one, told = simple(1), ("column c2 has its default cut: that of the upstream is longer than it",)
    assert reach(connection, Change(3, after=(having(longer),)), server).missing == told
    reach(connection, Change(4, (having(longer),), (), present={}), server)
    reach(connection, Change(3, after=(one,)), server)
    connection.run(b"INSERT INTO d.t VALUES (1)")
    assert reach(connection, Change(5, (one,), (having(longer),)), server).missing == told
    shown = b"CONVERT(c2 USING binary)" if charset != "binary" else b"c2"
    assert connection.rows(b"SELECT %b FROM d.t" % shown) == [(cut,)]
    reach(connection, Change(4, (having(longer),), (), present={}), server)
    fits = "\0\ufffd" if charset == "binary" else longer[:5]
    filled = fits + ("" if type_number == 15 else ("\0" if charset == "binary" else " ") * 5)
    assert reach(connection, Change(3, after=(having(filled),)), server).missing == ()


@pytest.mark.integration
@pytest.mark.parametrize("seed", range(12))
def test_random_tables_and_changes_reach_what_is_wanted(connection: Any, seed: int) -> None:
    server = server_of(connection)
    maker = Maker(seed)
    before = maker.table(seed % 7)
    reach(connection, Change(3, after=(tracked(before),)), server)
    with connection.cursor() as cursor:
        cursor.execute("INSERT IGNORE INTO d.t (id) VALUES (1)")
    for step in range(8):
        definition = ddl_definition.read(before)
        assert not differences(definition, ddl_present.read(connection, HERE, server), server), before
        after = maker.changed(before, step)
        held, held_times = contents(connection, before), times(connection, before)
        reach(connection, Change(61, (tracked(before),), (tracked(after),)), server)
        now = contents(connection, after)
        for number in held.keys() & now.keys():
            assert held[number] == now[number], "a column that stays keeps its contents"
        for called, (tp, value) in times(connection, after).items():
            tp_before, was = held_times.get(called, (tp, value))
            if tp != tp_before and isinstance(was, datetime):
                hours = 8 if tp == ti.DATETIME else -8
                assert value == was + timedelta(hours=hours), "in the zone of the job"
        before = after
    again = ddl_present.read_all(connection, (HERE,), server)
    done = Change(61, (tracked(before),), (tracked(before),), present=again, server=server, ran=True)
    assert derive(done) == Derived()


def contents(connection: Any, document: dict[str, Any]) -> dict[int, Any]:
    """By column id, for columns whose values no change converts or computes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM d.t")
        (row,) = cursor.fetchall()
    kept = (ti.VARCHAR, ti.STRING, ti.DATE, ti.TIME, ti.ENUM, ti.LONG, ti.DOUBLE)
    return {
        column["id"]: value
        for column, value in zip(document["cols"], row, strict=True)
        if column["type"]["Tp"] in kept
    }


def times(connection: Any, document: dict[str, Any]) -> dict[str, tuple[int, Any]]:
    """By column name, its type and value: of what is an instant or a local time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM d.t")
        (row,) = cursor.fetchall()
    return {
        column["name"]["O"]: (column["type"]["Tp"], value)
        for column, value in zip(document["cols"], row, strict=True)
        if column["type"]["Tp"] in (ti.TIMESTAMP, ti.DATETIME)
    }


@pytest.mark.integration
@pytest.mark.parametrize("partitions", [True, False])
def test_exchanged_rows_are_swapped(connection: Any, partitions: bool) -> None:
    """As one DDL where the downstream has the partitions, row by row where it has none."""
    server = server_of(connection)
    clause = (
        " PARTITION BY RANGE (c1) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE d.t (c1 INT){clause if partitions else ''}")
        cursor.execute("CREATE TABLE d.ex (c1 INT)")
        cursor.execute("INSERT INTO d.t VALUES (1),(2),(11)")
        cursor.execute("INSERT INTO d.ex VALUES (7),(8)")
    after = partitioned((31, "p0", "10"), TWO[1])
    change = Change(
        42,
        (partitioned(*TWO), simple(1, table_id=31, called="ex")),
        (after, simple(1, table_id=11, called="ex")),
    )
    reach(connection, change, server)
    with connection.cursor() as cursor:
        cursor.execute("SELECT c1 FROM d.t ORDER BY c1")
        assert [row[0] for row in cursor.fetchall()] == [7, 8, 11]
        cursor.execute("SELECT c1 FROM d.ex ORDER BY c1")
        assert [row[0] for row in cursor.fetchall()] == [1, 2]


def test_a_tidb_exchanges_rows_that_do_not_belong_there_as_the_upstream_did() -> None:
    change = Change(
        42,
        (partitioned(*TWO), simple(1, table_id=31, called="ex")),
        (partitioned((31, "p0", "10"), TWO[1]), simple(1, table_id=11, called="ex")),
        present={HERE: present(1, partitions=("p0", "p1")), ("d", "ex"): present(1)},
        server=TIDB,
    )
    (only,) = derive(change).steps
    assert only.statements == ("ALTER TABLE `d`.`t` EXCHANGE PARTITION `p0` WITH TABLE `d`.`ex`",)
    assert [one.statements for one in only.instead] == [(f"{only.statements[0]} WITHOUT VALIDATION",)]


def test_keys_are_renamed_in_place() -> None:
    def keyed(called: str) -> Tracked:
        parts = [{"name": name("c1"), "offset": 0, "length": -1}]
        return simple(1, index_info=[{"idx_name": name(called), "idx_cols": parts, "state": 5}])

    there = present(1, keys=(PresentKey("a", (("c1", 0),)),))
    change = Change(18, (keyed("a"),), (keyed("b"),), present={HERE: there})
    assert statements(derive(change)) == ["ALTER TABLE `d`.`t` RENAME INDEX `a` TO `b`"]


HEAD = "CREATE TABLE `t` (`id` int)\n"


@pytest.mark.parametrize(
    ("text", "by", "wanted"),
    [
        (
            "/*!50100 PARTITION BY RANGE (`id`)\n(PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB,\n"
            " PARTITION `p 1` VALUES LESS THAN MAXVALUE COMMENT = 'a, b)' ENGINE = InnoDB) */",
            "rangeid",
            [("p0", "10"), ("p 1", "MAXVALUE")],
        ),
        (
            "PARTITION BY RANGE COLUMNS(`a`,`b`)\n(PARTITION `p0` VALUES LESS THAN ('2020-01-01',5),\n"
            " PARTITION `p1` VALUES LESS THAN (MAXVALUE,MAXVALUE))",
            "rangecolumnsa,b",
            [("p0", "2020-01-01,5"), ("p1", "MAXVALUE,MAXVALUE")],
        ),
        (
            " PARTITION BY LIST  COLUMNS(`a`,`b`)\n(PARTITION `a``b` VALUES IN ((1,_utf8mb4'x'),(2,'y'))"
            " ENGINE = InnoDB,\n PARTITION `d` DEFAULT ENGINE = InnoDB)",
            "listcolumnsa,b",
            [("a`b", "(1,x),(2,y)"), ("d", "")],
        ),
        (
            "PARTITION BY RANGE COLUMNS(`a`)\n(PARTITION `p0` VALUES LESS THAN (x'41'),\n"
            " PARTITION `p1` VALUES LESS THAN (X'E697A5'),\n PARTITION `p2` VALUES LESS THAN (0xff))",
            "rangecolumnsa",
            [("p0", "A"), ("p1", "日"), ("p2", "\udcff")],
        ),
        ("PARTITION BY HASH (`id`) PARTITIONS 2", "hashid", [("p0", ""), ("p1", "")]),
    ],
    ids=["mysql", "tidb", "mariadb", "bytes", "hash"],
)
def test_partitions_are_read_as_each_server_prints_them(
    text: str, by: str, wanted: list[tuple[str, str]]
) -> None:
    class Printed:
        def rows(self, query: bytes) -> list[tuple[str, str]]:
            return [("t", HEAD + text)]

    assert ddl_present.partitions_of(Printed(), HERE) == (by, wanted)  # type: ignore[arg-type]
