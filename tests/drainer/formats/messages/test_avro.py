"""avro, read back by another library with the schemas that were registered; every recorded scenario."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.model import Column, Row
from drainer.changes.row_reader import RowReader
from drainer.formats.messages.avro import NoKey, avro_name
from drainer.formats.messages.message import FormatOptions, Message, open_format
from drainer.txn import DELETE, INSERT, UPDATE, Ddl
from tests.common.rowcodec.tables import key, kind, table
from tests.drainer.formats.messages.changes import (
    COMMIT_MS,
    COMMIT_TS,
    EVERYTHING,
    NULLS,
    ROW,
    VERSION,
    Subjects,
    comparable,
    effects,
    items,
    replace_version,
    transaction,
    version,
)
from tests.drainer.support import recorded
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.values import EnumValue, SetValue

MICRO = timedelta(microseconds=1)


# SQL type -> (TIDB_TYPE, AVRO_TYPE), as TiCDC documents them.
TYPES = {
    "tinyint": ("INT", "int"), "smallint": ("INT", "int"), "mediumint": ("INT", "int"), "int": ("INT", "int"),
    "bigint": ("BIGINT", "long"), "tinyint unsigned": ("INT UNSIGNED", "int"),
    "smallint unsigned": ("INT UNSIGNED", "int"), "mediumint unsigned": ("INT UNSIGNED", "int"),
    "int unsigned": ("INT UNSIGNED", "long"), "bigint unsigned": ("BIGINT UNSIGNED", "string"),
    "float": ("FLOAT", "double"), "double": ("DOUBLE", "double"), "decimal": ("DECIMAL", "bytes"),
    "date": ("DATE", "string"), "datetime": ("DATETIME", "string"), "timestamp": ("TIMESTAMP", "string"),
    "time": ("TIME", "string"), "year": ("YEAR", "int"), "bit": ("BIT", "bytes"), "json": ("JSON", "string"),
    "enum": ("ENUM", "string"), "set": ("SET", "string"),
}  # fmt: skip


def documented(column: Column) -> tuple[str, str]:
    words = column.type.partition("(")
    name = words[0] + words[2].rpartition(")")[2].replace(" zerofill", "")
    name = name.replace(" zerofill", "")
    if name.endswith(("blob", "binary")):
        return "BLOB", "bytes"
    if name in ("float unsigned", "double unsigned", "decimal unsigned"):
        name = name.split()[0]
    return TYPES.get(name, ("TEXT", "string"))


def expected(column: Column, value: Any) -> Any:
    """A value of the row reader as the table of types has it."""
    fsp = (
        int(column.type.partition("(")[2].rstrip(")") or 0) if column.type.startswith(("date", "time")) else 0
    )
    if value is None:
        return None
    if isinstance(value, EnumValue | SetValue):
        return str(value)
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return text[: 20 + fsp] if fsp else text[:19]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds, micro = divmod(abs(value) // MICRO, 1_000_000)
        minutes, second = divmod(seconds, 60)
        fraction = f".{micro:06d}"[: 1 + fsp] if fsp else ""
        sign = "-" if value < timedelta(0) else ""
        return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{fraction}"
    if column.type.startswith("bit("):
        return value.to_bytes((bits_of(column) + 7) // 8, "big")
    if column.type.startswith("bigint") and "unsigned" in column.type:
        return str(value)
    return comparable(value) if column.python_type is str else value


def bits_of(column: Column) -> int:
    return int(column.type[4:-1])


def check_record(found: tuple[Any, Any], columns: list[Column], wanted: dict[str, Any]) -> Any:
    """Returns the fields after those of the columns."""
    schema, record = found
    names = [field["name"] for field in schema["fields"]]
    for field, column in zip(schema["fields"], columns, strict=False):
        kind_of = field["type"]
        if column.nullable:
            assert (kind_of[0], field["default"]) == ("null", None)
            kind_of = kind_of[1]
        assert (kind_of["connect.parameters"]["tidb_type"], kind_of["type"]) == documented(column)
        value = expected(column, wanted[column.name])
        got = record[field["name"]]
        assert type(got) is type(value) or isinstance(value, str), (column, got, value)
        assert got == value or (column.type.startswith("time") and got.lstrip("-") == value), (column, got)
        if isinstance(value, Decimal):
            assert str(got) == str(value)
            assert kind_of["logicalType"] == "decimal"
        if column.elements:
            allowed = ",".join(element.replace(",", "\\,") for element in column.elements)
            assert kind_of["connect.parameters"]["allowed"] == allowed
        if column.type.startswith("bit("):
            assert kind_of["connect.parameters"]["length"] == column.type[4:-1]
    return {name: record[name] for name in names[len(columns) :]}


def check(registry: Subjects, message: Message, row: Row, commit_ts: int, seq: int) -> None:
    assert (message.schema, message.table, message.kind) == (row.table.schema, row.table.name, row.kind)
    assert (message.commit_ts, message.seq) == (commit_ts, seq)
    by_name = {column.name: column for column in row.table.columns}
    assert message.key is not None
    keys = dict(zip(row.table.key, row.key_values, strict=True))
    found = registry.read(message.key)
    assert found[0]["namespace"] == f"default.{avro_name(row.table.schema)}"
    assert found[0]["name"] == avro_name(row.table.name)
    assert check_record(found, [by_name[name] for name in row.table.key], keys) == {}
    if row.kind == "delete":
        assert message.value is None
        return
    assert message.value is not None
    assert row.after is not None
    assert check_record(registry.read(message.value), list(row.table.columns), row.after) == {
        "_tidb_op": "c" if row.kind == "insert" else "u",
        "_tidb_commit_ts": commit_ts,
        "_tidb_commit_physical_time": commit_ts >> 18,
    }


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_recorded_rows_have_the_values_that_the_row_reader_gives(scenario: str) -> None:
    registry, reader, count = Subjects(), RowReader(), 0
    made = open_format("avro", FormatOptions(registry=registry))
    for item in items(scenario):
        if isinstance(item, Ddl):
            assert made.ddl(item, item.query) is None
            continue
        for events in item.tables:
            one = replace(item, tables=(events,))
            messages = made.rows(one)
            if not reader.table(events.table).key:
                with pytest.raises(NoKey, match="has no key: avro cannot say which row was deleted"):
                    next(messages)
                count += 1
                continue
            for row, seq in effects(reader, one):
                check(registry, next(messages), row, item.commit_ts, seq)
                count += 1
            assert next(messages, None) is None
    assert count > 0


@pytest.mark.parametrize("other_order", [False, True])
@pytest.mark.parametrize("not_null", [False, True])
def test_every_type_with_odd_names_and_nulls(other_order: bool, not_null: bool) -> None:
    info = EVERYTHING
    if not_null:
        info = replace(
            info,
            columns=tuple(replace(c, type=replace(c.type, flag=c.type.flag | 1)) for c in info.columns),
        )
    last = len(info.columns)
    turned = replace(info, columns=tuple(replace(one, offset=last - one.offset) for one in info.columns))
    names = [column.name for column in info.columns]
    nulls = ROW if not_null else NULLS
    one, two = (dict(zip(names, values, strict=True)) for values in (ROW, [ROW[0], *nulls[1:]]))
    item = transaction(
        version(turned if other_order else info),
        *((INSERT, one), (UPDATE, (one, two)), (UPDATE, (two, one)), (DELETE, two)),
    )
    item = replace_version(item)
    item.tables[0].table = version(info)
    registry = Subjects()
    found = list(open_format("avro", FormatOptions(registry=registry)).rows(item))
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(registry, message, row, COMMIT_TS, seq)


def test_text_that_is_not_utf_8_has_replacement_characters() -> None:
    info = table(("id", key("int")), ("a", kind("varchar")), ("b", kind("varchar", not_null=True)))
    registry = Subjects()
    made = open_format("avro", FormatOptions(registry=registry))
    for text in (b"\xff\xfe", b"x" * 100 + b"\x80", "é".encode() * 100):
        (message,) = made.rows(transaction(version(info), (INSERT, [1, text, text])))
        assert message.value is not None
        record = registry.read(message.value)[1]
        assert record["a"] == record["b"] == text.decode("utf-8", "replace")


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert() -> None:
    registry = Subjects()
    item = transaction(VERSION, (UPDATE, (ROW, NULLS)), first=4)
    found = list(open_format("avro", FormatOptions(registry=registry)).rows(item))
    assert [(one.kind, one.seq) for one in found] == [("delete", 4), ("insert", 4)]
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(registry, message, row, COMMIT_TS, seq)


def test_schemas_are_registered_once_for_a_table_version_under_its_topic() -> None:
    registry = Subjects()
    options = FormatOptions(registry=registry, topic=lambda schema, name: f"t.{schema}.{name}")
    made = open_format("avro", options)
    for _ in range(2):
        list(made.rows(transaction(VERSION, (INSERT, ROW))))
    assert registry.asked == ["t.shop.orders-key", "t.shop.orders-value"]
    list(made.rows(transaction(replace(VERSION), (INSERT, ROW))))
    assert len(registry.asked) == 4, "a new version of the table asks again"
    assert len(registry.schemas) == 2


def record_of(options: FormatOptions, row: list[Any]) -> Any:
    registry = Subjects()
    info = table(
        ("id", key("bigint")),
        ("amount", kind("decimal", flen=10, decimal=2)),
        ("n", kind("bigint", unsigned=True)),
    )
    made = open_format("avro", replace(options, registry=registry))
    (message,) = made.rows(transaction(version(info), (INSERT, row)))
    assert message.value is not None
    return registry.read(message.value)[1]


def test_other_modes_of_numbers() -> None:
    options = FormatOptions(decimal="string", bigint_unsigned="long")
    for row, wanted in (([1, "-1.50", 2**64 - 1], ("-1.50", -1)), ([1, None, None], (None, None))):
        found = record_of(options, row)
        assert (found["amount"], found["n"]) == wanted
    whole = record_of(FormatOptions(), [1, "-1.50", 2**64 - 1])
    assert whole["_tidb_commit_physical_time"] == COMMIT_MS
    assert (whole["amount"], whole["n"]) == (Decimal("-1.50"), str(2**64 - 1))


def test_names_that_avro_does_not_allow_are_changed_and_stay_apart() -> None:
    info = table(("id", key("int")), ("a-b", kind("int")), ("a b", kind("int")), ("1st", kind("int")))
    registry = Subjects()
    made = open_format("avro", FormatOptions(registry=registry, cluster="my cluster"))
    (message,) = made.rows(transaction(version(info, target=("日本", "t-1")), (INSERT, [1, 2, 3, 4])))
    assert message.value is not None
    schema, record = registry.read(message.value)
    assert (schema["namespace"], schema["name"]) == ("my_cluster.__", "t_1")
    assert [record[name] for name in ("id", "a_b", "a_b_2", "_1st")] == [1, 2, 3, 4]


def test_left_out_columns_are_gone() -> None:
    registry = Subjects()
    routed = version(EVERYTHING, left_out=frozenset({2, 3}))
    item = transaction(routed, (INSERT, ROW), (UPDATE, (ROW, ROW)), (DELETE, ROW))
    found = open_format("avro", FormatOptions(registry=registry)).rows(item)
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(registry, message, row, COMMIT_TS, seq)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (FormatOptions(), "needs a schema registry"),
        (FormatOptions(registry=Subjects(), decimal="double"), "'double' is no mode of avro"),
        (FormatOptions(registry=Subjects(), bigint_unsigned="precise"), "'precise' is no mode of avro"),
    ],
    ids=["registry", "decimal", "bigint-unsigned"],
)
def test_what_is_missing_or_unknown_is_said(options: FormatOptions, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        open_format("avro", options)


def test_there_are_no_other_messages() -> None:
    made = open_format("avro", FormatOptions(registry=Subjects()))
    item = transaction(VERSION, (INSERT, ROW))
    (message,) = made.rows(item)
    assert made.watermark(COMMIT_TS) is None
    assert made.handle_key(item, message) is None
