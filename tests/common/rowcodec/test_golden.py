"""The worked examples of the row format: bytes against values, both ways, case by case."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.cases import case
from tests.common.rowcodec.tables import binary, column, index, key, kind, table
from tidb_binlog.rowcodec.binary_json import read_json
from tidb_binlog.rowcodec.decimals import put_decimal, read_decimal
from tidb_binlog.rowcodec.encoder import RowEncoder, prewrite_value
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.table_info import FieldType, TableInfo
from tidb_binlog.wire import binlog_pb2


def bits(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def one_column(type_: FieldType) -> TableInfo:
    return table(("id", key("bigint")), ("v", type_))


INT = kind("bigint")
UNSIGNED = kind("bigint", unsigned=True)
TEXT = kind("varchar")
VARBINARY = binary("varchar")
DOUBLE = kind("double")
FLOAT = kind("float")
YEAR = FieldType(13, 97, 4, 0)  # YEAR is flagged unsigned and written signed
SET64 = tuple(f"e{n}" for n in range(64))

VALUES: list[tuple[FieldType, str, Any]] = [
    (INT, "00", None), (TEXT, "00", None), (DOUBLE, "00", None), (kind("json"), "00", None),
    (INT, "0800", 0), (INT, "0802", 1), (INT, "0801", -1),
    (INT, "087e", 63), (INT, "088001", 64), (INT, "087f", -64), (INT, "088101", -65),
    (INT, "08fe7f", 8191), (INT, "08808001", 8192), (INT, "0880808001", 1048576),
    (kind("tinyint"), "08fe01", 127), (kind("tinyint"), "08ff01", -128),
    (kind("int"), "08feffffff0f", 2147483647), (kind("int"), "08ffffffff0f", -2147483648),
    (INT, "08feffffffffffffffff01", 2**63 - 1), (INT, "08ffffffffffffffffff01", -(2**63)),
    (UNSIGNED, "0900", 0), (UNSIGNED, "097f", 127), (UNSIGNED, "098001", 128),
    (UNSIGNED, "09ffffffff0f", 2**32 - 1), (UNSIGNED, "09ffffffffffffffffff01", 2**64 - 1),
    (YEAR, "089e1f", 1999),
    (TEXT, "0200", ""), (VARBINARY, "020600ff0a", b"\x00\xff\n"),
    (TEXT, "027e" + "61" * 63, "a" * 63), (TEXT, "028001" + "61" * 64, "a" * 64),
    (TEXT, "0206646566", "def"), (TEXT, "0208f09f9880", "😀"), (TEXT, "020ce4b8ade69687", "中文"),
    (DOUBLE, "058000000000000000", 0.0), (DOUBLE, "057fffffffffffffff", -0.0),
    (DOUBLE, "05bff0000000000000", 1.0), (DOUBLE, "05400fffffffffffff", -1.0),
    (DOUBLE, "05c0091eb851eb851f", 3.14), (FLOAT, "05c0091eb860000000", 3.140000104904175),
    (FLOAT, "05c018000000000000", 6.0), (FLOAT, "05bff19999a0000000", 1.100000023841858),
    (DOUBLE, "05ffefffffffffffff", 1.7976931348623157e308),
    (DOUBLE, "050010000000000000", -1.7976931348623157e308), (DOUBLE, "058000000000000001", 5e-324),
    (kind("timestamp"), "0900", "0000-00-00 00:00:00"), (kind("date"), "0900", "0000-00-00"),
    (kind("datetime", decimal=3), "0900", "0000-00-00 00:00:00.000"),
    (kind("timestamp", decimal=6), "09bf84bdd8ac96a5c519", "2011-11-10 11:11:11.999999"),
    (kind("datetime"), "09808080d8ac94c5c319", "2010-10-10 10:11:11"),
    (kind("datetime", decimal=6), "09c0c4878080c090b219", "2000-01-01 00:00:00.123456"),
    (kind("datetime"), "098080808080c0e001", "0001-01-01 00:00:00"),
    (kind("date"), "098080808080c090d90c", "1000-01-01"),
    (kind("datetime"), "09808080d8efeffff97e", "9999-12-31 23:59:59"),
    (kind("datetime", decimal=3), "09d0bb9b988882ded719", "2023-02-28 01:02:03.450"),
    (kind("datetime", decimal=6), "09d0bb9b988882ded719", "2023-02-28 01:02:03.450000"),
    (kind("timestamp"), "098080808880c0b08119", "1970-01-01 00:00:01"),
    (kind("timestamp"), "09808080b8b8c6f9ef19", "2038-01-19 03:14:07"),
    (kind("time"), "08808094ae98c606", "04:00:00"), (kind("time"), "08ffb7bdc1dad801", "-01:02:03"),
    (kind("time", decimal=3), "0880bda4b0cfcc14", "12:34:56.789"),
    (kind("time", decimal=1), "08ff93ebdc03", "-00:00:00.5"),
    (kind("time"), "0880d8cc97aec2dd0a", "838:59:59"), (kind("time"), "08ffd7cc97aec2dd0a", "-838:59:59"),
    (kind("enum", elems=("y", "n")), "0902", "n"), (kind("set", elems=("n1", "n2")), "0901", "n1"),
    (kind("bit", flen=24), "09b0e0c401", 3223600), (kind("bit", flen=8), "0941", 0b1000001),
    (kind("set", elems=("a", "b", "c")), "0905", "a,c"),
    (kind("set", elems=SET64), "09ffffffffffffffffff01", ",".join(SET64)),
    (kind("bit", flen=64), "09ffffffffffffffffff01", 2**64 - 1),
]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(other) in type(one).__mro__ and one == other


def test_values() -> None:
    for type_, datum, value in VALUES:
        with case(type_, datum, value):
            plan = compile_table(one_column(type_))
            row = bits("0802 0802 0804") + bits(datum)
            assert same(plan.decode_delete(row)[1], value)
            assert same(plan.strict.delete(row)[1], value)
            assert same(plan.decode_insert(bits("0802 0804") + bits(datum))[1], value)
            assert put_value(type_, value) == bits(datum)


def test_a_float_time_without_fraction_digits_keeps_its_sign() -> None:
    plan = compile_table(one_column(kind("time")))
    assert plan.decode_insert(bits("0802 0804 08ff93ebdc03")) == (1, "-00:00:00")


DECIMALS = [
    ("060e04810dfb38d204d2", "1234567890.1234"), ("060e047ef204c72dfb2d", "-1234567890.1234"),
    ("06040275c8", "-10.55"), ("0607038000000a", "0.010"),
    ("060a038000007b01c2", "123.450"), ("06140a7fffffff84e52d8b7fff", "-123.4500000000"),
    ("061e1980000000bc614e35b7bf870087fdd9", "0.0123456789012345678912345"),
    ("061e0580000000000004d21dcd8b9400c350", "1234500009876.50000"),
    ("0606048b26ac", "11.9900"), ("06010080", "0"), ("06010081", "1"), ("0601007e", "-1"),
    ("06010185", "0.5"), ("0605057ffffe", "-0.00001"),
    ("064100e33b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff", "9" * 65),
    ("0641001cc4653600c4653600c4653600c4653600c4653600c4653600c4653600", "-" + "9" * 65),
    ("06411e85f5e0ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff03e7", "9" * 35 + "." + "9" * 30),
    ("062613800000007b1b3a0c14075bcd1500b71b0000", "123456789012.1234567890120000000"),
]  # fmt: skip


@pytest.mark.parametrize(("datum", "text"), DECIMALS)
def test_decimals(datum: str, text: str) -> None:
    raw = bits(datum)
    assert read_decimal(raw, 0) == (text, len(raw))
    assert put_decimal(text, raw[1], raw[2]) == raw
    plan = compile_table(one_column(kind("decimal", flen=raw[1], decimal=raw[2])))
    assert plan.decode_insert(bits("0802 0804") + raw) == (1, text)


JSONS = [
    ("0a0400", "null"), ("0a0401", "true"), ("0a0402", "false"),
    ("0a09ffffffffffffffff", "-1"), ("0a0affffffffffffffff", "18446744073709551615"),
    ("0a0b0000000000000c40", "3.5"),
    ("0a0c00", '""'), ("0a0c04f09f9880", '"😀"'),
    ("0a010000000008000000", "{}"), ("0a030000000008000000", "[]"),
    ("0a01010000001c0000001300000001000914000000610200000000000000", '{"a": 2}'),
    ("0a030400000026000000091c0000000c240000000400000000040100000001000000000000000132",
     '[1, "2", null, true]'),
    (
        "0a0103000000770000002900000001002a00000001002b0000000100032c00000004010000000400000000616263050000004b"
        "00000009210000000c29000000012b000000094300000004000000000100000000000000013201000000180000001300000002"
        "000c1500000061610262620400000000000000",
        '{"a": [1, "2", {"aa": "bb"}, 4, null], "b": true, "c": null}',
    ),
]  # fmt: skip
TYPED_JSONS = [  # their text does not say what they are
    ("0a0f00dd6d8310b89c1f", '"2023-02-28 01:02:03.450000"'),
    ("0a110052e82b9dfcffff06000000", '"-01:02:03.000000"'),
    ("0a0dfc0201ff", '"base64:type252:Af8="'),
]


@pytest.mark.parametrize(("datum", "text"), JSONS + TYPED_JSONS)
def test_json(datum: str, text: str) -> None:
    raw = bits(datum)
    assert read_json(raw, 0) == (text.encode(), len(raw))
    assert compile_table(one_column(kind("json"))).decode_insert(bits("0802 0804") + raw) == (1, text)
    if (datum, text) in JSONS:
        assert put_value(kind("json"), text) == raw


@pytest.mark.parametrize(
    ("number", "text"),
    [(4.0, "4"), (1e-6, "0.000001"), (1e-7, "1e-7"), (1e21, "1e+21"), (1e20, "1" + "0" * 20), (-0.0, "-0"),
     (1.5e16, "15000000000000000"), (1.25e-9, "1.25e-9"), (-2.5e-5, "-0.000025"), (1e100, "1e+100")],
)  # fmt: skip
def test_json_numbers_print_as_in_the_database(number: float, text: str) -> None:
    assert read_json(put_value(kind("json"), [number]), 0)[0].decode() == f"[{text}]"


def test_json_strings_escape_as_in_the_database() -> None:
    document = '\\ " \n \r \t \x01 \x1f \u2028 \u2029 < > & é \x7f'
    wanted = '"\\\\ \\" \\n \\r \\t \\u0001 \\u001f \\u2028 \\u2029 < > & é \x7f"'
    assert read_json(put_value(kind("json"), [document]), 0)[0].decode() == f"[{wanted}]"
    assert read_json(b"\x0a\x0c\x03a\xffb", 0)[0] == b'"a\\ufffdb"'


T1 = table(("id", key("int")), ("name", kind("varchar", flen=24)))
HIDDEN = table(("a", kind("varchar")), ("b", INT), handle="rowid")


def plans_of(info: TableInfo) -> tuple[TablePlan, RowEncoder]:
    return compile_table(info), RowEncoder(info)


def test_rows_of_a_table_with_an_integer_key() -> None:
    plan, encoder = plans_of(T1)
    for row, values in (
        ("0802 0804 020261", (1, "a")),
        ("0804 0804 020262", (2, "b")),
        ("080a 00", (5, None)),
    ):
        assert plan.decode_insert(bits(row)) == values
        assert encoder.insert(values) == bits(row)
    update = bits("0802 0804 0804 020262 0802 0804 0804 020264")
    assert plan.decode_update(update) == ((2, "b"), (2, "d"))
    assert encoder.update((2, "b"), (2, "d")) == update
    assert plan.decode_delete(bits("0802 0804 0804 020264")) == (2, "d")
    assert encoder.delete((2, "d")) == bits("0802 0804 0804 020264")


def test_unsigned_handles_arrive_as_signed_numbers() -> None:
    plan, encoder = plans_of(table(("id", key("bigint", unsigned=True))))
    assert plan.decode_insert(bits("0801 00")) == (2**64 - 1,)
    assert plan.decode_delete(bits("0802 09ffffffffffffffffff01")) == (2**64 - 1,)
    assert encoder.insert((2**64 - 1,)) == bits("0801 00")
    assert encoder.delete((2**64 - 1,)) == bits("0802 09ffffffffffffffffff01")


def test_rows_with_a_hidden_row_id() -> None:
    plan, encoder = plans_of(HIDDEN)
    insert, delete = bits("0804 0802 0206646566 0804 0824"), bits("0802 0206646566 0804 0824 0801 0804")
    assert plan.decode_insert(insert) == plan.decode_delete(delete) == ("def", 18)
    assert encoder.insert(("def", 18), rowid=2) == insert
    assert encoder.delete(("def", 18), rowid=2) == delete
    two, encode_two = plans_of(table(("a", INT), ("b", TEXT), handle="rowid"))
    update = bits("0802 0814 0804 00 0801 0806 0802 0816 0804 020278 0801 0806")
    assert two.decode_update(update) == ((10, None), (11, "x"))
    assert encode_two.update((10, None), (11, "x"), rowid=3) == update


def test_clustered_keys() -> None:
    primary = index(1, ("a", 0), ("b", 1), primary=True)
    info = table(
        ("a", key("varchar", flen=10, charset="binary")), ("b", key("bigint")), ("c", kind("int")),
        handle="common", indexes=(primary,),
    )  # fmt: skip
    plan, encoder = plans_of(info)
    insert, delete = bits("02046b31 080e 0806 08c801"), bits("0802 02046b31 0804 080e 0806 08c801")
    assert plan.decode_insert(insert) == plan.decode_delete(delete) == (b"k1", 7, 100)
    assert encoder.insert((b"k1", 7, 100)) == insert
    assert encoder.delete((b"k1", 7, 100)) == delete


def test_clustered_time_key() -> None:
    info = table(
        ("t", key("time")), ("c", kind("int")), handle="common", indexes=(index(1, ("t", 0), primary=True),)
    )
    plan, encoder = plans_of(info)
    insert, delete = bits("0780000354649ac200 0804 0802"), bits("0802 088088d6c98cd501 0804 0802")
    assert plan.decode_insert(insert) == plan.decode_delete(delete) == ("01:01:01", 1)
    assert encoder.insert(("01:01:01", 1)) == insert
    assert encoder.delete(("01:01:01", 1)) == delete
    assert plan.decode_insert(bits("077ffffc9d2be85200 0804 0802")) == ("-01:02:03", 1)


def test_the_body_wins_over_a_sort_key_in_front() -> None:
    info = table(
        ("s", key("varchar", flen=10, collate="utf8mb4_general_ci")),
        handle="common", indexes=(index(1, ("s", 0), primary=True),),
    )  # fmt: skip
    plan, encoder = plans_of(info)
    assert plan.decode_insert(bits("02040041 0802 020261")) == ("a",)
    assert encoder.insert(("a",)) == bits("02040041 0802 020261")


def test_a_row_of_ten_types() -> None:
    types = (
        INT, kind("int"), TEXT, kind("decimal", flen=12, decimal=2), kind("datetime"),
        kind("datetime", decimal=3), DOUBLE, kind("tinyint"), TEXT, kind("enum", elems=("a", "b")),
    )  # fmt: skip
    info = table(*((f"c{n}", type_) for n, type_ in enumerate(types)), handle="rowid")
    plan, encoder = plans_of(info)
    body = bits(
        "0802 08a8e8c8e99707 0804 0854 0806 02046869 0808 060c02800000303943 080a 09808080988882ded719"
        "080c 09d0bb9b988882ded719 080e 05c0091eb851eb851f 0810 0802 0812 00 0814 0902"
    )
    values = (
        123456789012, 42, "hi", "12345.67", "2023-02-28 01:02:03", "2023-02-28 01:02:03.450", 3.14, 1, None,
        "b",
    )  # fmt: skip
    assert plan.decode_insert(bits("0802") + body) == values
    assert plan.decode_delete(body + bits("08010802")) == values
    assert encoder.delete(values, rowid=1) == body + bits("08010802")


def test_a_whole_transaction() -> None:
    payload = bits(
        "081b 125c 0835 120708020804020261 120708040804020262 120708040804020263"
        "1a12080208020804020261080208020804020263 1a12080208040804020262080208040804020264"
        "3209080208040804020264 3800 3800 3801 3801 3804 3800"
    )
    encoder = RowEncoder(T1)
    rows = [
        encoder.insert((1, "a")), encoder.insert((2, "b")), encoder.update((1, "a"), (1, "c")),
        encoder.update((2, "b"), (2, "d")), encoder.delete((2, "d")), encoder.insert((2, "c")),
    ]  # fmt: skip
    assert prewrite_value(27, [(53, (0, 0, 1, 1, 2, 0), rows)]) == payload
    mutation = binlog_pb2.PrewriteValue.FromString(payload).mutations[0]
    plan = compile_table(T1)
    assert [plan.decode_insert(row) for row in mutation.inserted_rows] == [(1, "a"), (2, "b"), (2, "c")]
    assert [plan.decode_update(row)[1] for row in mutation.updated_rows] == [(1, "c"), (2, "d")]


YEARS = {"0": 2000, "0000": 0, "00": 2000, "5": 2005, "0069": 2069, "70": 1970, "1970": 1970}
"""As TiDB reads the text of a default."""


def test_columns_absent_from_a_row() -> None:
    info = table(
        ("id", key("int")),
        ("nullable", kind("int")),
        column(3, "later", kind("int"), origin_default="5"),
        ("zero", kind("int", not_null=True)),
        ("text", kind("varchar", not_null=True)),
        ("fixed", binary("char", flen=3, not_null=True)),
        ("time", kind("time", not_null=True, decimal=1)),
        ("at", kind("datetime", not_null=True)),
        ("pick", kind("enum", not_null=True, elems=("x", "y"))),
        ("json", kind("json", not_null=True)),
        column(11, "bits", kind("bit", flen=7), origin_default="A", origin_default_bit=b"A"),
        column(12, "money", kind("decimal", flen=6, decimal=2), origin_default="1.5"),
        column(13, "stamp", kind("timestamp", decimal=3), origin_default="2020-01-02 03:04:05.678"),
        ("real", kind("double", not_null=True)),
        column(15, "set", kind("set", elems=("p", "q", "r")), origin_default="p,r"),
        *(column(16 + n, f"year{n}", kind("year"), origin_default=text) for n, text in enumerate(YEARS)),
        ("year", kind("year", not_null=True)),
        column(40, "cut", kind("char", flen=2), origin_default="日本語"),
        column(
            41, "bytes", binary("varchar", flen=2), origin_default="\ufffdA"
        ),  # of x'ff41', as TiDB keeps it
    )
    plan = compile_table(info)
    wanted = (
        1, None, 5, 0, "", b"\0\0\0", "00:00:00.0", "0000-00-00 00:00:00", "x", "null", 65, "1.50",
        "2020-01-02 03:04:05.678", 0.0, "p,r", *YEARS.values(), 0, "日本", b"\xef\xbf",
    )  # fmt: skip
    assert plan.decode_insert(bits("0802 00")) == wanted
    assert plan.decode_delete(bits("0802 0802")) == wanted
    assert plan.decode_insert(bits("0802 0806 00"))[2] is None  # NULL in spite of the default is explicit


def test_a_column_that_is_not_in_the_row_holds_its_origin_default() -> None:
    info = table(("id", key("int")), column(2, "v", kind("int"), origin_default="7"))
    assert compile_table(info).decode_insert(bits("0802 00")) == (1, 7)


def test_columns_in_any_order_and_unknown_ones() -> None:
    plan = compile_table(table(("a", INT), ("b", INT), handle="rowid"))
    assert plan.decode_insert(bits("0802 0804 0804 0802 0802")) == (1, 2)
    assert plan.decode_insert(bits("0802 0802 0802 089c01 020278 0804 0804")) == (1, 2)
    update = bits("0804 0804 0802 0802 0806 00 0804 0808 0802 0806 0806 00")
    assert plan.decode_update(update) == (
        (1, 2),
        (3, 4),
    )


def test_generated_and_hidden_columns_are_passed_over() -> None:
    info = table(
        ("id", key("int")),
        column(2, "stored", kind("int"), generated="a+1", generated_stored=True),
        column(3, "virtual", kind("varchar"), generated="x"),
        column(4, "hidden", FieldType(8, array=True), generated="y", hidden=True),
        column(5, "going", kind("int"), state=2),
        ("v", kind("int")),
    )
    plan = compile_table(info)
    assert [entry.name for entry in plan.columns] == ["id", "v"]
    assert plan.decode_insert(bits("0802 0804 0806 080c 0804")) == (1, 2)
    assert plan.decode_insert(bits("0802 0804 0806 080a 0802 080c 0804")) == (1, 2)
    deleted = bits("0802 0802 0804 0806 0806 020278 0808 0a030000000008000000 080c 0804")
    assert plan.decode_delete(deleted) == (1, 2)


def test_lenient_where_the_format_asks_for_it() -> None:
    plan = compile_table(one_column(kind("enum", elems=("a",))))
    for number in (0, 7):
        value = plan.decode_insert(bits("0802 0804 09") + bytes((number,)))[1]
        assert (value, value.number) == ("", number)
    assert compile_table(one_column(INT)).decode_insert(bits("0802 0804 0907")) == (1, 7)
    assert compile_table(one_column(UNSIGNED)).decode_insert(bits("0802 0804 080e")) == (1, 7)
    assert compile_table(one_column(INT)).decode_insert(bits("0802 0804 088000")) == (1, 0)
    assert compile_table(one_column(TEXT)).decode_insert(bits("0802 0804 0202ff")) == (1, b"\xff")
    assert compile_table(one_column(kind("date"))).decode_insert(
        bits("0802 0804") + put_value(kind("date"), "2010-02-30")
    ) == (1, "2010-02-30")
    body_07 = bits("0802 0804 0780000354649ac200")
    assert compile_table(one_column(kind("time"))).decode_insert(body_07) == (1, "01:01:01")
