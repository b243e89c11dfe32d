"""What of a table is compared, and what tells its rows apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.compare.verify.compared_table import ComparedTable, compared_table
from drainer.compare.verify.result import How
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey


def column(name: str, kind: str = "int", *, nullable: bool = False) -> DownstreamColumn:
    return DownstreamColumn(name, kind, nullable=nullable, full_type=kind)


def key(name: str, *columns: str, length: int | None = None) -> UniqueKey:
    return UniqueKey(name, tuple(KeyPart(one, length) for one in columns))


def table(columns: list[DownstreamColumn], *keys: UniqueKey) -> DownstreamTable:
    return DownstreamTable("shop", "t", tuple(columns), keys)


def compared(*tables: DownstreamTable, left_out: frozenset[str] = frozenset()) -> ComparedTable:
    found = compared_table(tables[:-1], tables[-1], left_out)
    assert isinstance(found, ComparedTable), found
    return found


A, B, C = column("a"), column("b", nullable=True), column("c")


@pytest.mark.parametrize(
    ("upstream", "downstream", "names"),
    [
        ([key("PRIMARY", "a")], [key("PRIMARY", "C")], {"c"}),
        ([key("PRIMARY", "a")], [], {"a"}),
        ([key("PRIMARY", "a")], [key("u", "c")], {"a"}),
        ([], [key("u", "c")], {"c"}),
        ([], [key("u", "a", "b")], set()),
        ([], [key("u", "a", length=3)], set()),
        ([], [], set()),
    ],
)
def test_rows_are_told_apart_by_the_best_key(
    upstream: list[UniqueKey], downstream: list[UniqueKey], names: set[str]
) -> None:
    found = compared(table([A, B, C], *upstream), table([A, B, C], *downstream))
    assert found.key_names == names
    assert {found.pairs[place].name for place in found.key} == names


def test_columns_that_are_not_compared_are_named() -> None:
    found = compared(
        table([A, B, column("gone")], key("PRIMARY", "a")),
        table([A, B, C, column("hidden")], key("PRIMARY", "a")),
        left_out=frozenset({"hidden"}),
    )
    assert found.missing == ("gone",)
    assert found.only_downstream == ("c",)
    assert [(one.name, one.how) for one in found.columns] == [
        ("a", How.CHECKSUM),
        ("b", How.CHECKSUM),
        ("c", How.NOT_COMPARED),
        ("hidden", How.NOT_COMPARED),
    ]
    assert [one.name for one in found.columns if one.is_key] == ["a"]


def test_a_table_whose_key_cannot_be_compared_is_not_compared() -> None:
    point = column("p", "geometry")
    found = compared_table([table([point, A])], table([point, A], key("PRIMARY", "p")))
    assert found == "column p of its key cannot be compared"


def test_tables_that_go_to_one_are_compared_by_what_all_have() -> None:
    one, other = table([A, C]), replace(table([A, column("c", "bigint")]), name="t2")
    found = compared(one, other, table([A, C], key("PRIMARY", "a")))
    assert found.upstream_names == (("shop", "t"), ("shop", "t2"))
    assert found.sources(0) == [b"`shop`.`t`", b"`shop`.`t2`"]
    assert {pair.name for pair in found.pairs} == {"a", "c"}


def test_a_column_that_one_of_several_tables_has_and_the_downstream_lacks_is_missing() -> None:
    one, other = table([A]), replace(table([A, C]), name="t2")
    found = compared(one, other, table([A], key("PRIMARY", "a")))
    assert found.missing == ("c",)
    assert not found.is_whole
