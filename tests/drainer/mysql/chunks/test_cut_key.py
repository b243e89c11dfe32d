"""Which columns a table is cut by: any order to copy, only one that both servers share to compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.mysql.chunks.cut_key import ROWID, WHOLE, CutKey, key_to_compare, key_to_copy
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from drainer.mysql.rows.dialect import Dialect


def text(name: str, collation: str = "utf8mb4_bin") -> DownstreamColumn:
    charset = collation.partition("_")[0]
    return DownstreamColumn(name, "varchar", 20, nullable=False, charset=charset, collation=collation)


def plain(name: str, kind: str, **more: int | bool) -> DownstreamColumn:
    return replace(DownstreamColumn(name, kind, nullable=False), **more)  # type: ignore[arg-type]


def made(*columns: DownstreamColumn, keys: dict[str, tuple[str, ...]] | None = None) -> DownstreamTable:
    """A table whose columns are its primary key, or with other keys."""
    keys = keys if keys is not None else {"PRIMARY": tuple(column.name for column in columns)}
    unique = tuple(UniqueKey(name, tuple(map(KeyPart, parts))) for name, parts in keys.items())
    return DownstreamTable("s", "t", columns, unique, dialect=Dialect.MARIADB)


def shown(key: CutKey) -> tuple[tuple[str, ...], str, bool]:
    return key.names, key.index, key.unique


def test_to_copy_any_order_will_do() -> None:
    table = made(text("a", "utf8mb4_unicode_ci"), plain("b", "datetime"))
    assert shown(key_to_copy(table)) == (("a", "b"), "PRIMARY", True)


def test_the_key_that_identifies_rows_best() -> None:
    id_, a, n = plain("id", "bigint"), text("a"), plain("n", "int", nullable=True)
    table = made(id_, a, n, keys={"PRIMARY": ("id",), "k": ("a",)})
    assert shown(key_to_copy(table)) == (("id",), "PRIMARY", True)
    assert key_to_copy(table).is_integer
    assert shown(key_to_copy(made(id_, a, n, keys={"u": ("n",), "k": ("a",)}))) == (("a",), "k", True)
    assert shown(key_to_copy(made(id_, a, n, keys={"k": ("a", "n")}))) == (("a",), "k", False)
    assert key_to_copy(made(id_, a, n, keys={"u": ("n",)})) == WHOLE
    assert key_to_copy(made(id_, a, n, keys={})) == WHOLE


def test_hidden_row_ids() -> None:
    key = key_to_copy(made(text("a")), hidden_rowid=True)
    assert shown(key) == ((ROWID,), "", True)
    assert key.is_integer


@pytest.mark.parametrize("kind", ["enum", "set", "float", "double"])
def test_types_that_never_cut(kind: str) -> None:
    assert shown(key_to_copy(made(plain("a", "int"), plain("e", kind)))) == (("a",), "PRIMARY", False)
    assert key_to_copy(made(plain("e", kind))) == WHOLE


def test_a_part_of_a_column_does_not_cut() -> None:
    parts = (KeyPart("a"), KeyPart("b", 4), KeyPart("c"))
    table = replace(made(text("a"), text("b"), text("c")), unique_keys=(UniqueKey("PRIMARY", parts),))
    assert shown(key_to_copy(table)) == (("a",), "PRIMARY", False)
    table = replace(table, unique_keys=(UniqueKey("PRIMARY", (KeyPart(None), KeyPart("a"))),))
    assert key_to_copy(table) == WHOLE


BIN = text("c")


@pytest.mark.parametrize(
    ("here", "there", "alike"),
    [
        (plain("c", "int"), plain("C", "bigint"), True),
        (plain("c", "int"), plain("c", "decimal"), True),
        (plain("c", "int"), text("c"), False),
        (plain("c", "decimal", digits=4), plain("c", "decimal", digits=4), True),
        (plain("c", "decimal", digits=4), plain("c", "decimal", digits=2), False),
        (plain("c", "datetime", digits=3), plain("c", "datetime", digits=3), True),
        (plain("c", "datetime", digits=3), plain("c", "datetime"), False),
        (plain("c", "datetime"), plain("c", "timestamp"), False),
        (plain("c", "binary", length=4), plain("c", "binary", length=4), True),
        (plain("c", "binary", length=4), plain("c", "binary", length=5), False),
        (plain("c", "binary", length=4), plain("c", "varbinary", length=4), False),
        (plain("c", "varbinary", length=4), plain("c", "varbinary", length=4), True),
        (BIN, BIN, True),
        (text("c", "utf8mb4_general_ci"), text("c", "utf8mb4_general_ci"), True),
        (text("c", "utf8_bin"), text("c", "utf8mb3_bin"), True),
        (text("c", "utf8mb4_general_ci"), BIN, False),
        (text("c", "utf8mb4_0900_ai_ci"), text("c", "utf8mb4_0900_ai_ci"), False),
        (text("c", "latin1_swedish_ci"), text("c", "latin1_swedish_ci"), False),
    ],
)
def test_to_compare_both_have_to_sort_alike(
    here: DownstreamColumn, there: DownstreamColumn, alike: bool
) -> None:
    id_ = plain("id", "int")
    key = key_to_compare(made(id_, here), made(id_, there))
    assert shown(key) == ((("id", "c"), "PRIMARY", True) if alike else (("id",), "PRIMARY", False))
    assert (key_to_compare(made(here), made(there)) != WHOLE) == alike


def test_columns_with_other_values_there_do_not_cut() -> None:
    table = made(plain("ID", "int"), BIN, keys={"PRIMARY": ("ID",), "k": ("c",)})
    assert key_to_compare(table, table, frozenset({"id"})).names == ("c",)
    assert key_to_compare(table, table, frozenset({"id", "c"})) == WHOLE
    assert key_to_compare(table, made(BIN)).names == ("c",)
