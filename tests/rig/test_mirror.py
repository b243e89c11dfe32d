"""The mirror takes what follows on what it has, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from binlog_playground.check.verify import ActualTable, ColumnForm, ExpectedTable, Raw
from drainer.changes.model import Column, Ddl, Row, Table, Transaction
from tests.rig.mirror import Mirror, Misfit, shown


def table(*names: str, table_id: int = 1, name: str = "t", key: tuple[str, ...] = ("id",)) -> Table:
    columns = tuple(Column(one, "int", True, int, default="7" if one == "new" else None) for one in names)
    return Table("db", name, columns, key, table_id, 1)


T = table("id", "v")
FORM = ExpectedTable("db", "t", (ColumnForm("id", "int"), ColumnForm("v", "int")), ("id",), [])


def transaction(ts: int, *rows: Row) -> Transaction:
    return Transaction(ts, ts - 1, rows)


def insert(number: int, v: Any = 0, of: Table = T) -> Row:
    return Row(of, "insert", None, {"id": number, "v": v})


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    found = Mirror(tmp_path / "mirror")
    yield found
    found.close()


def rows(mirror: Mirror) -> list[Any]:
    return sorted(mirror.contents([FORM])["db", "t"].rows)


def test_rows_and_position_move_together(mirror: Mirror, tmp_path: Path) -> None:
    mirror.take(transaction(10, insert(1), insert(2)))
    mirror.take(transaction(11, Row(T, "update", {"id": 1, "v": 0}, {"id": 3, "v": 5})))
    mirror.take(transaction(12, Row(T, "delete", {"id": 2, "v": 0}, None)))
    again = Mirror(tmp_path / "mirror")
    assert (again.position, again.changes, rows(again)) == (12, 4, [("3", "5")])
    again.passed(20)
    assert (again.position, mirror.position) == (20, 20)
    again.close()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (insert(1), "row .* is there"),
        (Row(T, "delete", {"id": 2, "v": 0}, None), "there is no row"),
        (Row(T, "update", {"id": 1, "v": 1}, {"id": 1, "v": 2}), "is .*, not"),
    ],
)
def test_what_does_not_follow_is_refused_as_a_whole(mirror: Mirror, row: Row, said: str) -> None:
    mirror.take(transaction(10, insert(1)))
    with pytest.raises(Misfit, match=said):
        mirror.take(transaction(11, insert(5), row))
    assert (mirror.position, rows(mirror)) == (10, [("1", "0")])


def test_what_comes_twice_is_refused(mirror: Mirror) -> None:
    mirror.take(transaction(10, insert(1)))
    with pytest.raises(Misfit, match="came again"):
        mirror.take(transaction(10))


def test_rows_without_a_key_are_counted(mirror: Mirror) -> None:
    keyless = table("id", "v", key=())
    mirror.take(transaction(10, insert(1, of=keyless), insert(1, of=keyless)))
    mirror.take(transaction(11, Row(keyless, "delete", {"id": 1, "v": 0}, None)))
    assert rows(mirror) == [("1", "0")]


def test_a_schema_change_does_what_its_definitions_say(mirror: Mirror) -> None:
    mirror.take(transaction(10, insert(1)))
    wide = table("id", "v", "new", name="renamed")
    mirror.take(Ddl(11, "ALTER ...", "db", (T,), (wide,)))
    found = mirror.contents([FORM])
    assert found == {("db", "renamed"): ActualTable(("id", "v", "new"), [("1", "0", "7")])}
    truncated = table("id", "v", table_id=2)
    mirror.take(Ddl(12, "TRUNCATE ...", "db", (wide,), (truncated,)))
    assert mirror.contents([FORM]) == {("db", "t"): ActualTable(("id", "v"), [])}
    mirror.take(Ddl(13, "DROP ...", "db", (truncated,), ()))
    assert mirror.contents([FORM]) == {}


def test_a_column_of_another_type_has_the_values_of_tidb(mirror: Mirror) -> None:
    mirror.take(transaction(10, insert(1), Row(T, "insert", None, {"id": 2, "v": 70000})))
    small = replace(T.columns[1], type="smallint", id=9)
    mirror.take(Ddl(11, "ALTER ...", "db", (T,), (replace(T, columns=(T.columns[0], small)),)))
    assert rows(mirror) == [("1", "0"), ("2", "32767")]


@pytest.mark.parametrize(
    ("value", "column_type", "text"),
    [
        (None, "int", None),
        (Decimal("1.500000"), "decimal(20,6)", "1.500000"),
        (datetime(2020, 1, 2, 3, 4, 5, 678000), "datetime(3)", "2020-01-02 03:04:05.678"),
        (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "timestamp", "2020-01-02 03:04:05"),
        (date(2020, 1, 2), "date", "2020-01-02"),
        (-timedelta(hours=30, microseconds=120000), "time(2)", "-30:00:00.12"),
        (b"\xff\x00", "varchar(20)", {"hex": "ff00"}),
        (b"\xff\x00", "varbinary(20)", "ff00"),
        (0.1, "double", "0.1"),
    ],
)
def test_values_as_they_are_compared(value: Any, column_type: str, text: Any) -> None:
    assert shown(value, column_type) == text


def test_text_that_is_no_text(mirror: Mirror) -> None:
    column = Column("v", "varchar(20)", True, str)
    odd = Table("db", "t", (Column("id", "int", False, int), column), ("id",), 1, 1)
    mirror.take(transaction(10, insert(1, b"\xff", of=odd)))
    assert rows(mirror) == [("1", Raw("ff"))]
