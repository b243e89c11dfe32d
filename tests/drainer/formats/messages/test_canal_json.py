"""canal-json, read back by a reader made from the published field list; every recorded scenario."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from drainer.changes.model import Column, Row
from drainer.changes.row_reader import RowReader
from drainer.formats.messages.message import ROWS_MAX, FormatOptions, Message, open_format
from drainer.txn import DELETE, INSERT, UPDATE, Ddl
from tests.common.rowcodec.tables import binary, key, kind, table
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
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue

FIELDS = [
    *("id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql", "sqlType", "mysqlType"),
    *("data", "old"),
]
# MySQL's type -> JDBC type, as published; integers have a table of their own.
JDBC = {
    "float": 7, "double": 8, "decimal": 3, "char": 1, "varchar": 12, "binary": 2004, "varbinary": 2004,
    "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "tinyblob": 2004, "blob": 2004,
    "mediumblob": 2004, "longblob": 2004, "date": 91, "datetime": 93, "timestamp": 93, "time": 92, "year": 12,
    "enum": 4, "set": -7, "bit": -7, "json": 12,
}  # fmt: skip
INTEGERS = {
    "tinyint": [(127, -6), (255, 5)],
    "smallint": [(32767, 5), (65535, 4)],
    "mediumint": [(8388607, 4), (16777215, 4)],
    "int": [(2147483647, 4), (4294967295, -5)],
    "bigint": [(9223372036854775807, -5), (18446744073709551615, 3)],
}
BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def jdbc_type(mysql_type: str, value: Any) -> int:
    name = mysql_type.split()[0]
    if name not in INTEGERS:
        return JDBC[name]
    return next(code for limit, code in INTEGERS[name] if value is None or value <= limit)


def read_time(column: Column, text: str) -> Any:
    if column.type.startswith("time") and not column.type.startswith("timestamp"):
        sign, clock = (-1, text[1:]) if text.startswith("-") else (1, text)
        hours, minutes, seconds = clock.split(":")
        exact = Decimal(seconds) * 1_000_000
        return sign * timedelta(hours=int(hours), minutes=int(minutes), microseconds=int(exact))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return PartialDate(text)
    if column.type == "date":
        return found.date()
    return found.replace(tzinfo=UTC) if column.type.startswith("timestamp") else found


def read_value(column: Column, mysql_type: str, text: str | None) -> Any:
    """The value that a column of a message has, by its MySQL type."""
    if text is None:
        return None
    name = mysql_type.split()[0]
    if name in INTEGERS or name in ("year", "bit"):
        return int(text)
    if name in ("float", "double"):
        return binary32(float(text)) if name == "float" else float(text)
    if name == "decimal":
        return Decimal(text)
    if name == "enum":
        number = int(text)
        return EnumValue(column.elements[number - 1] if 0 < number <= len(column.elements) else "", number)
    if name == "set":
        mask = int(text)
        return SetValue(",".join(e for bit, e in enumerate(column.elements) if mask >> bit & 1), mask)
    if name in ("date", "datetime", "timestamp", "time"):
        return read_time(column, text)
    return text.encode("latin-1") if name in BINARY else text


def same(column: Column, found: Any, wanted: Any) -> bool:
    if column.python_type is str:
        return comparable(found) == comparable(wanted)
    if isinstance(wanted, EnumValue | SetValue):
        return comparable(found) == comparable(wanted)
    if isinstance(wanted, JsonText):
        return type(found) is str and str(wanted) == found
    if isinstance(wanted, Decimal):
        return str(found) == str(wanted)
    return type(found) is type(wanted) and found == wanted


def check_image(
    columns: dict[str, Column], types: dict[str, str], image: Any, wanted: dict[str, Any]
) -> None:
    assert list(image) == list(wanted)
    for name, text in image.items():
        found = read_value(columns[name], types[name], text)
        assert same(columns[name], found, wanted[name]), (name, text, wanted[name])


def check(message: Message, row: Row, commit_ts: int, seq: int) -> None:
    """A message of one row against what the row reader gives."""
    assert message.value is not None
    found = json.loads(message.value)
    assert list(found) == [*FIELDS, "_tidb"]
    assert (found["id"], found["isDdl"], found["sql"]) == (0, False, "")
    assert (found["database"], found["table"]) == (row.table.schema, row.table.name)
    assert (message.schema, message.table) == (row.table.schema, row.table.name)
    assert found["pkNames"] == (list(row.table.key) or None)
    assert found["type"] == row.kind.upper()
    assert message.kind == row.kind
    assert found["es"] == found["ts"] == commit_ts >> 18
    assert found["_tidb"] == {"commitTs": commit_ts, "seq": seq}
    assert (message.commit_ts, message.seq) == (commit_ts, seq)
    columns = {column.name: column for column in row.table.columns}
    image = row.before if row.after is None else row.after
    assert image is not None
    assert list(found["mysqlType"]) == list(found["sqlType"]) == list(columns)
    for name, column in columns.items():
        words = column.type.partition("(")[::2]
        plain = words[0] + words[1].rpartition(")")[2]
        assert found["mysqlType"][name] == plain
        value = image[name] if column.python_type is int else None
        assert found["sqlType"][name] == jdbc_type(plain, value), name
    (data,) = found["data"]
    check_image(columns, found["mysqlType"], data, image)
    if row.kind == "update":
        (old,) = found["old"]
        assert row.before is not None
        check_image(columns, found["mysqlType"], old, row.before)
    else:
        assert found["old"] is None
    if row.table.key:
        assert message.key is not None
        assert json.loads(message.key) == {name: data[name] for name in row.table.key}
    else:
        assert message.key is None


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_recorded_rows_have_the_values_that_the_row_reader_gives(scenario: str) -> None:
    made, reader, count = open_format("canal-json"), RowReader(), 0
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
    """A row whose columns stand in another order goes another way to the same message."""
    last = len(EVERYTHING.columns)
    turned = replace(
        EVERYTHING, columns=tuple(replace(one, offset=last - one.offset) for one in EVERYTHING.columns)
    )
    names = [column.name for column in EVERYTHING.columns]
    written = version(turned) if other_order else VERSION
    one, two = (dict(zip(names, values, strict=True)) for values in (ROW, [ROW[0], *NULLS[1:]]))
    item = transaction(written, (INSERT, one), (UPDATE, (one, two)), (UPDATE, (two, one)), (DELETE, two))
    item = replace_version(item)
    found = list(open_format("canal-json").rows(item))
    for message, (row, seq) in zip(found, effects(RowReader(), item), strict=True):
        check(message, row, COMMIT_TS, seq)


def test_the_documented_example_of_a_binary_string() -> None:
    info = table(("id", key("int")), ("c_varbinary", binary("varchar")))
    raw = bytes([5, 7, 10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70])
    (message,) = open_format("canal-json").rows(transaction(version(info), (INSERT, [1, raw])))
    documented = '"\\u0005\\u0007\\n\\u000f$2+cx\\u003c\\u0026ÿþ-7F"'
    assert message.value is not None
    assert json.loads(message.value)["data"][0]["c_varbinary"] == json.loads(documented)


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert() -> None:
    item = transaction(VERSION, (UPDATE, (ROW, NULLS)), first=4)
    first, second = open_format("canal-json").rows(item)
    assert (first.kind, second.kind) == ("delete", "insert")
    assert (first.seq, second.seq) == (4, 4)
    assert first.key == b'{"id":"18446744073709551615"}'
    assert second.key == b'{"id":"1"}'
    for message, (row, seq) in zip((first, second), effects(RowReader(), item), strict=True):
        check(message, row, COMMIT_TS, seq)


def fields(message: Message | None) -> Any:
    assert message is not None
    assert message.value is not None
    return json.loads(message.value)


def test_only_changed_columns_in_old() -> None:
    made = open_format("canal-json", FormatOptions(only_changed=True))
    item = transaction(VERSION, (UPDATE, (ROW, [*ROW[:4], "2.00", *ROW[5:]])), (UPDATE, (ROW, ROW)))
    first, second = made.rows(item)
    assert fields(first)["old"] == [{"amount": "-1.50"}]
    assert fields(second)["old"] == [{}]


def test_full_types_and_names_of_elements() -> None:
    made = open_format("canal-json", FormatOptions(full_types=True, names=True))
    one, two = (fields(each) for each in made.rows(transaction(VERSION, (INSERT, ROW), (INSERT, NULLS))))
    assert one["mysqlType"]["amount"] == "decimal(10,2)"
    assert one["mysqlType"]["state"] == "enum('new','it''s')"
    assert (one["data"][0]["state"], one["data"][0]["flags"]) == ("it's", "a,b")
    assert (two["data"][0]["state"], two["data"][0]["flags"]) == ("new", None)
    odd = [*ROW[:7], 0, 0, *ROW[9:]]
    (message,) = made.rows(transaction(VERSION, (INSERT, odd)))
    assert fields(message)["data"][0]["state"] == "0", "the empty element has no name"


def test_messages_of_whole_transactions_have_runs_of_one_kind() -> None:
    made = open_format("canal-json", FormatOptions(whole_transactions=True))
    rows = [[number, *ROW[1:]] for number in range(1, 6)]
    item = transaction(
        VERSION,
        *((INSERT, rows[0]), (INSERT, rows[1]), (UPDATE, (rows[0], rows[0]))),
        *((UPDATE, (rows[1], rows[2])), (DELETE, rows[2])),
        first=10,
    )
    found = [(one.kind, one.seq, [each["id"] for each in fields(one)["data"]]) for one in made.rows(item)]
    assert found == [
        ("insert", 10, ["1", "2"]),
        ("update", 12, ["1"]),
        ("delete", 13, ["2"]),
        ("insert", 13, ["3"]),
        ("delete", 14, ["3"]),
    ]
    messages = list(made.rows(item))
    assert [len(fields(one)["old"] or ()) for one in messages] == [0, 1, 0, 0, 0]
    assert messages[0].key is None, "there are two keys"
    assert messages[1].key == b'{"id":"1"}'
    many = transaction(VERSION, *[(INSERT, ROW)] * (ROWS_MAX + 1))
    assert [len(fields(one)["data"]) for one in made.rows(many)] == [ROWS_MAX, 1]


def test_names_are_those_downstream_and_left_out_columns_are_gone() -> None:
    routed = version(EVERYTHING, target=("mart", "all"), left_out=frozenset({2, 3}))
    item = transaction(routed, (INSERT, ROW), (UPDATE, (ROW, ROW)), (DELETE, ROW))
    for message, (row, seq) in zip(
        open_format("canal-json").rows(item), effects(RowReader(), item), strict=True
    ):
        assert (message.schema, message.table) == ("mart", "all")
        check(message, row, COMMIT_TS, seq)


def test_a_small_form_has_the_key_alone() -> None:
    made = open_format("canal-json")
    item = transaction(
        VERSION, (INSERT, ROW), (UPDATE, (ROW, ROW)), (DELETE, ROW), (UPDATE, (ROW, NULLS)), first=3
    )
    for message in made.rows(item):
        small = made.handle_key(item, message)
        assert small is not None
        assert small._replace(value=None) == message._replace(value=None)
        found, whole = fields(small), fields(message)
        assert found["_tidb"] == {"commitTs": COMMIT_TS, "seq": message.seq, "onlyHandleKey": True}
        assert found["data"] == [{"id": whole["data"][0]["id"]}]
        assert found["old"] == (whole["old"] and [{"id": whole["old"][0]["id"]}])
        assert found["sqlType"] == {"id": whole["sqlType"]["id"]}
        assert found["mysqlType"] == {"id": "bigint unsigned"}
        away = made.handle_key(item, message, "file:///claims/1.json")
        assert fields(away)["_tidb"] == {
            "commitTs": COMMIT_TS,
            "seq": message.seq,
            "claimCheckLocation": "file:///claims/1.json",
        }
        assert fields(away)["data"] == found["data"]


def test_a_small_form_of_a_run_has_the_key_of_each_row() -> None:
    made = open_format("canal-json", FormatOptions(whole_transactions=True))
    rows = [[number, *ROW[1:]] for number in range(1, 5)]
    item = transaction(
        VERSION,
        *((INSERT, rows[0]), (INSERT, rows[1]), (UPDATE, (rows[1], rows[2])), (INSERT, rows[3])),
        *((UPDATE, (rows[0], rows[0])), (UPDATE, (rows[2], rows[2]))),
        first=3,
    )
    messages = list(made.rows(item))
    assert [(one.kind, one.seq, len(fields(one)["data"])) for one in messages] == [
        ("insert", 3, 2),
        ("delete", 5, 1),
        ("insert", 5, 2),
        ("update", 7, 2),
    ]
    for message in messages:
        small, whole = fields(made.handle_key(item, message)), fields(message)
        assert small["_tidb"] == {"commitTs": COMMIT_TS, "seq": message.seq, "onlyHandleKey": True}
        assert small["data"] == [{"id": row["id"]} for row in whole["data"]]
        assert small["old"] == (whole["old"] and [{"id": row["id"]} for row in whole["old"]])
    many = transaction(VERSION, *[(INSERT, ROW)] * (ROWS_MAX + 2))
    _, last = made.rows(many)
    assert len(fields(made.handle_key(many, last))["data"]) == 2


def test_a_row_without_a_key_has_no_small_form() -> None:
    keyless = version(table(("a", kind("int")), handle="rowid"))
    item = transaction(keyless, (INSERT, [1]))
    made = open_format("canal-json")
    (message,) = made.rows(item)
    assert message.key is None
    assert fields(message)["pkNames"] is None
    assert made.handle_key(item, message) is None
    away = fields(made.handle_key(item, message, "file:///claims/1.json"))
    assert (away["pkNames"], away["data"]) == (None, [{}])
    assert away["_tidb"]["claimCheckLocation"] == "file:///claims/1.json"
    with pytest.raises(ValueError, match="has no insert 9 of orders"):
        made.handle_key(item, message._replace(seq=9))


def test_watermarks_as_documented() -> None:
    message = open_format("canal-json").watermark(COMMIT_TS)
    assert fields(message) == {
        **dict.fromkeys(("pkNames", "sqlType", "mysqlType", "data", "old")),
        "id": 0,
        "database": "",
        "table": "",
        "isDdl": False,
        "type": "TIDB_WATERMARK",
        "sql": "",
        "es": COMMIT_MS,
        "ts": COMMIT_MS,
        "_tidb": {"watermarkTs": COMMIT_TS},
    }
    assert message is not None
    assert (message.kind, message.key, message.commit_ts) == ("watermark", None, COMMIT_TS)


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        (ActionType.CREATE_TABLE, "CREATE"),
        (ActionType.DROP_TABLE, "ERASE"),
        (ActionType.TRUNCATE_TABLE, "TRUNCATE"),
        (ActionType.RENAME_TABLE, "RENAME"),
        (ActionType.ADD_INDEX, "CINDEX"),
        (ActionType.DROP_INDEX, "DINDEX"),
        (ActionType.ADD_COLUMN, "ALTER"),
        (ActionType.MULTI_SCHEMA_CHANGE, "ALTER"),
        (ActionType.CREATE_SCHEMA, "QUERY"),
        (ActionType.CREATE_VIEW, "QUERY"),
        (9999, "QUERY"),
    ],
)
def test_ddl_has_canal_s_event_types(action: int, wanted: str) -> None:
    ddl = Ddl(COMMIT_TS, 1, action, "shop", "...", (("shop", "a"), ("shop", "b")), 8)
    message = open_format("canal-json").ddl(ddl, "RENAME TABLE `日本` TO b")
    found = fields(message)
    assert (found["isDdl"], found["type"], found["sql"]) == (True, wanted, "RENAME TABLE `日本` TO b")
    assert (found["database"], found["table"], found["data"]) == ("shop", "b", None)
    assert found["_tidb"]["commitTs"] == COMMIT_TS
    routed = open_format("canal-json").ddl(replace(ddl, targets=(("m", "x"), ("m", "y"))), "...")
    assert (fields(routed)["database"], fields(routed)["table"]) == ("m", "y")


@pytest.mark.parametrize("scenario", recorded.SCENARIOS)
def test_every_recorded_ddl_has_a_message(scenario: str) -> None:
    made = open_format("canal-json")
    for item in items(scenario):
        if isinstance(item, Ddl):
            found = fields(made.ddl(item, item.query))
            assert list(found) == [*FIELDS, "_tidb"]
            assert found["sql"] == item.query


def test_an_unknown_format_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="unknown message format 'xml'"):
        open_format("xml")


def test_dates_of_the_reader_are_dates() -> None:
    """The reader above tells dates from texts, or it would compare nothing."""
    assert read_time(Column("d", "date", True, date), "2024-02-29") == date(2024, 2, 29)
    assert read_time(Column("t", "time(3)", True, timedelta), "-00:00:00.500") == timedelta(seconds=-0.5)
