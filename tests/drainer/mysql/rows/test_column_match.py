"""Columns upstream and downstream are matched by name and by what the server says, never by counting."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.mysql.rows.causality import Spread
from drainer.mysql.rows.change import Form
from drainer.mysql.rows.column_match import (
    FULL,
    PARTIAL,
    Dialect,
    DownstreamColumn,
    DownstreamTable,
    KeyPart,
    UniqueKey,
    match,
)
from drainer.mysql.rows.table_target import refreshed, target_of
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import column, index, key, kind, table
from tidb_binlog.errors import ConfigError, DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import Column

INFO = table(("id", key("int")), ("Name", kind("varchar", flen=9)), ("v", kind("int")))
PRIMARY = UniqueKey("PRIMARY", (KeyPart("ID"),))
ID = DownstreamColumn("ID", "int", nullable=False, has_default=False)
NAME = DownstreamColumn("NAME", "varchar", 9, charset="utf8mb4", collation="utf8mb4_bin")
V = DownstreamColumn("V", "int")


def downstream(
    *columns: DownstreamColumn, keys: tuple[UniqueKey, ...] = (PRIMARY,), **more: Any
) -> DownstreamTable:
    return DownstreamTable("S", "T", columns, keys, **more)


def version(**more: object) -> TableVersion:
    return TableVersion(INFO, "s", "t", 1, **more)  # type: ignore[arg-type]


def test_names_match_in_any_case_and_order() -> None:
    found = match(INFO, downstream(V, NAME, ID))
    assert found.replaceable
    assert (found.left_out, found.unwritten, found.fillers) == (frozenset(), frozenset(), ())
    target = target_of(version(), 4, downstream(V, NAME, ID))
    assert target.name == b"`S`.`T`"
    assert (target.form, target.spread) == (Form.REPLACE, Spread.BY_KEY)


def test_full_mode_refuses_a_missing_column_and_names_it() -> None:
    with pytest.raises(DownstreamError, match=r"table S\.T has no column Name, v") as raised:
        match(INFO, downstream(ID), FULL)
    assert "sync-mode = 2" in raised.value.hint


def test_partial_mode_leaves_it_out() -> None:
    assert match(INFO, downstream(ID, V), PARTIAL).left_out == {2}
    target = target_of(version(), 4, downstream(ID, V), sync_mode=PARTIAL)
    assert target.sql.column_list == b"`id`,`v`"


def test_nothing_in_common_is_refused_in_every_mode() -> None:
    with pytest.raises(DownstreamError, match="no column downstream that upstream"):
        match(INFO, downstream(DownstreamColumn("other", "int")), PARTIAL)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_computed_column_is_left_out_however_many_columns_there_are(count: int) -> None:
    more = [DownstreamColumn(f"x{n}", "int") for n in range(count)]
    computed = DownstreamColumn("v", "int", generated=True)
    found = match(INFO, downstream(ID, NAME, computed, *more))
    assert (found.unwritten, found.left_out) == (frozenset({3}), frozenset())
    assert found.replaceable is (count == 0)


def test_a_computed_column_that_only_the_downstream_has_hinders_nothing() -> None:
    assert match(INFO, downstream(ID, NAME, V, DownstreamColumn("g", "int", generated=True))).replaceable


def test_own_columns_triggers_and_references_forbid_replace() -> None:
    own = DownstreamColumn("x", "int")
    for table_ in (
        downstream(ID, NAME, V, own),
        downstream(ID, NAME, V, may_have_triggers=True),
        downstream(ID, NAME, V, referenced=True),
    ):
        assert target_of(version(), 4, table_).form is Form.UPSERT


REQUIRED = {
    "int": b"0", "decimal": b"0", "varchar": b"''", "varbinary": b"''", "date": b"'0000-00-00'",
    "time": b"'00:00:00'", "enum": b"1", "json": b"'null'",
}  # fmt: skip


@pytest.mark.parametrize("type_", REQUIRED)
def test_a_column_that_must_have_a_value_gets_its_zero_in_partial_mode_only(type_: str) -> None:
    needed = DownstreamColumn("x", type_, nullable=False, has_default=False)
    with pytest.raises(DownstreamError, match=r"column x downstream .* NOT NULL"):
        match(INFO, downstream(ID, NAME, V, needed), FULL)
    assert match(INFO, downstream(ID, NAME, V, needed), PARTIAL).fillers == (("x", REQUIRED[type_]),)


def test_a_type_without_a_zero_is_refused() -> None:
    needed = DownstreamColumn("g", "geometry", nullable=False, has_default=False)
    with pytest.raises(DownstreamError, match="column g"):
        match(INFO, downstream(ID, NAME, V, needed), PARTIAL)


def test_a_key_column_cannot_be_left_out_by_configuration() -> None:
    with pytest.raises(ConfigError, match="column id of table t"):
        target_of(version(left_out=frozenset({1})), 4, downstream(ID, NAME, V))
    target = target_of(version(left_out=frozenset({3})), 4, downstream(ID, NAME))
    assert target.sql.column_list == b"`id`,`Name`"


def test_without_its_key_columns_a_table_is_found_by_another_key_or_by_all_columns() -> None:
    text = kind("varchar", flen=9, not_null=True)
    info = table(("id", key("int")), ("u", text), ("v", kind("int")), indexes=(index(2, ("u", 1)),))
    u = DownstreamColumn("u", "varchar", 9, charset="utf8mb4", collation="utf8mb4_bin")
    theirs = DownstreamTable("s", "t", (u, V), (UniqueKey("u", (KeyPart("u"),)),))
    target = target_of(TableVersion(info, "s", "t", 1), 4, theirs, sync_mode=PARTIAL)
    assert [each.name for each in target.sql.key_columns] == ["u"]
    assert target_of(version(), 4, downstream(NAME, V, keys=()), sync_mode=PARTIAL).form is Form.KEYLESS


def test_routed_tables_share_lanes_and_folds_by_the_name_downstream() -> None:
    other = table(("id", key("int")), ("Name", kind("varchar", flen=9)), ("v", kind("int")))
    one = target_of(TableVersion(INFO, "s1", "t", 1, target=("S", "all")), 4)
    two = target_of(TableVersion(other, "s2", "t", 1, target=("s", "ALL")), 4)
    assert (one.fold_id, one.lane) == (two.fold_id, two.lane)
    assert one.fold_id > 1 << 60
    assert target_of(version(), 4).fold_id == INFO.id


def test_a_table_that_changed_is_made_anew_only_if_statements_differ() -> None:
    plain = downstream(ID, NAME, V)
    target = target_of(version(), 4, plain)
    assert refreshed(target, plain, sync_mode=FULL) is None
    own = downstream(ID, NAME, V, DownstreamColumn("x", "int"))
    fresh = refreshed(target, own, sync_mode=FULL)
    assert fresh is not None
    assert (fresh.form, fresh.lane, fresh.spread) == (Form.UPSERT, target.lane, target.spread)


def test_changes_that_are_in_a_lane_stay_there_when_a_unique_key_comes() -> None:
    target = target_of(version(), 4, downstream(ID, NAME, V))
    more = downstream(ID, NAME, V, keys=(PRIMARY, UniqueKey("v", (KeyPart("v"),))))
    fresh = refreshed(target, more, sync_mode=FULL)
    assert fresh is not None
    assert (fresh.form, fresh.lane, fresh.spread) == (Form.REWRITE, target.lane, target.spread)
    assert target_of(version(), 4, more).spread is not target.spread


@pytest.mark.parametrize(
    ("dialect", "narrow", "casts"),
    [(Dialect.MARIADB, True, False), (Dialect.MYSQL, True, True), (Dialect.TIDB, False, True)],
)
def test_dialects(dialect: Dialect, narrow: bool, casts: bool) -> None:
    info = table(("id", key("int")), ("a", kind("varchar", charset="latin1", flen=9)), ("j", kind("json")))
    columns = (
        ID,
        DownstreamColumn("a", "varchar", 9, charset="latin1", collation="latin1_bin"),
        DownstreamColumn("j", "json"),
    )
    target = target_of(
        TableVersion(info, "s", "t", 1), 4, DownstreamTable("s", "t", columns, (PRIMARY,), dialect=dialect)
    )
    assert target.sql.has_narrow_text is narrow
    row = RowEncoder(info).delete((1, "a", {"b": 1}))
    assert (b"CAST(" in target.sql.full_row_predicate("delete", row)) is casts


def test_an_expression_in_a_unique_key_pins_the_table() -> None:
    keys = (PRIMARY, UniqueKey("e", (KeyPart(None),)))
    target = target_of(version(), 4, downstream(ID, NAME, V, keys=keys))
    assert (target.form, target.spread, target.gentle) == (Form.REWRITE, Spread.BY_TABLE, False)


def test_hidden_and_generated_columns_of_upstream_are_not_looked_for() -> None:
    info = table(
        ("id", key("int")),
        Column(2, "g", 1, kind("int"), generated="`id` + 1"),
        column(3, "h", kind("int"), hidden=True),
    )
    assert match(info, downstream(ID)).replaceable


CONVERTED = "CONVERT('é' USING latin1) COLLATE latin1_bin".encode()


@pytest.mark.parametrize(
    ("dialect", "texts", "condition"),
    [
        (Dialect.MARIADB, ("é", "e"), b"(`a`,`n`) IN ((" + CONVERTED + b",1),('e',1))"),
        (Dialect.MYSQL, ("é", "e"), b"(`a`=" + CONVERTED + b" AND `n`=1) OR (`a`='e' AND `n`=1)"),
        (Dialect.TIDB, ("é", "e"), "(`a`,`n`) IN (('é',1),('e',1))".encode()),
        (Dialect.MARIADB, ("日",), b"(`a`,`n`) IN ((_latin1 x'e697a5',1))"),
        (None, ("é", "e"), "(`a`='é' AND `n`=1) OR (`a`='e' AND `n`=1)".encode()),
    ],
)
def test_a_key_is_compared_in_the_character_set_of_its_column(
    dialect: Dialect | None, texts: tuple[str, ...], condition: bytes
) -> None:
    """None: the table downstream is not looked at, as for a script that somebody runs."""
    info = table(
        ("a", kind("varchar", charset="latin1", flen=9, not_null=True)),
        ("n", kind("int", not_null=True)),
        handle="rowid",
        indexes=(index(1, ("a", 0), ("n", 1), primary=True),),
    )
    columns = (
        DownstreamColumn("a", "varchar", 9, charset="latin1", collation="latin1_bin"),
        DownstreamColumn("n", "int"),
    )
    keys = (UniqueKey("PRIMARY", (KeyPart("a"), KeyPart("n"))),)
    there = DownstreamTable("s", "t", columns, keys, dialect=dialect) if dialect else None
    sql = target_of(TableVersion(info, "s", "t", 1), 4, there).sql
    literals = [sql.key_literal_of_delete(RowEncoder(info).delete((text, 1), rowid=1)) for text in texts]
    assert sql.key_list.condition(literals) == condition
