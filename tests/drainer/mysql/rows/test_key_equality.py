"""When two values of a key are one downstream, type by type; test_causality_mariadb asks the server."""

from __future__ import annotations

from typing import Any

import pytest

from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows import causality
from drainer.mysql.rows.causality import Equality, KeyFacts, Spread, equality_downstream, key_facts, may_merge
from drainer.mysql.rows.column_match import DownstreamTable, KeyPart, UniqueKey
from tests.cases import case
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import WHOLE_COLUMN, Column, FieldType, Index, IndexColumn, TableInfo

EXACT, PADDED, COLLATED, LOOSE = Equality
WHOLE = KeyPart("k")


def column(tp: int, decimal: int = -1, collate: str = "", charset: str = "", name: str = "k") -> Column:
    charset = charset or ("binary" if collate == "binary" else "utf8mb4" if collate else "")
    flag = ti.FLAG_NOT_NULL
    return Column(1, name, 0, FieldType(tp, flag, 20, decimal, charset=charset, collate=collate))


def there(type_: str, digits: int = 0, collation: str = "", **more: Any) -> DownstreamColumn:
    charset = collation.partition("_")[0]
    return DownstreamColumn("k", type_, digits=digits, charset=charset, collation=collation, **more)


YEAR, BIGINT, DECIMAL = column(ti.YEAR), column(ti.LONGLONG), column(ti.DECIMAL, 2)
CHAR, VARCHAR = column(ti.STRING, collate="utf8mb4_bin"), column(ti.VARCHAR, collate="utf8mb4_bin")
BINARY, VARBINARY = column(ti.STRING, collate="binary"), column(ti.VARCHAR, collate="binary")
DATE, DATETIME, STAMP = column(ti.DATE), column(ti.DATETIME, 3), column(ti.TIMESTAMP, 0)
TIME, BIT, ENUM = column(ti.TIME, 3), column(ti.BIT), column(ti.ENUM)
LATIN = column(ti.VARCHAR, collate="latin1_bin", charset="latin1")
UTF8 = column(ti.VARCHAR, collate="utf8_bin", charset="utf8")

HERE: dict[Equality, list[tuple[Column, DownstreamColumn]]] = {
    EXACT: [
        (BIGINT, there("int")),
        (BIGINT, there("decimal")),
        (YEAR, there("year")),
        (YEAR, there("smallint")),
        (BINARY, there("binary")),
        (BINARY, there("varbinary")),
        (VARBINARY, there("blob")),
        (DECIMAL, there("decimal", 2)),
        (DECIMAL, there("decimal", 3)),
        (DATE, there("date")),
        (DATE, there("datetime")),
        (DATETIME, there("datetime", 3)),
        (DATETIME, there("timestamp", 6)),
        (TIME, there("time", 3)),
        (BIT, there("bit")),
        (ENUM, there("enum")),
        (VARCHAR, there("varchar", collation="utf8mb4_nopad_bin")),
        (VARCHAR, there("varchar", collation="utf8mb4_0900_bin")),
    ],
    PADDED: [
        (VARCHAR, there("varchar", collation="utf8mb4_bin")),
        (VARCHAR, there("text", collation="utf8mb4_bin")),
        (VARCHAR, there("varchar", collation="latin1_bin")),  # which every text fits into, or is refused
        (CHAR, there("char", collation="utf8mb4_nopad_bin")),
        (UTF8, there("varchar", collation="utf8mb3_bin")),
        (LATIN, there("varchar", collation="utf8mb4_bin")),
    ],
    LOOSE: [
        (BIGINT, there("year")),
        (BIGINT, there("double")),
        (YEAR, there("varchar", collation="utf8mb4_bin")),
        (VARBINARY, there("binary")),
        (VARBINARY, there("varchar", collation="utf8mb4_bin")),
        (VARCHAR, there("varchar", collation="utf8mb4_general_ci")),
        (VARCHAR, there("varchar", collation="ascii_bin")),
        (VARCHAR, there("varchar", collation="utf8_bin")),
        (VARCHAR, there("blob")),
        (DECIMAL, there("decimal", 1)),
        (DECIMAL, there("int", 5)),
        (DATETIME, there("datetime", 2)),
        (DATETIME, there("date", 3)),
        (STAMP, there("date")),
        (DATE, there("time")),
        (TIME, there("time", 2)),
        (TIME, there("datetime", 6)),
        (BIT, there("enum")),
        (ENUM, there("varchar", collation="utf8mb4_bin")),
        (column(ti.DOUBLE), there("varchar", collation="utf8mb4_bin")),
    ],
}


@pytest.mark.parametrize("equality", HERE)
def test_when_two_values_are_one_downstream(equality: Equality) -> None:
    for upstream, theirs in HERE[equality]:
        with case(upstream.type, theirs):
            assert equality_downstream(upstream, theirs) is equality


def test_a_part_of_a_key_column_is_loose() -> None:
    whole = there("varchar", collation="utf8mb4_bin", length=20)
    lengths = {None: PADDED, 20: PADDED, 21: PADDED, 19: LOOSE}
    for length, equality in lengths.items():
        assert equality_downstream(VARCHAR, whole, length) is equality
    assert equality_downstream(BIGINT, there("int"), 4) is LOOSE, "what has no length"


def test_which_keys_merge() -> None:
    double, plain = column(ti.DOUBLE), column(ti.FLOAT)
    any_case = column(ti.VARCHAR, collate="utf8mb4_general_ci")
    any_utf8 = column(ti.VARCHAR, collate="utf8_general_ci", charset="utf8")
    no_blanks = column(ti.VARCHAR, collate="utf8mb4_0900_bin")

    def text(collation: str) -> DownstreamColumn:
        return there("varchar", collation=collation, length=20)

    merging = [
        (VARCHAR, WHOLE_COLUMN, text("utf8mb4_general_ci"), WHOLE),
        (no_blanks, WHOLE_COLUMN, text("utf8mb4_bin"), WHOLE),
        (BINARY, WHOLE_COLUMN, there("varchar", collation="utf8mb4_bin"), WHOLE),
        (double, WHOLE_COLUMN, there("float"), WHOLE),
        (plain, WHOLE_COLUMN, there("double"), WHOLE),
        (any_case, WHOLE_COLUMN, text("utf8mb4_unicode_ci"), WHOLE),
        (any_case, WHOLE_COLUMN, text("utf8mb4_general_ci"), KeyPart("k", 5)),
        (any_case, 5, text("utf8mb4_general_ci"), KeyPart("k", 4)),
        (any_case, WHOLE_COLUMN, text("ascii_general_ci"), WHOLE),
        (any_case, WHOLE_COLUMN, there("blob"), WHOLE),
    ]
    apart = [
        (BIGINT, WHOLE_COLUMN, there("int"), WHOLE),
        (VARCHAR, WHOLE_COLUMN, text("utf8mb4_bin"), WHOLE),
        (VARCHAR, WHOLE_COLUMN, text("utf8mb4_nopad_bin"), WHOLE),
        (no_blanks, WHOLE_COLUMN, text("utf8mb4_0900_bin"), WHOLE),
        (double, WHOLE_COLUMN, there("double"), WHOLE),
        (plain, WHOLE_COLUMN, there("float"), WHOLE),
        (any_case, WHOLE_COLUMN, text("utf8mb4_general_ci"), WHOLE),
        (any_utf8, WHOLE_COLUMN, text("utf8mb3_general_ci"), WHOLE),
        (any_case, 5, text("utf8mb4_general_ci"), KeyPart("k", 5)),
        (any_case, 5, text("utf8mb4_general_ci"), KeyPart("k", 6)),
        (any_case, WHOLE_COLUMN, text("utf8mb4_bin"), WHOLE),
    ]
    for cases, expected in ((merging, True), (apart, False)):
        for upstream, length, theirs, part in cases:
            with case(upstream.type.collate, length, theirs.type, theirs.collation, part):
                assert may_merge(upstream, length, theirs, part) is expected


def downstream(*keys: tuple[KeyPart, ...], columns: tuple[DownstreamColumn, ...]) -> DownstreamTable:
    return DownstreamTable(
        "d", "t", columns, tuple(UniqueKey(f"k{number}", parts) for number, parts in enumerate(keys))
    )


def test_what_the_keys_of_both_sides_mean() -> None:
    key, other = column(ti.LONGLONG), column(ti.LONGLONG, name="o")
    index = Index(2, "u", (IndexColumn("o", 1),), unique=True, primary=False)
    alone, beside = TableInfo(1, "t", (key, other)), TableInfo(1, "t", (key, other), (index,))
    theirs = there("int"), DownstreamColumn("o", "int")
    loose = there("double"), theirs[1]
    one = (WHOLE,)
    none = downstream(columns=theirs)
    twice = downstream(one, (KeyPart("K"),), columns=theirs)

    def facts(info: TableInfo, given: DownstreamTable | None) -> KeyFacts:
        return key_facts(info, [key], None, given)

    assert key_facts(alone, [], None, none) == KeyFacts(Spread.BY_TABLE, others=False, unique=False)
    assert facts(alone, None) == KeyFacts(Spread.BY_KEY, others=False, unique=True)
    assert facts(beside, None) == KeyFacts(Spread.BY_TABLE, others=True, unique=True)
    assert facts(alone, none) == KeyFacts(Spread.BY_KEY, others=False, unique=False)
    assert facts(alone, downstream(one, columns=theirs)) == KeyFacts(Spread.BY_KEY, others=False, unique=True)
    assert facts(alone, twice) == KeyFacts(Spread.BY_KEY, others=False, unique=True)
    assert facts(beside, downstream(one, columns=theirs)) == KeyFacts(
        Spread.BY_TABLE, others=True, unique=True
    )
    more = downstream(one, (KeyPart("o"),), columns=theirs)
    assert facts(alone, more) == KeyFacts(Spread.BY_TABLE, others=True, unique=True)
    assert facts(alone, downstream(one, columns=loose)) == KeyFacts(
        Spread.BY_TABLE, others=False, unique=False
    )
    assert facts(alone, downstream(columns=loose[1:])) == KeyFacts(
        Spread.BY_TABLE, others=False, unique=False
    )


def test_of_two_keys_on_the_same_columns_the_looser_one_counts() -> None:
    text = column(ti.VARCHAR, collate="utf8mb4_bin")
    info = TableInfo(1, "t", (text,))
    theirs = (there("varchar", collation="utf8mb4_bin", length=20),)
    given = downstream((WHOLE,), (KeyPart("k", 3),), columns=theirs)
    own = Index(1, "PRIMARY", (IndexColumn("k", 0),), unique=True, primary=True)
    assert key_facts(info, [text], own, given) == KeyFacts(Spread.BY_TABLE, others=False, unique=False)
    given = downstream((WHOLE,), columns=theirs)
    assert key_facts(info, [text], own, given) == KeyFacts(Spread.BY_PADDED_KEY, others=False, unique=True)


def test_fold_ids_are_stable_numbers() -> None:
    """A restart of another version of the program must find the same lanes."""
    assert causality.fold_id_of(7, None) == 7
    assert causality.fold_id_of(7, ("D", "T")) == causality.fold_id_of(8, ("d", "t")) == FOLD
    assert causality.fold_id_of(7, ("d", "tt")) != causality.fold_id_of(7, ("dt", "t"))
    assert causality.lane_of_table(-1, 7) == NEGATIVE


FOLD, NEGATIVE = 4621772746726709491, 4
