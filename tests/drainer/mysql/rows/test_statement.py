"""Statements: which form, what their counts may be, how they are cut, and what of a batch never goes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.change import (
    APPEND,
    DROP_ONE,
    PUT_INSERT,
    PUT_UPDATE,
    REMOVE,
    REPLACE_ONE,
    Change,
    Form,
    TableTarget,
)
from drainer.mysql.rows.column_match import PARTIAL, DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.row_fold import fold
from drainer.mysql.rows.statement import Statement, statements
from drainer.mysql.rows.table_target import target_of
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import index, key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import WHOLE_COLUMN, TableInfo

KEYED = table(("id", key("int")), ("v", kind("int")))
KEYLESS = table(("a", kind("int")), ("b", kind("varchar", flen=9)), handle="rowid")
ENUM = table(("id", key("int")), ("e", kind("enum", elems=("x", "y"))))
ID = DownstreamColumn("id", "int", nullable=False, has_default=False)
V = DownstreamColumn("v", "int")
PRIMARY = (UniqueKey("PRIMARY", (KeyPart("id"),)),)


def seen(info: TableInfo, *columns: DownstreamColumn, sync_mode: int = 1) -> TableTarget:
    downstream = DownstreamTable("s", "t", columns, PRIMARY) if columns else None
    return target_of(TableVersion(info, "s", "t", 1), 1, downstream, sync_mode=sync_mode)


def put(target: TableTarget, number: int, value: int) -> Change:
    row = RowEncoder(target.version.info).insert((number, value))
    return (target, PUT_INSERT, b"%d" % number, row, 0)


def change(target: TableTarget, number: int, old: int, new: int) -> Change:
    row = RowEncoder(target.version.info).update((number, old), (number, new))
    return (target, PUT_UPDATE, b"%d" % number, row, target.sql.update_split(row))


def remove(target: TableTarget, number: int, value: int) -> Change:
    row = RowEncoder(target.version.info).delete((number, value))
    return (target, REMOVE, b"%d" % number, row, 0)


def made(*changes: Change, bytes_max: int = 1 << 20, replaying: bool = False) -> list[Statement]:
    return list(statements(fold(changes), bytes_max, replaying=replaying))


def test_replace_says_how_many_rows_may_have_been_there() -> None:
    target = seen(KEYED)
    (statement,) = made(put(target, 1, 5), change(target, 2, 5, 6), change(target, 3, 5, 6))
    assert statement.sql == b"REPLACE INTO `s`.`t` (`id`,`v`) VALUES (1,5),(2,6),(3,6)"
    assert statement.expected == (3, 5)
    assert [statement.drift(affected) for affected in (2, 3, 5, 6)] == [1, 0, 0, 1]


def test_own_columns_downstream_are_kept_and_filled() -> None:
    own = DownstreamColumn("x", "int", nullable=False, has_default=False)
    target = seen(KEYED, ID, V, own, sync_mode=PARTIAL)
    (statement,) = made(put(target, 1, 5))
    assert statement.sql == (
        b"INSERT INTO `s`.`t` (`id`,`v`,`x`) VALUES (1,5,0) ON DUPLICATE KEY UPDATE `v`=VALUES(`v`)"
    )
    assert statement.expected == (1, 1)


def test_a_row_that_went_and_came_back_gets_new_own_columns() -> None:
    target = seen(KEYED, ID, V, DownstreamColumn("x", "int"))
    removal, write = made(remove(target, 1, 5), put(target, 1, 6))
    assert removal.sql == b"DELETE FROM `s`.`t` WHERE `id` IN (1)"
    assert write.sql.startswith(b"INSERT INTO")
    # The same without columns to lose is one statement.
    assert len(made(remove(seen(KEYED), 1, 5), put(seen(KEYED), 1, 6))) == 1


def test_deletes_are_counted_but_not_while_replaying() -> None:
    target = seen(KEYED)
    (statement,) = made(remove(target, 1, 5), remove(target, 2, 5))
    assert (statement.sql, statement.expected) == (b"DELETE FROM `s`.`t` WHERE `id` IN (1,2)", (2, 2))
    (statement,) = made(remove(target, 1, 5), replaying=True)
    assert statement.expected is None
    assert statement.drift(0) == 0


def test_a_row_that_came_and_went_may_be_there_or_not() -> None:
    target = seen(KEYED)
    (statement,) = made(put(target, 1, 5), remove(target, 1, 5), remove(target, 2, 5))
    assert (statement.sql, statement.expected) == (b"DELETE FROM `s`.`t` WHERE `id` IN (1,2)", (1, 2))


@pytest.mark.parametrize(("collation", "row_key"), [("utf8mb4_bin", "PRIMARY"), ("utf8mb4_general_ci", "")])
def test_a_key_that_merges_keys_of_the_upstream_is_none_of_a_row(collation: str, row_key: str) -> None:
    """The row that is there may be another one's: it may not go."""
    text = kind("varchar", charset="utf8mb4", flen=8, not_null=True)
    info = table(("id", text), handle="rowid", indexes=(index(1, ("id", 0, WHOLE_COLUMN), primary=True),))
    there = DownstreamColumn("id", "varchar", 8, charset="utf8mb4", collation=collation)
    assert seen(info, there).row_key == row_key


@pytest.mark.parametrize("row_key", ["PRIMARY", ""])
def test_rows_of_new_keys_are_removed_first_where_they_are_no_others(row_key: str) -> None:
    assert seen(KEYED, ID, V).row_key == "PRIMARY"
    target = replace(seen(KEYED), form=Form.REWRITE, row_key=row_key)
    changes = put(target, 1, 5), change(target, 2, 5, 6), put(target, 3, 7), remove(target, 3, 7)
    removal, _ = statements(fold(changes), 1 << 20, replaying=False, removes_new=True)
    assert removal.sql == b"DELETE FROM `s`.`t` WHERE `id` IN (%b)" % (b"2,3,1" if row_key else b"2,3")
    assert removal.expected == (1, 2)  # one of a new key is drift
    assert len(list(statements(fold(changes), 1 << 20, replaying=False))) == 2
    gentle = replace(target, gentle=True)
    changes = put(gentle, 1, 5), remove(gentle, 3, 7)
    first, *_ = statements(fold(changes), 1 << 20, replaying=False, removes_new=True)
    assert first.sql == b"DELETE FROM `s`.`t` WHERE `id` IN (3)"


@pytest.mark.parametrize("bytes_max", [80, 100, 200])
def test_statements_are_cut_by_bytes(bytes_max: int) -> None:
    target = seen(KEYED)
    found = made(*(put(target, number, number) for number in range(100)), bytes_max=bytes_max)
    assert all(len(statement.sql) <= bytes_max for statement in found)
    assert sum(statement.expected[0] for statement in found if statement.expected) == 100
    values = b",".join(statement.sql.partition(b"VALUES ")[2] for statement in found)
    assert values == b",".join(b"(%d,%d)" % (number, number) for number in range(100))


def test_and_by_rows() -> None:
    target = seen(KEYED)
    found = made(*(put(target, number, number) for number in range(2500)))
    assert [statement.expected for statement in found] == [(1000, 1000), (1000, 1000), (500, 500)]


def test_only_the_row_that_needs_it_goes_out_without_strict_mode() -> None:
    target = seen(ENUM)
    encoder = RowEncoder(ENUM)
    rows = [(target, PUT_INSERT, b"%d" % n, encoder.insert((n, value)), 0) for n, value in ((1, "x"), (2, 0))]
    strict, lax = made(*rows)
    assert (strict.lax, lax.lax) == (False, True)
    assert b"(1,'x')" in strict.sql
    assert b"(2,0/*enum*/)" in lax.sql


def test_a_text_that_looks_like_an_enum_without_element_stays_strict() -> None:
    """In the lax session what does not fit would be clipped."""
    info = table(("id", key("int")), ("e", kind("enum", elems=("x", "y"))), ("s", kind("varchar", flen=20)))
    target = seen(info)
    encoder = RowEncoder(info)
    rows = [(1, "x", "0/*enum*/"), (2, 0, "text"), (3, 0, "0/*enum*/")]
    changes = [(target, PUT_INSERT, b"%d" % row[0], encoder.insert(row), 0) for row in rows]
    strict, lax = made(*changes)
    assert (strict.lax, lax.lax) == (False, True)
    assert strict.sql.endswith(b" VALUES (1,'x','0/*enum*/')")
    assert lax.sql.endswith(b" VALUES (2,0/*enum*/,'text'),(3,0/*enum*/,'0/*enum*/')")


def test_rows_of_targets_with_other_columns_go_out_apart() -> None:
    wide, narrow = seen(KEYED), seen(KEYED, ID, sync_mode=PARTIAL)
    first, second = made(put(wide, 1, 5), put(narrow, 2, 5))
    assert b"(`id`,`v`) VALUES (1,5)" in first.sql
    assert b"(`id`) VALUES (2)" in second.sql


def keyless(op: int, *images: tuple[int, str], rowid: int = 1) -> Change:
    target = TARGET
    encoder = RowEncoder(KEYLESS)
    if op == APPEND:
        return (target, op, b"", encoder.insert(images[0], rowid=rowid), 0)
    if op == DROP_ONE:
        return (target, op, b"", encoder.delete(images[0], rowid=rowid), 0)
    row = encoder.update(images[0], images[1], rowid=rowid)
    return (target, op, b"", row, target.sql.update_split(row))


TARGET = seen(KEYLESS)
A, B = (1, "a"), (2, "b")


def test_equal_images_are_dropped_by_one_statement() -> None:
    assert TARGET.form is Form.KEYLESS
    (statement,) = made(*(keyless(DROP_ONE, A, rowid=number) for number in range(3)))
    assert statement.sql.endswith(b" LIMIT 3")
    assert statement.expected == (3, 3)
    assert statement.drift(1) == 2


def test_what_comes_and_goes_in_a_batch_never_goes_out() -> None:
    assert made(keyless(APPEND, A), keyless(REPLACE_ONE, A, B), keyless(DROP_ONE, B)) == []
    (statement,) = made(keyless(APPEND, A), keyless(REPLACE_ONE, A, B), keyless(REPLACE_ONE, B, A))
    assert statement.sql == b"INSERT INTO `s`.`t` (`a`,`b`) VALUES (1,'a')"


def test_an_update_is_a_drop_and_an_insert() -> None:
    drop, insert = made(keyless(REPLACE_ONE, A, B))
    assert drop.sql.startswith(b"DELETE FROM `s`.`t` WHERE `a`<=>1 AND ")
    assert (drop.expected, insert.expected) == ((1, 1), (1, 1))
