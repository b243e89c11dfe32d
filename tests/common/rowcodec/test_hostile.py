"""Rows that cannot be right: refused with the column's name, quickly, without large allocations."""

from __future__ import annotations

import re
import struct
import time
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drainer.mysql.literal.plan import compile_sql
from tests.cases import case
from tests.common.rowcodec.agreeing import CLUSTERED, HIDDEN, PLANS, WIDE, outcome, outcomes_agree
from tests.common.rowcodec.tables import column, index, key, kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder, UnwritableValue
from tidb_binlog.rowcodec.plan import TablePlan, compile_table
from tidb_binlog.rowcodec.put import put_value
from tidb_binlog.rowcodec.row_error import RowError, UnsupportedTable
from tidb_binlog.rowcodec.strict import PAIRS_MAX
from tidb_binlog.rowcodec.varint import put_svarint, put_uvarint
from tidb_binlog.table_info import FieldType, TableInfo

INFO = table(("id", key("bigint")), ("v", kind("bigint")), ("s", kind("varchar")))


def bits(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def one(type_: FieldType) -> TablePlan:
    return compile_table(table(("id", key("bigint")), ("v", type_)))


# (type of column v, datum of column v): the error must name v
DATUMS: list[tuple[str, FieldType, str]] = [
    ("truncated int", kind("bigint"), "08"),
    ("truncated varint", kind("bigint"), "0880"),
    ("truncated float", kind("double"), "05bff0"),
    ("truncated decimal", kind("decimal", flen=4, decimal=2), "06040275"),
    ("varint above 64 bits", kind("bigint"), "08ffffffffffffffffff02"),
    ("varint of eleven bytes", kind("bigint"), "08ffffffffffffffffffff01"),
    ("negative string length", kind("varchar"), "0201"),
    ("string too long", kind("varchar"), "020661"),
    ("string of 2**62 bytes", kind("varchar"), "02" + put_svarint(2**62).hex()),
    ("unknown flag 0x14", kind("bigint"), "1400000000"),
    ("unknown flag 0x0b", kind("bigint"), "0b"),
    ("unknown flag 0xfa", kind("bigint"), "fa"),
    ("unknown flag 0xff", kind("bigint"), "ff"),
    ("comparable int", kind("bigint"), "038000000000000001"),
    ("comparable bytes", kind("varchar"), "0161000000000000 00f8"),
    ("decimal precision 0", kind("decimal", flen=4, decimal=2), "060002"),
    ("decimal scale above precision", kind("decimal", flen=4, decimal=2), "06020380000000"),
    ("decimal precision 66", kind("decimal", flen=4, decimal=2), "064200" + "80" + "00" * 40),
    ("decimal scale 31", kind("decimal", flen=4, decimal=2), "06411f" + "80" + "00" * 40),
    ("decimal chunk out of range", kind("decimal", flen=9, decimal=0), "060900bb9aca00"),
    ("JSON unknown type", kind("json"), "0a06"),
    ("JSON size beyond the row", kind("json"), "0a0300000000ff000000"),
    ("JSON size below the header", kind("json"), "0a030000000007000000"),
    ("JSON count beyond the size", kind("json"), "0a03ffffffff08000000"),
    ("JSON literal 3", kind("json"), "0a0403"),
    ("JSON element before its place", kind("json"), "0a03010000000d0000000304000000"),
    ("JSON element outside", kind("json"), "0a03010000000d00000009f0000000"),
    ("JSON key outside", kind("json"), "0a01010000001300000040000000010004 00000000"),
    ("JSON number without end", kind("json"), "0a0b0000000000000000"[:12]),
    ("JSON infinite", kind("json"), "0a0b000000000000f07f"),
    ("infinite", kind("double"), "05fff0000000000000"),
    ("not a number", kind("double"), "05fff8000000000000"),
    ("too large for FLOAT", kind("float"), "05ffefffffffffffff"),
    ("SET bit without element", kind("set", elems=("a", "b")), "0904"),
    ("negative SET", kind("set", elems=("a", "b")), "0801"),
    ("negative BIT", kind("bit", flen=4), "0801"),
    ("minute 60", kind("datetime"), "09" + put_uvarint((2020 * 13 + 1) << 46 | 1 << 41 | 60 << 30).hex()),
    ("microsecond 1000000", kind("datetime"), "09" + put_uvarint(26261 << 46 | 1 << 41 | 10**6).hex()),
    ("year 10000", kind("date"), "09" + put_uvarint((10000 * 13 + 1) << 46 | 1 << 41).hex()),
    ("TIME of 900 hours", kind("time"), "08" + put_svarint(900 * 3600 * 10**9).hex()),
    ("a string for an integer", kind("bigint"), "020261"),
    ("an integer for a string", kind("varchar"), "0802"),
    ("an integer for JSON", kind("json"), "0802"),
    ("an integer for a double", kind("double"), "0802"),
    ("a string for a time", kind("datetime"), "020261"),
    ("a string for TIME", kind("time"), "020261"),
    ("a string for a decimal", kind("decimal", flen=4, decimal=2), "020261"),
]  # fmt: skip


def test_wrong_values_are_refused_by_name() -> None:
    for what, type_, datum in DATUMS:
        with case(what):
            plan = one(type_)
            sql = compile_sql(table(("id", key("bigint")), ("v", type_)))
            for decode, front in (
                (plan.decode_insert, "0802 0804"),
                (plan.decode_delete, "0802 0802 0804"),
                (plan.decode_update, "0802 0802 0804 00 0802 0802 0804"),
                (sql.insert_literals, "0802 0804"),
                (lambda row, sql=sql: sql.update_literals(row, 7), "0802 0802 0804 00 0802 0802 0804"),
            ):
                with pytest.raises(RowError, match=r"table t \(53\) column v at byte") as caught:
                    decode(bits(front) + bits(datum))
                assert caught.value.column == "v"


ROWS = [
    ("insert", "", "row ends inside the handle"),
    ("insert", "0802", "row without a body"),
    ("insert", "020261 00", "handle"),
    ("insert", "0902 00", "handle"),
    ("insert", "00 00", "handle"),
    ("delete", "", "row without a body"),
    ("delete", "80000000", "row format 2"),
    ("insert", "0802 80000100", "row format 2"),
    ("delete", "020261 0802", "column id has datum flag 0x02"),
    ("delete", "08", "row ends inside a column id"),
    ("delete", "0802", "column id without a value"),
    ("delete", "00 0802", "bytes after an empty body"),
    ("insert", "0802 00 00", "bytes after an empty body"),
    ("delete", "0802 0802 0802 0802", "occurs twice"),
    ("delete", "0802 0802 0863 0802 0863 0802", "occurs twice"),
    ("delete", "0804 0802", "column is missing"),
    ("delete", "0802 0802 0804 0802 08", "row ends inside a column id"),
    ("delete", "0802 0802 0804 0802 00", "column id has datum flag 0x00"),
    ("delete", "00", "column is missing"),
    ("update", "", "update without columns"),
    ("update", "00 00", "update without columns"),
    ("update", "0802 0802", "second half"),
    ("update", "0802 0802 0804 0802", "second half"),
    ("update", "0802 0802 0804 0802 0802 0802", "different columns"),
    ("update", "0802 0802 0802 0802 0804 0802", "different columns"),
    ("update", "0802 0802 0804 0802 0802 0802 0806 00", "different columns"),
    ("update", "0802 0802 0804 0802 0802 0802 0804 0802 0802 0802", "occurs twice"),
]


def test_wrong_rows_are_refused() -> None:
    for image, row, what in ROWS:
        with case(image, row, what):
            plan = compile_table(INFO)
            with pytest.raises(RowError, match=what):
                getattr(plan, f"decode_{image}")(bits(row))


def test_too_few_handle_datums() -> None:
    info = table(
        ("a", key("int")), ("b", key("int")), ("c", kind("int")), handle="common",
        indexes=(index(1, ("a", 0), ("b", 1), primary=True),),
    )  # fmt: skip
    with pytest.raises(RowError):
        compile_table(info).decode_insert(bits("0802 0806 0802"))
    with pytest.raises(RowError, match=r"column b.*handle"):
        compile_table(info).decode_insert(bits("0802"))


def test_more_columns_than_a_table_can_have() -> None:
    body = b"".join(b"\x08" + put_svarint(number) + b"\x00" for number in range(1, PAIRS_MAX + 10))
    with pytest.raises(RowError, match="more columns than a table can have"):
        compile_table(INFO).decode_insert(b"\x08\x02" + body)


def test_json_nested_too_deeply() -> None:
    plan, depth = one(kind("json")), 100
    deep = '{"a":' * (depth - 1) + "[]" + "}" * (depth - 1)
    row = bits("0802 0804") + put_value(kind("json"), deep)
    assert plan.decode_insert(row)[1].startswith('{"a": ')
    inner = struct.pack("<II", 0, 8)
    for _ in range(depth):
        inner = struct.pack("<IIBI", 1, 13 + len(inner), 3, 13) + inner
    with pytest.raises(RowError, match="deeper than 100") as caught:
        plan.decode_insert(bits("0802 0804 0a03") + inner)
    assert caught.value.column == "v"
    with pytest.raises(UnwritableValue, match="deeper"):
        RowEncoder(table(("id", key("int")), ("v", kind("json")))).insert((1, "[" * 101 + "]" * 101))


KINDS = (
    "bigint",
    "float",
    "decimal",
    "char",
    "blob",
    "enum",
    "set",
    "date",
    "datetime",
    "time",
    "bit",
    "json",
)
UNFIT: list[Any] = [
    *(
        "secret",
        "\ud800secret",
        b"\xffsecret",
        "9" * 5000,
        "[secret",
        "[" * 10**5,
        "1e999999999",
        "2024-13-01",
    ),
    *(float("nan"), float("inf"), 10**400, Decimal("NaN"), Decimal("1e999999"), -1, 2**70, complex(1)),
    *(object(), [1], [float("nan")], {"n": 10**400}, {1, 2}, datetime(2024, 1, 1), time_of_day(1), True),
]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_can_be_read_and_what_is_refused_is_in_no_text(name: str) -> None:
    """A row that cannot be read ends who reads it; a text of Python's own may have the value in it."""
    info = table(("id", key("bigint")), ("v", kind(name, elems=("a", "b"), flen=5, decimal=2)))
    encoder, plan, written, texts = RowEncoder(info), compile_table(info), [], []
    for value in UNFIT:
        try:
            row = encoder.insert((1, value))
        except UnwritableValue as error:
            texts.append(error.message)
            continue
        plan.decode_insert(row)
        written.append(value)
    assert not [text for text in texts if re.search(r"secret|999|convert|limit|argument|codec", text)]
    numbers = [value for value in written if isinstance(value, int) and name in ("char", "blob")]
    assert not numbers, "a number as so many zeros"


def test_json_that_would_multiply_is_refused() -> None:
    """Elements that share one value: printed naively, each level doubles the text."""
    levels, blob = 60, bytearray()
    for level in range(levels):
        size = 18 + 18 * (levels - level - 1) + 8
        blob += struct.pack("<IIBIBI", 2, size, 3, 18, 3, 18)
    blob += struct.pack("<II", 0, 8)
    started = time.process_time()
    with pytest.raises(RowError, match="outside its place"):
        one(kind("json")).decode_insert(bits("0802 0804 0a03") + bytes(blob))
    assert time.process_time() - started < 1


def test_unsupported_types_are_named() -> None:
    with pytest.raises(UnsupportedTable, match="column v of table t"):
        compile_table(table(("id", key("int")), ("v", FieldType(0xFF))))


def test_no_constant_stands_for_a_default_that_is_none() -> None:
    info = table(("id", key("int")), column(2, "at", kind("datetime"), origin_default="CURRENT_TIMESTAMP"))
    with pytest.raises(RowError, match=r"column at.*missing"):
        compile_table(info).decode_insert(bits("0802 00"))


def test_errors_show_no_values() -> None:
    secret = "very secret"
    row = bits("0802 0806") + put_value(kind("varchar"), secret) + b"\x08"
    with pytest.raises(RowError) as caught:
        compile_table(INFO).decode_insert(row)
    assert secret not in str(caught.value)


def test_tables_of_one_shape_share_their_code_and_name_their_own_columns() -> None:
    """A thousand shards are compiled once."""
    plans = {name: compile_table(table(("id", key("bigint")), (name, kind("json")))) for name in ("v", "w")}
    assert plans["v"].decode_insert.__code__ is plans["w"].decode_insert.__code__
    for name, plan in plans.items():
        with pytest.raises(RowError, match=rf"column {name} at byte"):
            plan.decode_insert(bits("0802 0804 0802"))


# -- the generated readers and the strict one agree; of mutated rows too: see tests/fuzz --------------


def milliseconds(at: datetime) -> str:
    return at.isoformat(" ", "microseconds")[:-3]


wide_rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.text(max_size=70),
    st.none() | st.binary(max_size=70),
    st.none() | st.decimals(-9999999999, 9999999999, places=2).map(lambda number: f"{number + 0:.2f}"),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.none() | st.datetimes().map(milliseconds),
    st.dates().map(str),
    st.none() | st.times().map(lambda at: at.isoformat("microseconds")),
    st.none() | st.integers(1901, 2155),
    st.none() | st.sampled_from(("a", "b'c")),
    st.none() | st.sampled_from(("", "p", "q,r", "p,q,r")),
    st.none() | st.integers(0, 4095),
    st.none() | st.sampled_from(("null", "[]", '{"a": [1, true, "x"]}', '"text"', "1.5", "-7")),
)  # fmt: skip
clustered_rows = st.tuples(
    st.text(max_size=10),
    st.text(max_size=5).map(lambda text: text.rstrip(" ")),
    st.times().map(lambda at: at.isoformat("seconds")),
    st.none() | st.integers(-(2**31), 2**31 - 1),
)


def check_all(info: TableInfo, values: Any, other: Any, rowid: int | None = None) -> None:
    plan, sql, encoder = PLANS[info.columns]
    rows = (
        encoder.insert(values, rowid),
        encoder.delete(values, rowid),
        encoder.update(values, other, rowid),
    )
    assert repr(plan.decode_insert(rows[0])) == repr(plan.decode_delete(rows[1]))
    assert repr(plan.decode_update(rows[2])) == repr(
        (plan.decode_delete(rows[1]), plan.decode_delete(encoder.delete(other, rowid)))
    )
    for row in rows:
        assert outcomes_agree(plan, sql, row)


quick = settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))


@quick
@given(wide_rows, wide_rows)
def test_rows_of_every_type(values: Any, other: Any) -> None:
    check_all(WIDE, values, other)


@quick
@given(clustered_rows, clustered_rows)
def test_rows_with_a_clustered_key(values: Any, other: Any) -> None:
    check_all(CLUSTERED, values, other)


@quick
@given(
    st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=5)),
    st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=5)),
    st.integers(0, 2**32),
)
def test_rows_with_a_hidden_row_id(values: Any, other: Any, rowid: int) -> None:
    check_all(HIDDEN, values, other, rowid)


def test_every_strict_prefix_is_refused() -> None:
    values = (1, 2, "text", b"raw", "1.50", 1.5, 2.5, "2020-01-02 03:04:05.678", "2020-01-02",
              "01:02:03.456789",               2020, "a", "p", 5, '{"a": 1}')  # fmt: skip
    plan, _, encoder = PLANS[WIDE.columns]
    row, boundaries = encoder.delete(values), set()
    for size in range(len(row)):
        if outcome(plan.decode_delete, row[:size])[0] == "value":
            boundaries.add(size)
    pairs = {len(encoder.delete(values[:n] + (None,) * (15 - n))) - 3 * (15 - n) for n in range(1, 15)}
    assert boundaries == pairs  # only where a column ends, and the rest may be absent
    update = encoder.update(values, values)
    for size in range(len(update)):
        assert outcome(plan.decode_update, update[:size])[0] == "error"


@pytest.mark.parametrize(
    "make",
    [
        lambda: bits("0802 0804 02") + put_svarint(2**40) + bytes(1 << 20),
        lambda: bits("0802 0804 0a03") + struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF8) + bytes(1 << 20),
        lambda: bits("0802 0804 0a03") + struct.pack("<II", 200_000, 1 << 20) + bytes(1 << 20),
        lambda: bits("0802") + b"\x08\x04\x00" * (1 << 18),
        lambda: bits("0802") + b"".join(b"\x08" + put_svarint(n) + b"\x00" for n in range(5, 1 << 18)),
        lambda: bits("0802 0804 06") + b"\x41\x1e" + b"\xff" * (1 << 20),
        lambda: bits("0802 0804 08") + b"\xff" * (1 << 20),
    ],
    ids=["string", "json", "json-count", "repeated", "unknown", "decimal", "varint"],
)
def test_wrong_rows_cost_no_more_than_they_weigh(make: Callable[[], bytes]) -> None:
    row = make()
    for type_ in (kind("varchar"), kind("json"), kind("decimal", flen=65, decimal=30), kind("bigint")):
        plan = one(type_)
        tracemalloc.start()
        started = time.process_time()
        for decode in (plan.decode_insert, plan.decode_delete, plan.decode_update):
            with pytest.raises(RowError):
                decode(row)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.process_time() - started < 2
        assert peak < 2 * len(row) + (1 << 20)
