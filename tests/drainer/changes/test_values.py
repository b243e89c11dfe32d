"""Value table: recorded and random values become Python values, and those the same bytes again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drainer.changes.row_reader import RowReader
from drainer.changes.values import PYTHON_TYPES, value_conversion
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import DELETE, INSERT, TableEvents, TableVersion, Transaction
from tests.common.rowcodec.random_rows import RandomTable
from tests.common.rowcodec.tables import binary, index, key, kind, table
from tests.drainer.support import recorded
from tidb_binlog.rowcodec.datum import NULL_DATUM, skip
from tidb_binlog.rowcodec.encoder import RowEncoder, UnwritableValue
from tidb_binlog.rowcodec.plan import RowReaders
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue
from tidb_binlog.rowcodec.varint import svarint
from tidb_binlog.table_info import DATE_AND_TIME_KINDS, Column, ColumnKind, FieldType, TableInfo


def datums(body: bytes) -> dict[int, bytes]:
    """Of a DELETE row: what each column's id is followed by."""
    found, i = {}, 0
    while i < len(body) and body[i] != 0:
        column_id, start = svarint(body, i + 1)
        i = skip(body, start)
        found[column_id] = body[start:i]
    return found


def fits(column: Column, value: Any) -> bool:
    """Whether a value is of the classes that the table names for the type."""
    wanted, found = PYTHON_TYPES[column.type.kind], type(value)
    if found is wanted or (value is None and not column.type.not_null):
        return True
    if column.type.kind in DATE_AND_TIME_KINDS:
        return found is PartialDate
    return column.type.kind is ColumnKind.TEXT and found is bytes


@pytest.mark.parametrize("scenario", ["types", "basic", "keys", "charset", "ddl"])
def test_recorded_values_are_the_recorded_bytes_again(scenario: str) -> None:
    reader, seen = RowReader(), set()
    translator = Translator(SchemaTracker(), TableFilter())
    for entry in recorded.merged(scenario):
        item = translator.translate(entry)
        for events in item.tables if isinstance(item, Transaction) else ():
            rows = zip(events.kinds, events.rows, reader.rows(events), strict=True)
            columns = {column.name: column for column in events.table.info.columns}
            for event, encoded, row in rows:
                for name, value in (row.after or row.before or {}).items():
                    assert fits(columns[name], value), (name, value)
                    seen.add(columns[name].type.kind)
                if event == DELETE and row.before:
                    there = datums(encoded)
                    for name, value in row.before.items():
                        column = columns[name]
                        if column.id in there:
                            assert put_value(column.type, value) == there[column.id], (name, value)
    if scenario == "types":
        assert seen == set(PYTHON_TYPES)


@pytest.mark.parametrize("scenario", ["types", "keys"])
def test_recorded_rows_of_every_kind_are_encoded_as_they_were(scenario: str) -> None:
    """Inserts and updates: whatever the writable columns hold, published again it is read as the same."""
    reader = RowReader()
    translator = Translator(SchemaTracker(), TableFilter())
    for entry in recorded.merged(scenario):
        item = translator.translate(entry)
        for events in item.tables if isinstance(item, Transaction) else ():
            encoder = RowEncoder(events.table.info)
            for row in reader.rows(events):
                image = row.after or row.before
                assert image is not None
                again = encoder.insert(image, 1)
                (read,) = reader.rows(TableEvents(events.table, (INSERT,), [again], 0))
                assert read.after == image


FSP = st.integers(0, 6)


@st.composite
def datetimes(draw: st.DrawFn, zone: Any = None) -> tuple[FieldType, datetime]:
    fsp = draw(FSP)
    value = draw(st.datetimes(timezones=st.none() if zone is None else st.just(zone)))
    value = value.replace(microsecond=value.microsecond - value.microsecond % 10 ** (6 - fsp))
    return kind("datetime" if zone is None else "timestamp", decimal=fsp), value


@st.composite
def times(draw: st.DrawFn) -> tuple[FieldType, timedelta]:
    fsp = draw(FSP)
    limit = 839 * 3600 * 10**fsp - 1
    return kind("time", decimal=fsp), timedelta(
        microseconds=draw(st.integers(-limit, limit)) * 10 ** (6 - fsp)
    )


@st.composite
def decimals(draw: st.DrawFn) -> tuple[FieldType, Decimal]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 30)))
    digits = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    sign, digit_tuple, _ = Decimal(digits).as_tuple()
    return kind("decimal", flen=precision, decimal=scale), Decimal((sign, digit_tuple, -scale))


ELEMENTS = tuple(f"e{number}" for number in range(64))
ENUM = kind("enum", elems=ELEMENTS)
SET = kind("set", elems=ELEMENTS)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
# A larger double is printed as an integer that only a float is equal to.
DOUBLES = st.floats(-1e15, 1e15)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | DOUBLES | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def set_value(mask: int) -> SetValue:
    return SetValue(",".join(name for bit, name in enumerate(ELEMENTS) if mask >> bit & 1), mask)


def of(field_type: FieldType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[FieldType, Any]]:
    return values.map(lambda value: (field_type, value))


PAIRS: st.SearchStrategy[tuple[FieldType, Any]] = st.one_of(
    of(kind("bigint"), st.integers(-(2**63), 2**63 - 1)),
    of(kind("bigint", unsigned=True), st.integers(0, 2**64 - 1)),
    of(kind("year"), st.just(0) | st.integers(1901, 2155)),
    of(kind("bit", flen=64), st.integers(0, 2**64 - 1)),
    of(kind("float"), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    of(kind("double"), FINITE),
    decimals(),
    of(kind("date"), st.dates()),
    datetimes(),
    datetimes(UTC),
    times(),
    of(kind("varchar"), st.text() | st.binary().filter(lambda raw: not is_text(raw))),
    of(binary("varchar"), st.binary()),
    of(ENUM, st.integers(1, 64).map(lambda number: EnumValue(ELEMENTS[number - 1], number))),
    of(SET, st.integers(0, 2**64 - 1).map(set_value)),
)


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def one_column(field_type: FieldType) -> TableInfo:
    return table(("id", key("bigint")), ("v", field_type))


def read_datum(field_type: FieldType, datum: bytes) -> Any:
    """By the generated reader and by the strict one, which must agree."""
    version = TableVersion(one_column(field_type), "s", "t", 1)
    row = b"\x08\x02\x08\x04" + datum
    (read,) = RowReader().rows(TableEvents(version, (INSERT,), [row], 0))
    strict = RowReaders(version.info, value_conversion).strict.insert(row)
    assert read.after is not None
    assert strict == (1, read.after["v"])
    return read.after["v"]


@given(PAIRS)
def test_random_values_come_back_with_class_and_bytes(pair: tuple[FieldType, Any]) -> None:
    field_type, value = pair
    datum = put_value(field_type, value)
    found = read_datum(field_type, datum)
    assert found == value
    assert type(found) is type(value)
    assert put_value(field_type, found) == datum
    if isinstance(value, float):
        assert math.copysign(1, found) == math.copysign(1, value)
    if isinstance(value, Decimal):
        assert found.as_tuple().exponent == value.as_tuple().exponent
    if isinstance(value, EnumValue | SetValue):
        assert found.number == value.number


@given(DOCUMENTS)
def test_a_document_keeps_its_bytes_and_loads_as_it_was(document: Any) -> None:
    datum = put_value(kind("json"), JsonText(json.dumps(document)))
    found = read_datum(kind("json"), datum)
    assert type(found) is JsonText
    assert found.load() == document
    assert put_value(kind("json"), found) == datum


TYPED_DOCUMENTS = [
    "0a0f00dd6d8310b89c1f",
    "0a110052e82b9dfcffff06000000",
    "0a0dfc0201ff",
    "0a0b000000000000f03f",
]


@pytest.mark.parametrize("datum", TYPED_DOCUMENTS)
def test_a_document_whose_text_does_not_say_its_type_keeps_its_bytes(datum: str) -> None:
    raw = bytes.fromhex(datum)
    found = read_datum(kind("json"), raw)
    assert put_value(kind("json"), found) == raw
    text = JsonText(str(found))
    assert put_value(kind("json"), text) != raw, "its text alone would do"


PARTIAL = [
    (kind("date"), "0000-00-00"),
    (kind("date"), "2010-00-05"),
    (kind("date"), "2010-02-30"),
    (kind("date"), "0000-01-01"),
    (kind("datetime"), "0000-00-00 00:00:00"),
    (kind("datetime", decimal=3), "2010-02-30 01:02:03.450"),
    (kind("timestamp", decimal=6), "0000-00-00 00:00:00.000000"),
]


@pytest.mark.parametrize(("field_type", "text"), PARTIAL, ids=str)
def test_dates_that_no_calendar_has_are_text(field_type: FieldType, text: str) -> None:
    datum = put_value(field_type, text)
    found = read_datum(field_type, datum)
    assert (type(found), found) == (PartialDate, text)
    assert put_value(field_type, found) == datum


@pytest.mark.parametrize("name", ["bigint", "varchar", "date", "json", "enum", "decimal", "time", "bit"])
def test_null_is_none(name: str) -> None:
    assert read_datum(kind(name), NULL_DATUM) is None
    assert put_value(kind(name), None) == NULL_DATUM


def test_a_time_finer_than_its_column_is_cut_as_its_text_is() -> None:
    raw = bytes.fromhex("08ff93ebdc03")  # -0.5 s in a TIME without digits
    assert read_datum(kind("time"), raw) == timedelta(0)
    assert read_datum(kind("time", decimal=1), raw) == -timedelta(seconds=0.5)


def test_an_element_that_the_definition_lacks_keeps_its_number() -> None:
    for number in (0, 65):
        found = read_datum(ENUM, put_value(ENUM, number))
        assert (found, found.number) == ("", number)
        assert put_value(ENUM, found) == put_value(ENUM, number)


def test_an_element_that_is_named_exactly_is_no_other() -> None:
    """gbk_chinese_ci has é and e apart, utf8mb4_general_ci ß and ss."""
    for collate, elements in (("gbk_chinese_ci", ("é", "e")), ("utf8mb4_general_ci", ("ß", "ss"))):
        letters = replace(kind("enum", elems=elements), collate=collate)
        several = replace(kind("set", elems=elements), collate=collate)
        assert put_value(letters, elements[1]) == put_value(letters, 2)
        assert put_value(several, ",".join(elements)) == put_value(several, 3)


EAST = timezone(timedelta(hours=2))
WRITTEN = [
    (kind("timestamp"), datetime(2024, 2, 29, 1, 0, tzinfo=EAST), "2024-02-28 23:00:00"),
    (kind("datetime", decimal=6), datetime(2024, 2, 29, 12, 0, 0, 250), "2024-02-29 12:00:00.000250"),
    (kind("datetime"), date(2024, 2, 29), "2024-02-29 00:00:00"),
    (kind("date"), datetime(2024, 2, 29, 12), "2024-02-29"),
    (kind("time"), time(1, 2, 3), "01:02:03"),
    (kind("time", decimal=6), -timedelta(hours=30, microseconds=1), "-30:00:00.000001"),
]


@pytest.mark.parametrize(("field_type", "value", "text"), WRITTEN, ids=str)
def test_what_programs_have_is_written_as_its_text(field_type: FieldType, value: Any, text: str) -> None:
    assert put_value(field_type, value) == put_value(field_type, text)


def test_a_time_in_a_clustered_key_may_be_a_timedelta() -> None:
    info = table(
        ("at", kind("time", not_null=True)), handle="common", indexes=(index(1, ("at", 0), primary=True),)
    )
    encoder = RowEncoder(info)
    assert encoder.insert({"at": timedelta(hours=1)}) == encoder.insert({"at": "01:00:00"})


@pytest.mark.parametrize(
    ("field_type", "value"),
    [
        (kind("datetime"), 20240229),
        (kind("time"), timedelta(hours=839)),
        (kind("time"), timedelta(microseconds=1)),
        (kind("datetime", decimal=3), datetime(2024, 1, 1, microsecond=1)),
        (kind("date"), timedelta(1)),
    ],
    ids=str,
)
def test_what_does_not_fit_names_column_and_table(field_type: FieldType, value: Any) -> None:
    with pytest.raises(UnwritableValue, match="column v of table t: "):
        RowEncoder(one_column(field_type)).insert((1, value))


@pytest.mark.parametrize("seed", range(4))
def test_values_of_random_rows_are_those_of_the_plain_form(seed: int) -> None:
    """Of rows as they are written, and of rows with changed bytes: the same values or the same error."""
    chance = Random(seed)
    made = RandomTable(chance)
    readers, encoder = RowReaders(made.info, value_conversion), RowEncoder(made.info)
    places, strict = readers.all_places, readers.strict
    fast = readers.of_insert(
        places, [f"return ({''.join(f'v{place}, ' for place in places)})"], strict.insert
    )

    def outcome(read: Callable[[bytes], object], row: bytes) -> str:
        try:
            return repr(read(row))
        except RowError as error:
            return str(error)

    for number in range(20):
        row = encoder.insert(made.row(number))
        assert repr(fast(row)) == repr(strict.insert(row))
        for _ in range(20):
            changed = bytearray(row)
            changed[chance.randrange(len(row))] ^= 1 << chance.randrange(8)
            assert outcome(fast, bytes(changed)) == outcome(strict.insert, bytes(changed))


def test_a_day_that_no_calendar_has_is_text_beside_times_that_there_are() -> None:
    info = table(("id", key("int")), *((f"c{number}", kind("datetime", decimal=3)) for number in range(5)))
    readers, encoder = RowReaders(info, value_conversion), RowEncoder(info)
    places, strict = readers.all_places, readers.strict
    fast = readers.of_insert(
        places, [f"return ({''.join(f'v{place}, ' for place in places)})"], strict.insert
    )
    odd, plain = "2026-02-30 01:02:03.004", "2026-02-28 01:02:03.004"
    values = fast(encoder.insert((1, plain, odd, "0000-00-00 00:00:00", plain, None)))
    assert values[1] == values[4] == datetime(2026, 2, 28, 1, 2, 3, 4000)
    assert (values[2], type(values[2])) == (odd, PartialDate)
    assert (values[3], values[5]) == ("0000-00-00 00:00:00.000", None)
