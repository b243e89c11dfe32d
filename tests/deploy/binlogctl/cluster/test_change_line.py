"""Change lines: what people read of a row, and that no row can write on their terminal."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlogctl.cluster.change_line import ALIGNED_CHARS, ChangeLines, LineStyle, value_text
from drainer.changes.model import Column, Ddl, Kind, Row, Table
from tidb_binlog import tso
from tidb_binlog.observe.printable import is_printable
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate

AT = tso.compose(int(datetime(2026, 11, 22, 18, 30, 0, 123_000, UTC).timestamp() * 1000))
TIME = "2026-11-22 18:30:00.123"


def table(*names: str, key: tuple[str, ...] = ("id",), name: str = "orders") -> Table:
    return Table("shop", name, tuple(Column(one, "int", True, int) for one in names), key, 1, 1)


def line(
    kind: Kind,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    key: tuple[str, ...] = ("id",),
    **style: Any,
) -> str:
    row = Row(table(*(before or after or {}), key=key), kind, before, after)
    (made,) = ChangeLines(LineStyle(zone=UTC, **style)).rows(AT, iter([row]))
    return made


def test_a_line_a_row() -> None:
    assert line("insert", None, {"id": 8, "item": "pen", "price": None}) == (
        f"{TIME}  shop.orders  insert  id=8  item: 'pen', price: NULL"
    )
    assert line(
        "update", {"id": 7, "a": 1, "b": Decimal("1.50")}, {"id": 7, "a": 2, "b": Decimal("1.50")}
    ) == (f"{TIME}  shop.orders  update  id=7  a: 1 -> 2")
    assert line("delete", {"id": 7, "a": 1}, None) == f"{TIME}  shop.orders  delete  id=7  a: 1"


def test_on_a_terminal_columns_stand_below_each_other() -> None:
    lines = ChangeLines(LineStyle(zone=UTC, aligned=True))
    wide = Row(table("id", "a", name="x" * 12), "insert", None, {"id": 1000, "a": 1})
    narrow = Row(table("id", "a", name="t"), "delete", {"id": 1, "a": 1}, None)
    made = [*lines.rows(AT, [narrow, wide, narrow]), lines.ddl(Ddl(AT, "DROP TABLE t", "shop"))]
    assert [text.removeprefix(TIME) for text in made] == [
        "  shop.t  delete  id=1  a: 1",
        "  shop.xxxxxxxxxxxx  insert  id=1000  a: 1",
        "  shop.t             delete  id=1     a: 1",
        "  shop               ddl     DROP TABLE t",
    ]
    long = Row(table("id", name="y" * 90), "delete", {"id": 1}, None)
    assert next(lines.rows(AT, [long])).endswith(f"shop.{'y' * 90}  delete  id=1")
    assert "  shop.t" + " " * (ALIGNED_CHARS - 6) + "  delete" in next(lines.rows(AT, [narrow]))


def test_a_key_that_changes_and_one_that_is_missing() -> None:
    assert line("update", {"id": 7, "a": 1}, {"id": 8, "a": 1}).endswith("update  id=8  id: 7 -> 8")
    assert line("update", {"a": 1, "b": 5}, {"a": 2, "b": 5}, key=()).endswith("update  a: 1 -> 2, b: 5")
    assert line("insert", None, {"x": 1, "y": 2}, key=("x", "y")).endswith("insert  x=1 y=2")


def test_a_schema_change() -> None:
    lines = ChangeLines(LineStyle(zone=UTC))
    made = lines.ddl(Ddl(AT, "ALTER TABLE orders\n  ADD COLUMN note TEXT", "shop"))
    assert made == f"{TIME}  shop  ddl     ALTER TABLE orders ADD COLUMN note TEXT"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-7, "-7"),
        (1.5e300, "1.5e+300"),
        (Decimal("0.0000001000"), "0.0000001000"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 1, 2, 3, 40_000), "2024-02-29 01:02:03.040000"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29 01:02:03"),
        (PartialDate("0000-00-00"), "0000-00-00"),
        (-timedelta(hours=30, seconds=1), "-30:00:01"),
        (b"\x00\xff", "0x00FF"),
        (EnumValue("big", 2), "'big'"),
        (JsonText('{"a": [1, "\\n"]}'), '{"a": [1, "\\n"]}'),
        ("it's\na\\b\x1b[2J\u202e", "'it\\'s\\na\\\\b\\x1b[2J\\u202e'"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_long_values_are_cut_and_counted() -> None:
    assert value_text("x" * 70, 60) == "'" + "x" * 60 + "'...(+10 chars)"
    assert value_text(b"ab" * 2000, 8) == "0x61626162...(+3,996 bytes)"
    assert value_text(JsonText('"' + "y" * 98 + '"'), 10) == '"yyyyyyyyy...(+90 chars)'
    assert value_text("x" * 60, 60) == "'" + "x" * 60 + "'"


def test_colours_are_around_the_kind_alone() -> None:
    assert "\x1b[32minsert\x1b[0m  id=1" in line("insert", None, {"id": 1}, colour=True)


@given(st.text(), st.text(min_size=1), st.binary())
def test_nothing_in_a_row_steers_a_terminal_or_begins_a_line(text: str, name: str, data: bytes) -> None:
    row = Row(table("id", name, "c", name=name), "insert", None, {"id": text, name: text, "c": data})
    (made,) = ChangeLines(LineStyle(zone=UTC)).rows(AT, iter([row]))
    assert is_printable(made)
    assert is_printable(ChangeLines(LineStyle(zone=UTC)).ddl(Ddl(AT, text, name)))
