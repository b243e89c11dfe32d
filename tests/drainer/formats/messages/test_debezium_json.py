"""debezium-json, read back by a reader made from Debezium's documentation; every recorded scenario."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.model import Column, Row
from drainer.changes.row_reader import RowReader
from drainer.formats.messages.json_rows import unscaled
from drainer.formats.messages.message import FormatOptions, Message, open_format
from drainer.txn import DELETE, INSERT, UPDATE, Ddl, Tracked
from tests.common.rowcodec.tables import key, kind, table
from tests.drainer.formats.messages.changes import (
    COMMIT_MS,
    COMMIT_TS,
    EVERYTHING,
    NULLS,
    ROW,
    VERSION,
    binary32,
    comparable,
    effects,
    items,
    replace_version,
    transaction,
    version,
)
from tests.drainer.support import recorded
from tidb_binlog import tso
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.values import EnumValue, PartialDate, SetValue

OPS = {"insert": "c", "update": "u", "delete": "d"}
SOURCE = [
    *("version", "connector", "name", "ts_ms", "snapshot", "db", "table", "server_id", "gtid", "file", "pos"),
    *("row", "thread", "query", "commit_ts", "cluster_id"),
]
WITH_SCHEMA = FormatOptions(with_schema=True, cluster="here")
EPOCH = datetime(1970, 1, 1)


def connect_type(column: Column) -> tuple[str, str]:
    """(schema type, semantic type) that Debezium documents for a MySQL type."""
    name, _, rest = column.type.partition("(")
    unsigned = column.type.endswith(("unsigned", "zerofill"))
    name = name.split()[0]
    integers = {
        "tinyint": "int16",
        "smallint": "int16",
        "mediumint": "int32",
        "int": "int32",
        "bigint": "int64",
    }
    if name in integers:
        if unsigned and name == "bigint":
            return "bytes", "org.apache.kafka.connect.data.Decimal"
        return ({"smallint": "int32", "int": "int64"}.get(name) if unsigned else None) or integers[name], ""
    digits = int(rest.rstrip(")") or 0) if name in ("datetime", "bit") else 0
    if name == "datetime":
        return "int64", f"io.debezium.time.{'Micro' if digits > 3 else ''}Timestamp"
    if name == "bit":
        return ("boolean", "") if digits == 1 else ("bytes", "io.debezium.data.Bits")
    return {
        "float": ("float", ""),
        "double": ("double", ""),
        "decimal": ("bytes", "org.apache.kafka.connect.data.Decimal"),
        "year": ("int32", "io.debezium.time.Year"),
        "date": ("int32", "io.debezium.time.Date"),
        "timestamp": ("string", "io.debezium.time.ZonedTimestamp"),
        "time": ("int64", "io.debezium.time.MicroTime"),
        "json": ("string", "io.debezium.data.Json"),
        "enum": ("string", "io.debezium.data.Enum"),
        "set": ("string", "io.debezium.data.EnumSet"),
    }.get(name) or (("bytes", "") if name.endswith(("blob", "binary")) else ("string", ""))


def read_value(schema: Any, value: Any) -> Any:
    """By the field's schema alone, as a consumer does."""
    if value is None:
        return None
    semantic = schema.get("name", "").rpartition(".")[2]
    if schema["type"] == "bytes":
        raw = base64.b64decode(value, validate=True)
        if semantic == "Decimal":
            number = int.from_bytes(raw, "big", signed=True)
            digits = tuple(map(int, str(abs(number))))
            return Decimal((int(number < 0), digits, -int(schema["parameters"]["scale"])))
        return int.from_bytes(raw, "little") if semantic == "Bits" else raw
    if semantic == "Date":
        return date(1970, 1, 1) + timedelta(days=value)
    if semantic in ("Timestamp", "MicroTimestamp"):
        return EPOCH + timedelta(microseconds=value * (1 if semantic[0] == "M" else 1000))
    if semantic == "MicroTime":
        return timedelta(microseconds=value)
    if semantic == "ZonedTimestamp":
        return datetime.fromisoformat(value)
    return binary32(value) if schema["type"] == "float" else value


def expected(column: Column, value: Any) -> Any:
    """What the documentation makes of a value."""
    if isinstance(value, PartialDate):
        nothing: dict[type, Any] = {date: date(1970, 1, 1), datetime: EPOCH}
        zero = nothing[column.python_type]
        if column.type.startswith("timestamp"):
            zero = zero.replace(tzinfo=UTC)
        return None if column.nullable else zero
    if isinstance(value, EnumValue | SetValue):
        return str(value)
    if column.python_type is str:
        return comparable(value)
    return bool(value) if column.type == "bit(1)" and value is not None else value


def check_image(fields: Any, columns: dict[str, Column], image: Any, wanted: dict[str, Any] | None) -> None:
    if wanted is None:
        assert image is None
        return
    assert list(image) == list(wanted)
    for field in fields:
        name = field["field"]
        found, value = read_value(field, image[name]), expected(columns[name], wanted[name])
        assert found == value, (name, image[name], value)
        if isinstance(value, Decimal):
            assert str(found) == str(value) or not value


def check(message: Message, row: Row, commit_ts: int, seq: int) -> None:
    assert message.value is not None
    document = json.loads(message.value)
    assert set(document) == {"schema", "payload"}
    schema, found = document["schema"], document["payload"]
    full_name = f"here.{row.table.schema}.{row.table.name}"
    assert (schema["type"], schema["name"], schema["optional"]) == ("struct", f"{full_name}.Envelope", False)
    assert [field["field"] for field in schema["fields"]] == list(found)
    assert list(found) == ["before", "after", "source", "op", "ts_ms", "transaction"]
    assert (found["op"], message.kind) == (OPS[row.kind], row.kind)
    assert (found["ts_ms"], found["transaction"]) == (commit_ts >> 18, None)
    source = found["source"]
    assert list(source) == SOURCE
    assert [field["field"] for field in schema["fields"][2]["fields"]] == SOURCE
    assert (source["db"], source["table"]) == (row.table.schema, row.table.name)
    assert (source["ts_ms"], source["commit_ts"], source["row"]) == (commit_ts >> 18, commit_ts, seq)
    assert (source["name"], source["cluster_id"], source["snapshot"]) == ("here", "here", "false")
    columns = {column.name: column for column in row.table.columns}
    for number, image in enumerate((row.before, row.after)):
        described = schema["fields"][number]
        assert (described["name"], described["optional"]) == (f"{full_name}.Value", True)
        assert [field["field"] for field in described["fields"]] == list(columns)
        for field in described["fields"]:
            column = columns[field["field"]]
            assert (field["type"], field.get("name", "")) == connect_type(column), column
            assert field["optional"] == column.nullable
            if column.elements:
                allowed = ",".join(element.replace(",", "\\,") for element in column.elements)
                assert field["parameters"] == {"allowed": allowed}
        check_image(described["fields"], columns, found[("before", "after")[number]], image)
    check_key(message, row)


def check_key(message: Message, row: Row) -> None:
    if not row.table.key:
        assert message.key is None
        return
    assert message.key is not None
    document = json.loads(message.key)
    assert document["schema"]["name"] == f"here.{row.table.schema}.{row.table.name}.Key"
    columns = {column.name: column for column in row.table.columns}
    wanted = dict(zip(row.table.key, row.key_values, strict=True))
    check_image(document["schema"]["fields"], columns, document["payload"], wanted)


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_recorded_rows_have_the_values_that_the_row_reader_gives(scenario: str) -> None:
    made, reader, count = open_format("debezium-json", WITH_SCHEMA), RowReader(), 0
    for item in items(scenario):
        if isinstance(item, Ddl):
            continue
        messages = made.rows(item)
        for row, seq in effects(reader, item):
            check(next(messages), row, item.commit_ts, seq)
            count += 1
        assert next(messages, None) is None
    assert count > 0


@pytest.mark.parametrize("other_order", [False, True])
def test_every_type_with_odd_names_and_nulls(other_order: bool) -> None:
    last = len(EVERYTHING.columns)
    turned = replace(
        EVERYTHING, columns=tuple(replace(one, offset=last - one.offset) for one in EVERYTHING.columns)
    )
    names = [column.name for column in EVERYTHING.columns]
    one, two = (dict(zip(names, values, strict=True)) for values in (ROW, [ROW[0], *NULLS[1:]]))
    changes = ((INSERT, one), (UPDATE, (one, two)), (UPDATE, (two, one)), (DELETE, two))
    item = transaction(version(turned) if other_order else VERSION, *changes)
    item = replace_version(item)
    found = list(open_format("debezium-json", WITH_SCHEMA).rows(item))
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(message, row, COMMIT_TS, seq)


def payload(message: Message | None) -> Any:
    assert message is not None
    assert message.value is not None
    return json.loads(message.value)


def test_without_the_schema_value_and_key_are_the_payloads() -> None:
    item = transaction(VERSION, (INSERT, ROW))
    (plain,), (whole,) = (
        open_format("debezium-json", replace(WITH_SCHEMA, with_schema=with_schema)).rows(item)
        for with_schema in (False, True)
    )
    assert payload(plain) == payload(whole)["payload"]
    assert plain.key is not None
    assert whole.key is not None
    assert json.loads(plain.key) == json.loads(whole.key)["payload"]


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert() -> None:
    item = transaction(VERSION, (UPDATE, (ROW, NULLS)), first=4)
    found = list(open_format("debezium-json", WITH_SCHEMA).rows(item))
    assert [(one.kind, one.seq) for one in found] == [("delete", 4), ("insert", 4)]
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(message, row, COMMIT_TS, seq)


AMOUNT = kind("decimal", flen=10, decimal=2)
NUMBERS = version(table(("id", key("bigint")), ("amount", AMOUNT), ("n", kind("bigint", unsigned=True))))


@pytest.mark.parametrize(
    ("options", "amount", "n"),
    [
        (FormatOptions(decimal="string"), "-1.50", base64.b64encode(b"\0" + b"\xff" * 8).decode()),
        (FormatOptions(decimal="double", bigint_unsigned="long"), -1.5, -1),
    ],
)
def test_other_modes_of_numbers(options: FormatOptions, amount: Any, n: Any) -> None:
    (message,) = open_format("debezium-json", options).rows(
        transaction(NUMBERS, (INSERT, [1, "-1.50", 2**64 - 1]))
    )
    assert payload(message)["after"] == {"id": 1, "amount": amount, "n": n}
    (message,) = open_format("debezium-json", replace(options, with_schema=True)).rows(
        transaction(NUMBERS, (INSERT, [1, None, None]))
    )
    _, decimal, large = payload(message)["schema"]["fields"][0]["fields"]
    assert decimal["type"] == options.decimal
    assert large["type"] == ("int64" if options.bigint_unsigned else "bytes")


def test_a_decimal_of_another_scale_keeps_its_value_or_is_refused() -> None:
    written = version(
        table(("id", key("bigint")), ("amount", replace(AMOUNT, decimal=1)), ("n", kind("bigint")))
    )
    item = transaction(written, (INSERT, [1, "-1.5", None]))
    item.tables[0].table = NUMBERS
    (message,) = open_format("debezium-json").rows(item)
    assert (
        payload(message)["after"]["amount"]
        == base64.b64encode((-150).to_bytes(2, "big", signed=True)).decode()
    )
    item = transaction(NUMBERS, (INSERT, [1, "-1.55", None]))
    item.tables[0].table = written
    with pytest.raises(
        RowError, match=r"column amount .* DECIMAL with 2 digits after the point, its column has 1"
    ):
        list(open_format("debezium-json").rows(item))


@pytest.mark.parametrize("options", [FormatOptions(decimal="exact"), FormatOptions(bigint_unsigned="string")])
def test_an_unknown_mode_says_which_there_are(options: FormatOptions) -> None:
    with pytest.raises(ConfigError, match=r"is no mode of debezium-json \(use one of 'precise'"):
        open_format("debezium-json", options)


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 10**65])
def test_numbers_are_as_short_as_java_s(number: int) -> None:
    raw = unscaled(number)
    assert int.from_bytes(raw, "big", signed=True) == number
    assert len(raw) == 1 or int.from_bytes(raw[1:], "big", signed=True) != number


def test_watermarks_as_ticdc_documents_them() -> None:
    message = open_format("debezium-json", WITH_SCHEMA).watermark(COMMIT_TS)
    document = payload(message)
    found = document["payload"]
    assert (found["op"], found["ts_ms"], found["transaction"]) == ("m", COMMIT_MS, None)
    assert (found["source"]["db"], found["source"]["commit_ts"]) == ("", COMMIT_TS)
    assert document["schema"]["name"] == "here.watermark.Envelope"
    assert message is not None
    assert message.key is not None
    assert json.loads(message.key)["schema"]["name"] == "here.watermark.Key"


def changed(ddl: Ddl, options: FormatOptions = WITH_SCHEMA) -> Any:
    message = open_format("debezium-json", options).ddl(ddl, ddl.query)
    assert message.key is not None
    assert json.loads(message.key)["payload"] == {"databaseName": message.schema}
    return payload(message)["payload"]


def described(schema: Any, value: Any) -> None:
    """That a document has the fields that its schema names, in order, of their types."""
    if value is None:
        assert schema["optional"], schema
    elif schema["type"] == "struct":
        assert list(value) == [field["field"] for field in schema["fields"]]
        for field in schema["fields"]:
            described(field, value[field["field"]])
    elif schema["type"] == "array":
        for each in value:
            described(schema["items"], each)
    else:
        kinds = {"string": str, "boolean": bool, "int32": int, "int64": int}
        assert type(value) is kinds[schema["type"]], (schema, value)


def test_a_schema_change_shows_the_table_after_it() -> None:
    document = EVERYTHING.to_json()
    made = Ddl(COMMIT_TS, 1, ActionType.CREATE_TABLE, "shop", "CREATE TABLE ...", (("shop", "orders"),), 8)
    made = replace(made, after=(Tracked("shop", "orders", document),))
    found = changed(made)
    assert (found["ddl"], found["databaseName"], found["schemaName"]) == ("CREATE TABLE ...", "shop", None)
    (change,) = found["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"shop"."orders"')
    assert change["table"]["primaryKeyColumnNames"] == ["id"]
    first, state = change["table"]["columns"][0], change["table"]["columns"][7]
    assert (first["name"], first["position"], first["jdbcType"]) == ("id", 1, -5)
    assert (first["typeName"], first["optional"]) == ("BIGINT UNSIGNED", False)
    assert (state["typeName"], state["enumValues"]) == ("ENUM", ["'new'", "'it's'"])
    renamed = replace(made, before=made.after, after=(Tracked("shop", "old_orders", document),))
    (change,) = changed(renamed)["tableChanges"]
    assert (change["type"], change["id"]) == ("ALTER", '"shop"."old_orders","shop"."orders"')
    dropped = replace(made, before=made.after, after=())
    assert [(c["type"], c["table"]) for c in changed(dropped)["tableChanges"]] == [("DROP", None)]
    truncated = replace(made, before=made.after, after=(Tracked("shop", "orders", {**document, "id": 54}),))
    assert [c["type"] for c in changed(truncated)["tableChanges"]] == ["ALTER"]
    routed = replace(made, targets=(("mart", "all"),))
    assert [c["id"] for c in changed(routed)["tableChanges"]] == ['"mart"."all"']


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_ddl_has_a_message_that_fits_its_schema(scenario: str) -> None:
    made = open_format("debezium-json", WITH_SCHEMA)
    for item in items(scenario):
        if isinstance(item, Ddl):
            message = made.ddl(item, item.query)
            document = payload(message)
            described(document["schema"], document["payload"])
            assert document["payload"]["ddl"] == item.query
            assert message is not None
            assert message.key is not None
            described(*json.loads(message.key).values())


def test_there_is_no_small_form() -> None:
    made = open_format("debezium-json")
    item = transaction(VERSION, (INSERT, ROW))
    (message,) = made.rows(item)
    assert made.handle_key(item, message) is None
    assert tso.physical_ms(message.commit_ts) == COMMIT_MS
