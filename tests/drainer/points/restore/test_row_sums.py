"""Row sums: what comes and goes adds up to what is there, in any order and without a key."""

from __future__ import annotations

import pytest

from drainer.points.restore.row_sums import RowSums, TableSum
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Transaction
from tests.drainer.support.apply_life import column
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import LONG, VARCHAR, TableInfo

INFO = TableInfo(1, "t", (column(1, "a", LONG), column(2, "b", VARCHAR)))
TABLE = TableVersion(INFO, "d", "t", 1)
T = ("d", "t")
Row = tuple[int, str | None]
Change = tuple[Row | None, Row | None]


def change(*changes: Change, table: TableVersion = TABLE) -> Transaction:
    encoder = RowEncoder(table.info)
    kinds, rows = [], []
    for old, new in changes:
        if old is None:
            assert new is not None
            kinds.append(INSERT)
            rows.append(encoder.insert(new, 1))
        elif new is None:
            kinds.append(DELETE)
            rows.append(encoder.delete(old, 1))
        else:
            kinds.append(UPDATE)
            rows.append(encoder.update(old, new, 1))
    return Transaction(1, 2, (TableEvents(table, kinds, rows, 0),), 0)


def sums(*transactions: Transaction) -> RowSums:
    found = RowSums(lambda name: frozenset({"a", "b", "c"}))
    for one in transactions:
        found.take(one)
    return found


def ddl(query: str, action: int, *tables: tuple[str, str], targets: tuple[tuple[str, str], ...] = ()) -> Ddl:
    return Ddl(9, 1, action, "d", query, tables or (T,), 0, targets=targets)


def test_changes_come_to_the_same_as_the_rows_that_are_left() -> None:
    left = sums(change((None, (2, "x")), (None, (2, "x")), (None, (3, None)))).tables[T]
    found = sums(
        change((None, (1, "x")), (None, (2, "x")), (None, (4, "y"))),
        change(((1, "x"), (2, "x")), ((4, "y"), None), (None, (3, ""))),
        change(((3, ""), (3, None))),
    ).tables[T]
    assert (found.rows, found.total) == (left.rows, left.total) == (3, found.total)
    assert found.differs_from(left) == ""


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(2, "x"), (3, None)], "3 rows are to be there, and 2 are"),
        ([(2, "x"), (3, None), (3, None)], "not all what they are to be"),
        ([(2, "x"), (2, "x"), (3, "")], "not all what they are to be"),
        ([(2, "x"), (2, "X"), (3, None)], "not all what they are to be"),
        ([(2, "x"), (2, "x"), (3, None), (3, None)], "3 rows are to be there, and 4 are"),
    ],
)
def test_every_other_set_of_rows_differs(rows: list[Row], text: str) -> None:
    wanted = sums(change((None, (2, "x")), (None, (2, "x")), (None, (3, None)))).tables[T]
    there = sums(change(*((None, row) for row in rows))).tables[T]
    assert text in wanted.differs_from(there)


def test_schema_changes_that_take_rows_away_or_move_them() -> None:
    found = sums(change((None, (1, "x"))))
    found.pass_ddl(ddl("ALTER TABLE t ADD INDEX (b)", ActionType.ADD_INDEX))
    assert not found.tables[T].unknown
    found.pass_ddl(ddl("RENAME TABLE t TO u", ActionType.RENAME_TABLE, T, ("d", "u")))
    assert list(found.tables) == [("d", "u")]
    found.pass_ddl(ddl("TRUNCATE TABLE u", ActionType.TRUNCATE_TABLE, ("d", "u")))
    assert (found.tables["d", "u"].rows, found.tables["d", "u"].total) == (0, 0)
    found.pass_ddl(ddl("DROP TABLE u", ActionType.DROP_TABLE, ("d", "u")))
    assert not found.tables
    found.take(change((None, (1, "x"))))
    found.pass_ddl(ddl("DROP DATABASE d", ActionType.DROP_SCHEMA, ("d", "")))
    assert not found.tables


def test_names_are_those_downstream() -> None:
    routed = TableVersion(INFO, "D", "T", 1, ("e", "U"))
    found = sums(change((None, (1, "x")), table=routed))
    assert list(found.tables) == [("e", "u")]
    found.pass_ddl(ddl("TRUNCATE TABLE T", ActionType.TRUNCATE_TABLE, ("D", "T"), targets=(("e", "U"),)))
    assert found.tables["e", "u"].rows == 0


@pytest.mark.parametrize(
    "query", ["ALTER TABLE t MODIFY a VARCHAR(9)", "ALTER TABLE t DROP PARTITION p", "FROB TABLE t"]
)
def test_rows_that_a_schema_change_may_have_changed_are_not_compared(query: str) -> None:
    found = sums(change((None, (1, "x"))))
    found.pass_ddl(ddl(query, ActionType.MODIFY_COLUMN if "MODIFY" in query else ActionType.NONE))
    assert query in found.tables[T].unknown
    # A table that is begun again is known again.
    found.pass_ddl(ddl("TRUNCATE TABLE t", ActionType.TRUNCATE_TABLE))
    assert found.tables[T].unknown == ""


def test_a_table_whose_columns_changed_is_not_compared() -> None:
    more = TableVersion(TableInfo(1, "t", (*INFO.columns, column(3, "c", LONG))), "d", "t", 2)
    empty = sums(change((None, (1, "x"))), change(((1, "x"), None)))
    encoder = RowEncoder(more.info)
    events = TableEvents(more, [INSERT], [encoder.insert((1, "x", 5), 1)], 0)
    empty.take(Transaction(1, 3, (events,), 0))
    assert not empty.tables[T].unknown
    found = sums(change((None, (1, "x"))))
    found.take(Transaction(1, 3, (events,), 0))
    assert found.tables[T].unknown == "its columns changed"


def test_columns_that_the_destination_computes_or_lacks_are_left_out() -> None:
    found = RowSums(lambda name: frozenset({"a"}))
    found.take(change((None, (1, "x"))))
    assert found.tables[T].columns == {"a": "integer"}
    assert found.tables[T].lacking == {"b"}
    found.pass_ddl(ddl("TRUNCATE TABLE t", ActionType.TRUNCATE_TABLE))
    assert found.tables[T].lacking == {"b"}
    gone = RowSums(lambda name: None)
    gone.know(TABLE)
    assert gone.tables[T] == TableSum({}, lacking=frozenset({"a", "b"}))
