"""Rows, transactions and DDL as programs hold them."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.model import Column, Ddl, Row, Table, Transaction, json_value
from tidb_binlog import tso
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue

ORDERS = Table(
    "shop",
    "orders",
    (Column("id", "bigint", False, int), Column("state", "enum('new','paid')", True, EnumValue)),
    ("id",),
    53,
    7,
)


def row(**changes: Any) -> Row:
    before = {"id": 1, "state": EnumValue("new", 1)}
    return Row(ORDERS, "update", before, {**before, **changes})


def test_changed_columns() -> None:
    image = {"id": 1, "state": None}
    assert row(state=EnumValue("paid", 2)).changed == ("state",)
    assert row().changed == ()
    assert row(id=2, state=None).changed == ("id", "state")
    assert Row(ORDERS, "insert", None, image).changed == ("id", "state")
    assert Row(ORDERS, "delete", image, None).changed == ("id", "state")


def test_a_row_has_a_form_in_json() -> None:
    image = {
        "number": 2**64 - 1,
        "real": 0.1,
        "price": Decimal("0.000000010"),
        "day": date(2024, 2, 29),
        "moment": datetime(2024, 2, 29, 1, 2, 3, 450),
        "stamp": datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
        "time": -timedelta(hours=30, microseconds=1),
        "part": PartialDate("2010-02-30"),
        "raw": b"\x00\xff",
        "state": EnumValue("new", 1),
        "flags": SetValue("a,b", 3),
        "json": JsonText('{"a": 1}'),
        "text": "日本",
        "null": None,
    }
    assert json.loads(json.dumps(image, default=json_value)) == {
        **image,
        "price": "0.000000010",
        "day": "2024-02-29",
        "moment": "2024-02-29 01:02:03.000450",
        "stamp": "2024-02-29 01:02:03+00:00",
        "time": "-30:00:00.000001",
        "raw": "00ff",
    }


def test_the_key_is_that_after_the_change() -> None:
    assert row(id=2).key_values == (2,)
    assert Row(ORDERS, "delete", {"id": 3, "state": None}, None).key_values == (3,)
    keyless = Table("shop", "log", ORDERS.columns, (), 54, 7)
    assert Row(keyless, "insert", None, {"id": 3, "state": None}).key_values == ()


def test_rows_are_equal_by_table_name_kind_and_images() -> None:
    assert row() == row()
    assert row() != row(id=2)
    assert row() != 1
    other = Table("shop", "other", ORDERS.columns, ("id",), 53, 7)
    assert Row(other, "delete", {"id": 1}, None) != Row(ORDERS, "delete", {"id": 1}, None)


def test_what_is_printed_says_table_kind_and_images() -> None:
    assert repr(Row(ORDERS, "delete", {"id": 1}, None)) == (
        "Row(shop.orders, delete, before={'id': 1}, after=None)"
    )


def test_times_are_those_of_the_timestamps_in_utc() -> None:
    ts = tso.compose(1_700_000_000_125, 7)
    wanted = datetime(2023, 11, 14, 22, 13, 20, 125_000, UTC)
    assert Transaction(ts, ts - 1, []).time == wanted
    assert Ddl(ts, "CREATE TABLE t (id int)", "shop").time == wanted


@pytest.mark.parametrize(
    "value",
    [
        EnumValue("paid", 2),
        EnumValue("", 0),
        SetValue("a,c", 5),
        JsonText("1", b"\n\t"),
        PartialDate("0000-00-00"),
    ],
    ids=repr,
)
def test_values_survive_copies_and_pickles(value: Any) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(other) is type(value)
        assert other == value
        for name in type(value).__slots__:
            assert getattr(other, name) == getattr(value, name)
    changed = pickle.loads(pickle.dumps(row(state=value)))
    assert changed.after == {"id": 1, "state": value}


def test_a_document_is_loaded_on_request() -> None:
    assert JsonText('{"a": [1, null]}').load() == {"a": [1, None]}
