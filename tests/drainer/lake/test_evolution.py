"""Every change of a column against a changelog's column, for all pairs of types."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from drainer.lake.evolution import Evolution, LakeColumn, evolution, holds, lake_type
from tests.cases import case

INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
TEXT, BINARY, DATE = pa.string(), pa.binary(), pa.date32()
TIME, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


TYPES = (
    *(INT, LONG, FLOAT, DOUBLE, TEXT, BINARY, DATE, TIME, INSTANT),
    *(dec(10, 2), dec(12, 2), dec(12, 3), dec(20, 0)),
)
WIDENS = {(INT, LONG), (FLOAT, DOUBLE), (dec(10, 2), dec(12, 2))}
"""(of the changelog, of the version): all among `TYPES`."""


def test_each_type_against_each() -> None:
    for can_widen in [True, False]:
        for same_table in [True, False]:
            for old, new in itertools.product(TYPES, TYPES):
                with case(can_widen, same_table, old, new):
                    ids = {"c": 3} if same_table else {}
                    change = evolution({"c": old}, ids, [LakeColumn("c", 3, new)], can_widen=can_widen)
                    if old == new or (new, old) in WIDENS:
                        assert change == Evolution()
                    elif (old, new) in WIDENS and can_widen:
                        assert change == Evolution(widened=(("c", new),))
                    else:
                        assert change == Evolution(obstacle=f"column c was {old} and is {new}")


@pytest.mark.parametrize("new", TYPES, ids=str)
def test_a_name_with_another_id_is_another_column_whatever_its_type(new: pa.DataType) -> None:
    for old in TYPES:
        change = evolution({"c": old}, {"c": 3}, [LakeColumn("c", 4, new)], can_widen=True)
        assert change == Evolution(obstacle="column c is another one than before")


def test_holding_is_an_order() -> None:
    for a, b, c in itertools.product(TYPES, repeat=3):
        assert holds(a, a)
        if holds(a, b) and holds(b, a):
            assert a == b
        if holds(a, b) and holds(b, c):
            assert holds(a, c)


def test_columns_come_go_and_are_renamed() -> None:
    present, ids = {"a": INT, "b": TEXT}, {"a": 1, "b": 2}
    a, b = LakeColumn("a", 1, INT), LakeColumn("b", 2, TEXT)
    new, renamed = LakeColumn("n", 3, DATE), LakeColumn("x", 2, TEXT)
    for order in itertools.permutations([a, b, new]):
        assert evolution(present, ids, order, can_widen=False) == Evolution(added=(("n", DATE),))
    assert evolution(present, ids, [a], can_widen=False) == Evolution(), "a dropped one stays"
    assert evolution(present, ids, [a, renamed], can_widen=False) == Evolution(added=(("x", TEXT),))
    swapped = [LakeColumn("b", 1, INT), LakeColumn("a", 2, TEXT)]
    assert evolution(present, ids, swapped, can_widen=True).obstacle
    dropped_and_renamed = [LakeColumn("b", 1, TEXT)]
    assert evolution(present, ids, dropped_and_renamed, can_widen=True).obstacle


def test_case_is_no_other_name() -> None:
    change = evolution({"Amount": INT}, {"amount": 1}, [LakeColumn("AMOUNT", 1, LONG)], can_widen=True)
    assert change == Evolution(widened=(("Amount", LONG),))
    assert evolution({"A": INT}, {"A": 1}, [LakeColumn("a", 2, INT)], can_widen=True).obstacle


@pytest.mark.parametrize(
    ("arrow", "lake"),
    [
        *((kind, INT) for kind in (pa.int8(), pa.int16(), INT)),
        (pa.duration("us"), LONG),
        *((kind, kind) for kind in TYPES[1:]),
    ],
    ids=str,
)
def test_types_that_both_formats_have(arrow: pa.DataType, lake: pa.DataType) -> None:
    assert lake_type(arrow) == lake
