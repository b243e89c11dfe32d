"""SQL from encoded rows: literals, identities, coarse keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.literal.keys import lane_form_of
from drainer.mysql.literal.plan import SqlPlan, Written, compile_sql
from drainer.mysql.literal.quoting import quote_name
from tests.cases import case
from tests.common.rowcodec.recorded import DELETE, INSERT, events, history
from tests.common.rowcodec.tables import binary, column, index, key, kind, table
from tests.drainer.mysql.literal.recorded_weights import GENERAL, UNICODE, collation
from tests.drainer.support import recorded
from tidb_binlog.errors import DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import FieldType, TableInfo

LONG_BINARY = b"_binary'" + b"''\\\\" * 200 + b"'"
MILLIS = "2023-02-28 01:02:03.450"
LITERALS: list[tuple[FieldType, Any, bytes, bytes]] = [  # type, value, to store, to compare
    (kind("bigint"), -5, b"-5", b"-5"),
    (kind("bigint", unsigned=True), 2**64 - 1, b"18446744073709551615", b"18446744073709551615"),
    (kind("varchar"), "abc", b"'abc'", b"'abc'"),
    (kind("varchar"), "it's \\ 中", "'it''s \\\\ 中'".encode(), "'it''s \\\\ 中'".encode()),
    (kind("varchar"), "中", "'中'".encode(), "'中'".encode()),
    (kind("varchar"), b"\xff'", b"x'ff27'", b"x'ff27'"),
    (kind("varchar"), b"\xff", b"x'ff'", b"x'ff'"),
    (kind("varchar"), "", b"''", b"''"),
    (binary("varchar"), b"\0\xff'", b"x'00ff27'", b"x'00ff27'"),
    (binary("varchar"), b"", b"x''", b"x''"),
    (binary("blob"), b"'\\" * 200, LONG_BINARY, LONG_BINARY),
    (kind("decimal", flen=12, decimal=2), "-10.55", b"-10.55", b"-10.55"),
    (kind("double"), 1.5, b"1.5e0", b"1.5e0"),
    (kind("double"), 1e300, b"1e+300", b"1e+300"),
    (kind("double", flen=20, decimal=5), 1e-05, b"1e-05", b"0.00001"),
    (kind("float"), 1.1, b"1.100000023841858e0", b"1.100000023841858e0"),
    (kind("datetime", decimal=3), MILLIS, b"'%b'" % MILLIS.encode(), b"'%b'" % MILLIS.encode()),
    (kind("timestamp"), "0000-00-00 00:00:00", b"'0000-00-00 00:00:00'", b"'0000-00-00 00:00:00'"),
    (kind("date"), "2010-00-00", b"'2010-00-00'", b"'2010-00-00'"),
    (kind("time"), "-838:59:59", b"'-838:59:59'", b"'-838:59:59'"),
    (FieldType(13, 96, 4, 0), 0, b"0", b"'0000'"),
    (FieldType(13, 96, 4, 0), 2023, b"2023", b"'2023'"),
    (kind("bit", flen=8), 65, b"65", b"65"),
    (kind("enum", elems=("a", "b'c")), "b'c", b"'b''c'", b"2"),
    (kind("enum", elems=("a", "b'c")), 0, b"0/*enum*/", b"0"),
    (kind("enum", elems=("a",)), 9, b"0/*enum*/", b"0"),
    (kind("set", elems=("a", "b", "c")), "a,c", b"5", b"'a,c'"),
    (kind("json"), {"k": ["it's", 1.0, None, "\n"]}, b"'{\"k\": [\"it''s\", 1, null, \"\\\\n\"]}'",
     b"'{\"k\": [\"it''s\", 1, null, \"\\\\n\"]}'"),
]  # fmt: skip


def test_literals() -> None:
    for type_, value, store, compare in LITERALS:
        with case(type_, value, store, compare):
            info = table(("id", key("bigint")), ("v", type_))
            sql, encoder = compile_sql(info), RowEncoder(info)
            update = encoder.update((1, None), (1, value))
            split = sql.update_keys(update)[2]
            assert sql.insert_literals(encoder.insert((1, value))) == b"(1," + store + b")"
            assert sql.update_literals(update, split) == b"(1," + store + b")"
            assert split == sql.update_split(update) == len(encoder.delete((1, None)))
            name = b"`v`"
            if type_.tp == 15 and type_.charset != "binary":
                name = b"BINARY `v`" if compare[:1] == b"x" else b"BINARY CONVERT(`v` USING utf8mb4)"
            for image, row in (
                ("insert", encoder.insert((1, value))),
                ("delete", encoder.delete((1, value))),
                ("new", update),
            ):
                assert sql.full_row_predicate(image, row) == b"`id`<=>1 AND " + name + b"<=>" + compare
            assert sql.full_row_predicate("old", update) == b"`id`<=>1 AND `v` IS NULL"


def test_null_and_absent_columns_are_null() -> None:
    info = table(("id", key("int")), ("a", kind("int")), ("b", kind("varchar")))
    sql, encoder = compile_sql(info), RowEncoder(info)
    assert sql.insert_literals(encoder.insert((1, None, "x'"))) == b"(1,NULL,'x''')"
    assert sql.insert_literals(encoder.insert((1, None, None))) == b"(1,NULL,NULL)"


def test_a_null_that_the_server_would_fill_is_refused_by_every_way_to_write_it() -> None:
    info = table(("id", key("bigint")), ("n", kind("bigint")), ("s", kind("varchar")))
    column_n = DownstreamColumn("N", "bigint", fills_null=True)
    written = Written(downstream={info.columns[1].id: column_n}, label="d.t")
    plan, encoder = compile_sql(info, written=written), RowEncoder(info)
    row, other = (1, None, "it's"), (1, 7, None)
    assert plan.insert_literals(encoder.insert(other)) == b"(1,7,NULL)"
    assert plan.full_row_predicate("delete", encoder.delete(row)).startswith(b"`id`<=>1 AND `n` IS NULL")
    update = encoder.update(other, row)
    ways: dict[str, Callable[[], object]] = {
        "insert": lambda: plan.insert_literals(encoder.insert(row)),
        "insert without quotes": lambda: plan.insert_literals(encoder.insert((1, None, "its"))),
        "update": lambda: plan.update_literals(update, plan.update_split(update)),
        "assignments": lambda: plan.assignments("new", update),
        "any image": lambda: plan.literals_of("delete", encoder.delete(row)),
    }
    for name, write in ways.items():
        with (
            case(name),
            pytest.raises(DownstreamError, match=r"a row has NULL in d\.t\.N, which is AUTO"),
        ):
            write()


def test_a_row_with_nulls_is_escaped_as_any_other() -> None:
    json = {"k": "it's"}
    info = table(("id", key("int")), ("a", kind("varchar")), ("b", kind("varchar")), ("j", kind("json")))
    sql, encoder = compile_sql(info), RowEncoder(info)
    assert sql.insert_literals(encoder.insert((1, None, "a'b\\", None))) == b"(1,NULL,'a''b\\\\',NULL)"
    assert sql.insert_literals(encoder.insert((1, None, b"\xff", None))) == b"(1,NULL,x'ff',NULL)"
    assert (
        sql.insert_literals(encoder.insert((1, None, "é", json)))
        == "(1,NULL,'é','{\"k\": \"it''s\"}')".encode()
    )


def test_names_are_quoted() -> None:
    assert quote_name("we`ird 表") == "`we``ird 表`".encode()
    primary = index(1, ("a`b", 0), ("c", 1), primary=True)
    sql = compile_sql(table(("a`b", key("int")), ("c", key("int")), handle="rowid", indexes=(primary,)))
    assert sql.column_list == b"`a``b`,`c`"
    assert sql.key_list.names == b"(`a``b`,`c`)"


def keys_of_all_images(info: TableInfo, values: Any, rowid: int | None = None) -> set[bytes]:
    sql, encoder = compile_sql(info), RowEncoder(info)
    update = encoder.update(values, values, rowid)
    old, new, split = sql.update_keys(update)
    assert split * 2 == len(update)
    insert, delete = encoder.insert(values, rowid), encoder.delete(values, rowid)
    literals = {
        sql.key_literal_of_insert(insert), sql.key_literal_of_delete(delete),
        sql.key_literal_of_update_old(update), sql.key_literal_of_update_new(update),
    }  # fmt: skip
    assert len(literals) == 1
    coarse = sql.insert_lane_key(insert)
    assert sql.delete_lane_key(delete) == coarse
    assert sql.update_both_keys(update) == ((old, coarse), (new, coarse), split)
    if sql.lane_key_of is not None:
        assert sql.lane_key_of(old) == coarse, "as the hot path has it"
    return {sql.insert_key(insert), sql.delete_key(delete), old, new}


@pytest.mark.parametrize("value", [0, 1, 63, 64, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_unsigned_handles_have_one_identity(value: int) -> None:
    assert keys_of_all_images(table(("id", key("bigint", unsigned=True))), (value,)) == {b"%d" % value}


@pytest.mark.parametrize("name", ["char", "varchar"])
@pytest.mark.parametrize("collated", [None, GENERAL, UNICODE])
def test_the_coarse_key_of_a_text_is_told_by_its_identity(name: str, collated: str | None) -> None:
    """Where rows were seen before, lanes are found by values; they are the same ones."""
    primary = index(1, ("k", 0), primary=True)
    info = table(("k", key(name)), handle="rowid", indexes=(primary,))
    sql, encoder = compile_sql(info), RowEncoder(info)
    if collated is not None:
        sql = sql.under([collation(collated)])
    assert sql.lane_key_of is not None
    for value in ("a", "a ", "A  ", "", "  ", "é ", "\0 ", "ß", "a\u3000"):
        row = encoder.insert((value,), 1)
        assert sql.lane_key_of(sql.insert_key(row)) == sql.insert_lane_key(row), repr(value)


def test_clustered_keys_have_one_identity() -> None:
    types = [
        (key("varchar", flen=9, collate="utf8mb4_general_ci"), "Ab "), (key("char", flen=9), "ab"),
        (key("char", flen=4, charset="binary"), b"a\0\0\0"), (key("time", decimal=2), "-01:02:03.40"),
        (key("decimal", flen=9, decimal=3), "1.500"), (key("datetime"), "2020-01-02 03:04:05"),
        (key("enum", elems=("a", "b")), "b"), (key("double"), -0.0),
        (key("bigint", unsigned=True), 2**64 - 1),
        (FieldType(13, 99, 4, 0), 1999),
    ]  # fmt: skip
    for parts in (*itertools.combinations(types, 1), *itertools.combinations(types, 2), tuple(types)):
        columns = [(f"c{n}", type_) for n, (type_, _) in enumerate(parts)]
        primary = index(1, *((name, n) for n, (name, _) in enumerate(columns)), primary=True)
        info = table(*columns, ("v", kind("int")), handle="common", indexes=(primary,))
        found = keys_of_all_images(info, (*(value for _, value in parts), 7))
        assert len(found) == 1


def test_identities_are_exact() -> None:
    """Different keys have different bytes, also where one column's end could be another's beginning."""
    columns = (("a", key("varchar")), ("b", key("varchar")), ("n", key("int")))
    primary = index(1, ("a", 0), ("b", 1), ("n", 2), primary=True)
    info = table(*columns, handle="common", indexes=(primary,))
    sql, encoder = compile_sql(info), RowEncoder(info)
    texts = ["", "1", "1:", "a", "A", "a ", ",", "1:a,", "0:,"]
    values = list(itertools.product(texts, texts, (1, 11)))
    assert len({sql.delete_key(encoder.delete(value)) for value in values}) == len(values)


def test_the_key_is_the_first_that_cannot_be_null() -> None:
    columns = (("a", kind("int")), ("b", kind("int", not_null=True)), ("c", kind("int", not_null=True)))
    info = table(*columns, handle="rowid", indexes=(index(1, ("a", 0)), index(2, ("b", 1), ("c", 2))))
    sql, encoder = compile_sql(info), RowEncoder(info)
    assert [entry.name for entry in sql.key_columns] == ["b", "c"]
    row = encoder.insert((None, 1, 2), rowid=1)
    assert sql.insert_key(row) == b"1,2"
    assert sql.key_literal_of_insert(row) == b"(1,2)"


def test_a_table_without_a_usable_key() -> None:
    generated = column(2, "g", kind("int", not_null=True), generated="a+1", generated_stored=True)
    info = table(
        ("a", kind("int")), generated, handle="rowid", indexes=(index(1, ("a", 0)), index(2, ("g", 1)))
    )
    sql = compile_sql(info)
    assert sql.key_columns == ()
    with pytest.raises(RowError, match="has no key"):
        sql.insert_key(b"\x08\x02\x00")


def test_blanks_at_the_end_of_a_text_tell_no_lanes_apart() -> None:
    for type_, same in ((kind("varchar"), True), (binary("varchar"), False)):
        form = lane_form_of(type_, None)
        assert (form(b"a  ") == form(b"a")) is same
        assert form(b"a") != form(b"A")


@pytest.mark.parametrize("scenario", recorded.VARIED)
def test_recorded_rows_keep_one_identity(scenario: str) -> None:
    """Whatever is deleted or updated was inserted under the same identity bytes before."""
    past = history(scenario)
    plans: dict[int, tuple[TableInfo, SqlPlan]] = {}
    alive: dict[int, set[bytes]] = {}
    missing = 0
    for event in events(scenario):
        info = past.at(event.table_id, event.schema_version)
        _, sql = plans.setdefault(id(info), (info, compile_sql(info)))
        if not sql.key_columns:
            continue
        rows = alive.setdefault(event.table_id, set())
        if event.kind == INSERT:
            sql.insert_literals(event.row)
            rows.add(sql.insert_key(event.row))
        elif event.kind == DELETE:
            missing += sql.delete_key(event.row) not in rows
            rows.discard(sql.delete_key(event.row))
        else:
            old, new, split = sql.update_keys(event.row)
            sql.update_literals(event.row, split)
            assert split == sql.update_split(event.row)
            missing += old not in rows
            rows.discard(old)
            rows.add(new)
    # keys change their columns, and tables their ids, in these
    assert missing == 0 or scenario in ("ddl", "ddl-exchange", "ddl-multischema")
