"""Which columns are compared, in which form, and where both servers print equal values alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drainer.changes import canonical
from drainer.compare.verify.column_pairs import ColumnPair, NotCompared, pair
from drainer.mysql.literal.downstream_column import DownstreamColumn
from drainer.mysql.rows.dialect import Dialect

MARIADB = (Dialect.MARIADB, Dialect.MARIADB)
TO_MYSQL = (Dialect.MARIADB, Dialect.MYSQL)
FROM_TIDB = (Dialect.TIDB, Dialect.MYSQL)


def column(kind: str, *, full: str = "", charset: str = "", digits: int = 0) -> DownstreamColumn:
    return DownstreamColumn("c", kind, digits=digits, charset=charset, full_type=full or kind)


def paired(
    one: DownstreamColumn, other: DownstreamColumn, dialects: tuple[Dialect, Dialect] = MARIADB
) -> ColumnPair:
    found = pair(one, other, dialects)
    assert isinstance(found, ColumnPair), found
    return found


@pytest.mark.parametrize(
    ("one", "other", "form", "text"),
    [
        (column("int"), column("bigint"), canonical.INTEGER, b"`c`"),
        (column("int", full="int(5) zerofill"), column("int"), canonical.INTEGER, b"`c`+0"),
        (column("bit"), column("bit"), canonical.UNSIGNED, b"CAST(`c` AS UNSIGNED)"),
        (column("double"), column("double"), canonical.DOUBLES, b"`c`"),
        (column("float"), column("float"), canonical.DOUBLES, b"IF(`c`<0,CONCAT('-',-`c`*1e0),`c`*1e0)"),
        (column("decimal", digits=2), column("decimal", digits=2), canonical.DECIMALS, b"`c`"),
        (column("timestamp"), column("datetime"), canonical.TIMES, b"`c`"),
        (column("varchar", charset="utf8mb4"), column("text", charset="utf8mb3"), canonical.TEXT, b"`c`"),
        (column("char"), column("char"), canonical.CHAR, b"`c`"),
        (column("text", charset="latin1"), column("text"), canonical.TEXT, b"CONVERT(`c` USING utf8mb4)"),
        (column("blob"), column("varbinary"), canonical.BINARY, b"`c`"),
        (column("enum", full="enum('a','b')"), column("enum", full="enum('b','a')"), canonical.NAMES, b"`c`"),
        (column("enum", full="enum('')"), column("enum", full="enum('')"), canonical.NUMBER, None),
        (column("enum", full="enum('a')"), column("varchar"), canonical.TEXT, b"`c`"),
        (column("json"), column("json"), canonical.DOCUMENT, b"`c`"),
    ],
)
def test_what_both_servers_print_alike_goes_into_a_checksum(
    one: DownstreamColumn, other: DownstreamColumn, form: str, text: bytes | None
) -> None:
    found = paired(one, other)
    assert found.form == form
    assert found.texts is not None
    assert found.texts[0] == (text or b"CAST(`c` AS UNSIGNED)")


@pytest.mark.parametrize(
    ("charset", "shown"),
    [
        ("latin1", b"CONVERT(`c` USING binary)"),
        ("gbk", b"CONVERT(CONVERT(`c` USING utf8mb4) USING binary)"),
    ],
)
def test_a_tidb_shows_octets_that_are_no_utf_8_as_they_are(charset: str, shown: bytes) -> None:
    text = column("varchar", charset=charset)
    found = paired(text, text, FROM_TIDB)
    assert found.shown(0) == shown
    assert found.shown(1) == b"CONVERT(CONVERT(`c` USING utf8mb4) USING binary)"


@pytest.mark.parametrize(
    ("one", "other", "dialects", "form"),
    [
        (column("double"), column("double"), FROM_TIDB, canonical.DOUBLES),
        (column("double"), column("double"), TO_MYSQL, canonical.DOUBLES),
        (column("double", full="double unsigned zerofill"), column("double"), MARIADB, canonical.DOUBLES),
        (column("json"), column("json"), FROM_TIDB, canonical.DOCUMENT),
        (column("decimal", digits=2), column("decimal", digits=4), MARIADB, canonical.DECIMALS),
        (column("int"), column("decimal", digits=2), MARIADB, canonical.DECIMALS),
        (column("datetime"), column("datetime", digits=6), MARIADB, canonical.TIMES),
        (column("char"), column("varchar"), MARIADB, canonical.CHAR),
        (column("binary", full="binary(3)"), column("binary", full="binary(4)"), MARIADB, canonical.PADDED),
        (column("binary"), column("varbinary"), MARIADB, canonical.PADDED),
    ],
)
def test_other_columns_are_read_and_it_is_said_why(
    one: DownstreamColumn, other: DownstreamColumn, dialects: tuple[Dialect, Dialect], form: str
) -> None:
    found = paired(one, other, dialects)
    assert (found.form, found.texts) == (form, None)
    assert found.why


def test_a_json_of_mariadb_is_a_document() -> None:
    text = replace(column("longtext", charset="utf8mb4"), checks_json=True)
    assert paired(text, text).form == canonical.DOCUMENT
    assert paired(column("json"), text, FROM_TIDB).form == canonical.DOCUMENT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (column("geometry"), column("geometry")),
        (column("varchar"), column("varbinary")),
        (column("date"), column("datetime")),
        (column("int"), column("varchar")),
        (replace(column("int"), generated=True), column("int")),
    ],
)
def test_what_cannot_be_compared_is_named(one: DownstreamColumn, other: DownstreamColumn) -> None:
    found = pair(one, other, MARIADB)
    assert isinstance(found, NotCompared)
    assert found.why


def test_a_generated_column_is_compared_where_both_sides_compute_it() -> None:
    made = replace(column("int"), generated=True)
    assert paired(made, made).is_generated
