"""Row reader: every recorded row, both images of updates, names downstream; a wrong row says where."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.row_reader import RowReader
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, TableEvents, TableVersion, Tracked, Transaction
from tests.common.rowcodec.tables import binary, index, key, kind, table
from tests.drainer.support import recorded
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import Column, ColumnKind, TableInfo
from tidb_binlog.type_text import type_text

MICRO = timedelta(microseconds=1)


def shown(column: Column, value: Any) -> Any:
    """A value as the texts that the codec's own readers give."""
    fsp = column.type.fsp
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        assert (value.tzinfo is UTC) == (column.type.kind is ColumnKind.TIMESTAMP)
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return text if fsp == 6 else text[: 20 + fsp if fsp else 19]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds, micro = divmod(abs(value) // MICRO, 1_000_000)
        fraction = f".{micro:06d}"[: 1 + fsp] if fsp else ""
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return f"{'-' if value < timedelta(0) else ''}{hour:02d}:{minute:02d}:{second:02d}{fraction}"
    return value


def texts(info: TableInfo, image: dict[str, Any] | None) -> Any:
    columns = {column.name: column for column in info.columns}
    return image and {name: shown(columns[name], value) for name, value in image.items()}


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_every_recorded_row_has_the_values_of_its_columns(scenario: str) -> None:
    tracker, reader, rows = SchemaTracker(), RowReader(), 0
    translator = Translator(tracker, TableFilter())
    plans: dict[TableVersion, TablePlan] = {}
    for entry in recorded.merged(scenario):
        item = translator.translate(entry)
        if isinstance(item, Ddl):
            assert reader.ddl(item).query == item.query
            continue
        read = reader.transaction(item)
        assert (read.commit_ts, read.start_ts, read.large) == (item.commit_ts, item.start_ts, False)
        found = iter(read.rows)
        for events in item.tables:
            info = events.table.info
            plan = plans.get(events.table) or plans.setdefault(events.table, compile_table(info))
            names = [column.name for column in plan.columns]
            for event, encoded in zip(events.kinds, events.rows, strict=True):
                row = next(found)
                assert row.table is reader.table(events.table)
                if event == UPDATE:
                    old, new = plan.decode_update(encoded)
                    wanted = (
                        "update",
                        dict(zip(names, old, strict=True)),
                        dict(zip(names, new, strict=True)),
                    )
                elif event == INSERT:
                    wanted = ("insert", None, dict(zip(names, plan.decode_insert(encoded), strict=True)))
                else:
                    wanted = ("delete", dict(zip(names, plan.decode_delete(encoded), strict=True)), None)
                if (row.kind, row.before, row.after) != wanted:
                    assert (row.kind, texts(info, row.before), texts(info, row.after)) == wanted
                rows += 1
        assert next(found, None) is None
    assert rows > 0


INFO = table(
    ("id", key("bigint")),
    ("name", kind("varchar", flen=20)),
    ("amount", kind("decimal", flen=10, decimal=2)),
    ('it\'s "odd"', kind("int", unsigned=True)),
)
VERSION = TableVersion(INFO, "shop", "orders", 7)
ENCODER = RowEncoder(INFO)
ONE, TWO = (1, "Anna", "1.50", 7), (1, "Berta", None, 7)


def read(version: TableVersion, event: int, row: bytes) -> Any:
    (found,) = RowReader().rows(TableEvents(version, (event,), [row], 0))
    return found


def test_images_of_each_kind() -> None:
    after = {"id": 1, "name": "Anna", "amount": Decimal("1.50"), 'it\'s "odd"': 7}
    row = read(VERSION, INSERT, ENCODER.insert(ONE))
    assert (row.kind, row.before, row.after) == ("insert", None, after)
    row = read(VERSION, UPDATE, ENCODER.update(ONE, TWO))
    assert (row.kind, row.before) == ("update", after)
    assert row.after == {**after, "name": "Berta", "amount": None}
    assert row.changed == ("name", "amount")
    row = read(VERSION, DELETE, ENCODER.delete(ONE))
    assert (row.kind, row.before, row.after) == ("delete", after, None)


@pytest.mark.parametrize("event", [INSERT, UPDATE, DELETE])
def test_a_row_whose_columns_stand_in_another_order_has_the_same_values(event: int) -> None:
    last = len(INFO.columns) - 1
    turned = replace(
        INFO, columns=tuple(replace(column, offset=last - column.offset) for column in INFO.columns)
    )
    rows = []
    for info in (INFO, turned):
        encoder = RowEncoder(info)
        one, two = (dict(zip([c.name for c in INFO.columns], values, strict=True)) for values in (ONE, TWO))
        rows.append((encoder.insert(one), encoder.update(one, two), encoder.delete(one))[event])
    assert rows[0] != rows[1]
    assert read(VERSION, event, rows[0]) == read(VERSION, event, rows[1])


def test_names_are_those_downstream_and_left_out_columns_are_gone() -> None:
    routed = replace(VERSION, target=("mart", "all_orders"), left_out=frozenset({2}))
    for event, row in enumerate((ENCODER.insert(ONE), ENCODER.update(ONE, TWO), ENCODER.delete(ONE))):
        found = read(routed, event, row)
        assert str(found.table) == "mart.all_orders"
        assert [column.name for column in found.table.columns] == ["id", "amount", 'it\'s "odd"']
        for image in (found.before, found.after):
            assert image is None or list(image) == ["id", "amount", 'it\'s "odd"']


def test_a_key_of_which_a_column_is_left_out_is_none() -> None:
    assert RowReader().table(replace(VERSION, left_out=frozenset({1}))).key == ()


def test_keys() -> None:
    reader = RowReader()
    assert reader.table(VERSION).key == ("id",)
    pair = table(
        ("a", kind("int", not_null=True)),
        ("b", kind("varchar", not_null=True)),
        handle="rowid",
        indexes=(index(1, ("b", 1), ("a", 0)),),
    )
    assert reader.table(TableVersion(pair, "s", "t", 1)).key == ("b", "a")
    nullable = table(("a", kind("int")), handle="rowid", indexes=(index(1, ("a", 0)),))
    assert reader.table(TableVersion(nullable, "s", "t", 1)).key == ()


def test_columns_say_what_they_are() -> None:
    described = table(
        ("id", key("bigint", unsigned=True)),
        ("name", kind("varchar", flen=20, not_null=True)),
        ("raw", binary("char", flen=4)),
        ("state", kind("enum", elems=("a'b", "c"))),
        ("at", kind("timestamp", decimal=3)),
    )
    found = RowReader().table(TableVersion(described, "s", "t", 1))
    shown = [(one.name, one.type, one.nullable, one.python_type.__name__) for one in found.columns]
    assert shown == [
        ("id", "bigint unsigned", False, "int"),
        ("name", "varchar(20)", False, "str"),
        ("raw", "binary(4)", True, "bytes"),
        ("state", "enum('a''b','c')", True, "EnumValue"),
        ("at", "timestamp(3)", True, "datetime"),
    ]
    assert found.columns[3].elements == ("a'b", "c")
    assert (found.id, found.version) == (53, 1)


def test_a_type_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="type 200 has no name"):
        type_text(replace(kind("int"), tp=200))


def test_a_ddl_of_a_table_whose_rows_cannot_be_read_is_shown_all_the_same() -> None:
    strange = replace(INFO.columns[1], type=replace(INFO.columns[1].type, tp=225))
    document = replace(INFO, columns=(INFO.columns[0], strange)).to_json()
    after = (Tracked("shop", "orders", document), Tracked("shop", "v", {**document, "view": {}}))
    ddl = Ddl(9, 1, 3, "shop", "CREATE ...", (("shop", "orders"),), 8, after=after)
    (found,) = RowReader().ddl(ddl).after
    assert [(column.name, column.type, column.python_type) for column in found.columns] == [
        ("id", "bigint", int),
        ("name", "unknown type 225", object),
    ]
    assert found.key == ("id",)


def test_a_row_that_cannot_be_right_says_table_and_column() -> None:
    number = replace(INFO.columns[1], type=kind("int"))
    encoder = RowEncoder(replace(INFO, columns=(INFO.columns[0], number, *INFO.columns[2:])))
    one = (1, 5, "1.50", 7)
    for event, row in enumerate((encoder.insert(one), encoder.update(one, one), encoder.delete(one))):
        with pytest.raises(RowError, match=r"row of table t \(53\) column name at byte \d+ of .* a string"):
            read(VERSION, event, row)


def test_rows_of_several_tables_stay_in_execution_order() -> None:
    other = replace(VERSION, name="other")
    events = (
        TableEvents(VERSION, (INSERT, DELETE), [ENCODER.insert(ONE), ENCODER.delete(ONE)], 0),
        TableEvents(other, (INSERT,), [ENCODER.insert(TWO)], 2),
    )
    read = RowReader().transaction(Transaction(5, 6, events, 100))
    assert [(str(row.table), row.kind) for row in read.rows] == [
        ("shop.orders", "insert"),
        ("shop.orders", "delete"),
        ("shop.other", "insert"),
    ]


def test_a_table_is_one_object_until_its_version_changes() -> None:
    reader = RowReader()
    assert reader.table(VERSION) is reader.table(VERSION)
    assert reader.table(replace(VERSION)) is not reader.table(VERSION)


def test_a_ddl_shows_the_tables_before_and_after_under_their_names_downstream() -> None:
    document = INFO.to_json()
    ddl = Ddl(
        commit_ts=9,
        job_id=1,
        action=5,
        schema="shop",
        query="ALTER TABLE orders ADD COLUMN a int",
        tables=(("shop", "orders"),),
        schema_version=8,
        instead=("ALTER TABLE all_orders ADD COLUMN a int",),
        before=(Tracked("shop", "orders", document),),
        after=(Tracked("shop", "orders", document),),
        targets=(("mart", "all_orders"),),
    )
    found = RowReader().ddl(ddl)
    assert (found.commit_ts, found.query, found.schema) == (9, ddl.query, "shop")
    assert found.statements == ddl.instead
    (before,), (after,) = found.before, found.after
    assert (str(before), before.version) == ("mart.all_orders", None)
    assert (str(after), after.version, after.key) == ("mart.all_orders", 8, ("id",))
    assert str(RowReader().ddl(replace(ddl, targets=())).after[0]) == "shop.orders"
