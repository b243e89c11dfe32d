"""Conditions of table versions: sides, three values of logic, odd rows, and every refusal."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from drainer.stream.rules.row_rule import compile_where
from drainer.stream.rules.where.compiler import RowCondition
from tests.cases import case
from tests.drainer.stream.rules.where.typed_table import pairs, predicate, rows, table
from tidb_binlog.errors import ConfigError
from tidb_binlog.rowcodec.datum import skip
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.row_error import RowError
from tidb_binlog.table_info import (
    BLOB,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    LONG,
    LONGLONG,
    VARCHAR,
    Column,
    FieldType,
    TableInfo,
)

INFO = table()
ENCODER = RowEncoder(INFO)


def of(text: str, info: TableInfo = INFO) -> RowCondition:
    return compile_where(text, "`row-rule` 1: where").of(info, "shop.t")


def row(**values: Any) -> dict[str, Any]:
    return {"id": 1, **values}


def test_an_update_says_what_it_was_and_what_it_is() -> None:
    condition = of("i > 5")
    assert not condition.is_about_change
    for old, new in itertools.product((None, 5, 6), repeat=2):
        half = ENCODER.delete(row(i=old))
        encoded = ENCODER.update(row(i=old), row(i=new))
        assert condition.update(encoded) == (old == 6, new == 6, len(half))
        assert condition.insert(ENCODER.insert(row(i=new))) == (new == 6)
        assert condition.delete(half) == (old == 6)


def test_a_condition_about_the_change_is_asked_once() -> None:
    condition = of("before.i <> after.i OR before.i IS NULL")
    assert condition.is_about_change
    for old, new in itertools.product((None, 5, 6), repeat=2):
        encoded = ENCODER.update(row(i=old), row(i=new))
        wanted = old is None or (new is not None and old != new)
        assert condition.update(encoded)[:2] == (wanted, wanted)
    assert condition.insert(ENCODER.insert(row(i=5)))  # nothing before
    assert not condition.delete(ENCODER.delete(row(i=5)))  # nothing after: NULL
    assert of("after.i IS NULL AND i = 5").delete(ENCODER.delete(row(i=5)))
    assert not of("after.i IS NULL AND i = 5").insert(ENCODER.insert(row(i=5)))
    assert of("i = 6 AND before.i = 5").update(ENCODER.update(row(i=5), row(i=6)))[:2] == (True, True)


@pytest.mark.parametrize(
    ("text", "answers"),
    [  # of i = NULL, 0, 1
        ("i = 1", (None, False, True)),
        ("i = NULL", (None, None, None)),
        ("i <=> NULL", (True, False, False)),
        ("i <=> 1", (False, False, True)),
        ("i IS NULL", (True, False, False)),
        ("i IN (1, NULL)", (None, None, True)),
        ("i IN (NULL)", (None, None, None)),
        ("i NOT IN (0, NULL)", (None, False, None)),
        ("i BETWEEN 1 AND NULL", (None, False, None)),
        ("i NOT BETWEEN 1 AND NULL", (None, True, None)),
        ("i = 1 AND bi = 1", (None, False, None)),  # bi is NULL
        ("i = 1 OR bi = 1", (None, None, True)),
        ("i = bi", (None, None, None)),
        ("i <=> bi", (True, False, False)),
        ("i IN (bi, 1)", (None, None, True)),
        ("1 = i", (None, False, True)),
        ("0 < i", (None, False, True)),
    ],
)
def test_three_values_of_logic(text: str, answers: tuple[bool | None, ...]) -> None:
    holds, fails = of(text), of(f"NOT ({text})")
    for value, answer in zip((None, 0, 1), answers, strict=True):
        encoded = ENCODER.insert(row(i=value))
        assert (holds.insert(encoded), fails.insert(encoded)) == (answer is True, answer is False), value


def test_rows_in_another_order_of_columns_have_the_same_answer() -> None:
    draw = random.Random(7)
    made = rows(draw, 12)
    for _ in range(200):
        condition = of(predicate(draw))
        for one in made:
            image = ENCODER.delete(one)
            mixed = pairs(image)
            draw.shuffle(mixed)
            odd = b"".join(mixed)
            wanted = condition.delete(image)
            assert condition.delete(odd) == wanted
            assert condition.update(odd + odd) == (wanted, wanted, len(odd))
            key = image[2 : skip(image, 2)]  # the id's datum stands in front of an INSERT
            assert condition.insert(key + b"".join(pair for pair in mixed if pair[1] != 2)) == wanted


def test_a_row_that_cannot_be_right_is_an_error() -> None:
    for ask in (of("i = 1").insert, of("i = 1").delete, of("i = 1").update):
        with pytest.raises(RowError):
            ask(b"\x80nonsense")


def test_what_has_no_sure_answer_is_refused_with_rule_and_column() -> None:
    for text, what in [
        ("nothing = 1", "names column nothing, which shop.t does not have"),
        ("i = '1'", "shop.t.i is compared with a text"),
        ("de < '1'", "shop.t.de is compared with a text"),
        ("vb = 1", "shop.t.vb is compared with a number"),
        ("vb = DATE '2024-01-01'", "compared with a DATE"),
        ("da = 20240101", "compared with a number"),
        ("da = 'tomorrow'", "'tomorrow', which is no date or time"),
        ("da = '2024-02-30'", "a day that does not exist"),
        ("da = DATE '2024-01-01 10:00:00'", "no date or time"),
        ("dt = TIME '10:00:00'", "compared with a TIME"),
        ("tm = '2024-01-01'", "no TIME"),
        ("tm = '839:00:00'", "no TIME"),
        ("tm = da", "a TIME, compared with da, a date or time of a day"),
        ("y = 24", "a YEAR, compared with 24"),
        ("bi = 9007199254740993e0", "stands for several whole numbers"),
        ("vb = i", "a text, compared with i, an exact number"),
        ("vb = vg", "of the collation utf8mb4_general_ci, not utf8mb4_bin"),
        ("en = st", "an ENUM, compared with st, a SET"),
        ("en BETWEEN 'a' AND 2", "between a text and a number"),
        ("i LIKE '1%'", "LIKE is about texts"),
        ("vg LIKE 'a%'", "of the collation utf8mb4_general_ci, and LIKE is for binary collations"),
        ("en LIKE 'a%'", "of the collation utf8mb4_general_ci, and LIKE is for binary collations"),
        ("js = '1'", "JSON, of which only IS NULL is known"),
        ("1 = 1", "two values are compared"),
        ("1 IN (i)", "a value is asked about"),
        ("NULL IS NULL", "a value is asked about"),
    ]:
        with case(text, what):
            with pytest.raises(ConfigError) as raised:
                of(text)
            assert raised.value.message.startswith("`row-rule` 1: where")
            assert what in raised.value.message
            assert raised.value.hint


def test_a_missing_column_is_refused_with_those_that_are_there() -> None:
    key = Column(1, "id", 0, FieldType(LONGLONG, FLAG_NOT_NULL | FLAG_PRIMARY))
    made = Column(2, "made", 1, FieldType(LONG), generated="`id` + 1")
    info = TableInfo(1, "t", (key, made), pk_is_handle=True)
    with pytest.raises(ConfigError, match="it has id;"):
        of("gone = 1", info)
    with pytest.raises(ConfigError, match="a generated column"):
        of("made = 1", info)


def test_an_unknown_collation_is_refused_where_text_is_compared() -> None:
    column = Column(2, "name", 1, FieldType(VARCHAR, charset="utf8mb4", collate="utf8mb4_german2_ci"))
    info = TableInfo(1, "t", (INFO.columns[0], column), pk_is_handle=True)
    with pytest.raises(ConfigError, match=r"shop.t.name is of the collation utf8mb4_german2_ci"):
        of("name = 'a'", info)
    assert of("name IS NULL", info).insert(RowEncoder(info).insert({"id": 1, "name": None}))


def test_json_is_null_or_not() -> None:
    assert of("js IS NOT NULL").insert(ENCODER.insert(row(js='{"a": 1}')))
    assert not of("js IS NOT NULL").insert(ENCODER.insert(row()))


def test_names_are_found_in_any_case_and_text_of_rules_never_becomes_code() -> None:
    name = "a b`;import os#"
    info = TableInfo(
        1, "t", (INFO.columns[0], Column(2, name, 1, FieldType(BLOB, charset="binary"))), pk_is_handle=True
    )
    quoted = name.replace("`", "``").upper()
    condition = of(f"`{quoted}` = '\"); raise SystemExit'", info)
    assert condition.insert(RowEncoder(info).insert({"id": 1, name: b'"); raise SystemExit'}))
    assert "SystemExit" not in str(condition.insert.__doc__)
    assert "import" not in str(condition.insert.__doc__)
