"""One table with a column of every type, values and literals for each: what tests of `where` draw from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidb_binlog.rowcodec.datum import skip
from tidb_binlog.rowcodec.varint import svarint
from tidb_binlog.table_info import (
    BIT,
    BLOB,
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLAG_NOT_NULL,
    FLAG_PRIMARY,
    FLAG_UNSIGNED,
    FLOAT,
    JSON,
    LONG,
    LONGLONG,
    SET,
    STRING,
    TIME,
    TIMESTAMP,
    TINY,
    VARCHAR,
    YEAR,
    Column,
    ColumnKind,
    FieldType,
    TableInfo,
)

Draw = random.Random
LATIN = ["a", "B", "Ab", "a b", "", "a_", "a%", "b\\", "Z9", "_", "-", "0", "a'", "aB", "^", "~"]
WIDER = [*LATIN, "é", "E", "ß", "s", "Ä", "ä", "Ж", "ж", "İ", "😀", "\ufffd", "中", "ﬁ", "Ω"]
PADDED = ["a ", "a", "a\t", " a", "A  ", "a\x01", "", " "]
DAYS = ["2024-01-01", "2023-12-31", "2024-02-29", "1970-01-01", "9999-12-31", "2024-01-02"]
MOMENTS = ["2024-01-01 00:00:00", "2024-01-01 10:00:00", "2023-12-31 23:59:59", "2024-02-29 12:30:15"]
FRACTIONS = [f"{moment}.{fraction}" for moment in MOMENTS for fraction in ("5", "123", "999")]
TIMES = [
    "10:00:00",
    "-00:00:01",
    "00:00:00",
    "838:59:59",
    "-838:59:59",
    "23:59:59",
    "10:00:00.5",
    "09:59:59.25",
]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@dataclass(frozen=True)
class Typed:
    """A column: how servers declare it, its values (as the encoder takes them), literals of its kind."""

    name: str
    sql: str
    type: FieldType
    values: Sequence[Any]
    literals: Sequence[str]
    likes: Sequence[str] = ()

    def column(self, number: int) -> Column:
        return Column(number + 2, self.name, number + 1, self.type)


def _texts(name: str, sql: str, collate: str, texts: Sequence[str], tp: int = VARCHAR) -> Typed:
    field_type = FieldType(tp, flen=20, charset="utf8mb4", collate=collate)
    values = [text.rstrip(" ") for text in texts] if tp == STRING else list(texts)
    likes = ["a%", "%a", "_", "a\\_", "a\\%%", "%b%", "", "%", "A%", "_b", "a_", "é%", "b\\\\"]
    likes = likes if collate.endswith("_bin") else []
    declared = f"{sql} CHARACTER SET utf8mb4 COLLATE {collate}"
    return Typed(name, declared, field_type, values, [_quoted(text) for text in texts], likes)


def _binary(name: str, sql: str, tp: int, flen: int) -> Typed:
    field_type = FieldType(tp, flen=flen, charset="binary", collate="binary")
    values = [b"", b"a", b"a ", b"A", b"a\x00", b"\xff\xfe", b"ab", b"\xc3\xa9"]
    if tp == STRING:
        values = [value.ljust(flen, b"\0") for value in values]
    literals = ["'a'", "''", "'a '", "'é'", "x'6100'", "x'ff'", "x'61000000'", "'A'"]
    return Typed(name, sql, field_type, values, literals, ["a%", "_", "%", "a_", "__"])


def _numbers(name: str, sql: str, tp: int, values: Sequence[Any], flag: int = 0, **more: Any) -> Typed:
    literals = [
        "0", "1", "-1", "1.5", "-0.5", "2", "127", "128", "255", "256", "1e2", "1.5e0", "-1e-1", "0.1",
        "9223372036854775807", "9223372036854775808", "18446744073709551615", "-9223372036854775808",
        "99999999999999999999", "1.0", "100.00001", "9007199254740993", "9.007199254740991e15",
        "12345678901234567890123456789.5", "+3", ".25", "7.",
    ]  # fmt: skip
    return Typed(name, sql, FieldType(tp, flag, charset="binary", collate="binary", **more), values, literals)


_DECIMALS = [
    "0.00000",
    "1.00000",
    "-1.00000",
    "1.50000",
    "0.10000",
    "100.00001",
    "-0.50000",
    "9007199254740993.00000",
]
_DOUBLES = [0.0, 1.0, 0.1, -0.5, 1.5, 1e100, 9007199254740992.0, 18446744073709551616.0]
_WHOLE = ["0", "1", "-1", "18446744073709551615", "127"]
_ENUM_LITERALS = ["'a'", "'b'", "'B'", "'e'", "'nothing'", "''", "1", "2", "0", "7", "'c d '"]
_SET_LITERALS = ["'x'", "'X,y'", "''", "'z'", "3", "0", "7", "'y,x'"]
_ENUM_TEXTS = ("a", "B", "c d", "é", "ab")
_SET_TEXTS = ("x", "Y", "z")
COLUMNS: Sequence[Typed] = (
    _numbers("ti", "TINYINT", TINY, [0, 1, -1, 127, -128, 2]),
    _numbers("i", "INT", LONG, [0, 1, -1, 2, 100, 127, 128, 255, -(2**31)]),
    _numbers("bi", "BIGINT", LONGLONG, [0, 1, -1, 2**63 - 1, -(2**63), 9007199254740993, 100]),
    _numbers("bu", "BIGINT UNSIGNED", LONGLONG, [0, 1, 2**63, 2**64 - 1, 2**63 - 1, 100], FLAG_UNSIGNED),
    Typed(
        "y", "YEAR", FieldType(YEAR, FLAG_UNSIGNED, charset="binary", collate="binary"),
        [1901, 2024, 2000, 2155, 0], ["2024", "1901", "2000", "2155", "1999", "2024.5", "0", "3000"],
    ),
    _numbers("b", "BIT(8)", BIT, [0, 1, 2, 255, 127], flen=8),
    _numbers("f", "FLOAT", FLOAT, [0.0, 1.0, 0.1, -0.5, 1.5, 100.0, 255.0]),
    _numbers("d", "DOUBLE", DOUBLE, _DOUBLES),
    _numbers("de", "DECIMAL(30,5)", DECIMAL, _DECIMALS, flen=30, decimal=5),
    _numbers("dz", "DECIMAL(20,0)", DECIMAL, _WHOLE, flen=20, decimal=0),
    _texts("vb", "VARCHAR(20)", "utf8mb4_bin", [*WIDER, *PADDED]),
    _texts("vg", "VARCHAR(20)", "utf8mb4_general_ci", [*WIDER, *PADDED]),
    _texts("vu", "VARCHAR(20)", "utf8mb4_unicode_ci", [*LATIN, *PADDED]),
    _texts("ch", "CHAR(20)", "utf8mb4_bin", [*LATIN, *PADDED], STRING),
    _texts("tx", "TEXT", "utf8mb4_general_ci", [*WIDER, *PADDED], BLOB),
    _binary("vy", "VARBINARY(10)", VARCHAR, 10),
    _binary("bn", "BINARY(4)", STRING, 4),
    _binary("bl", "BLOB", BLOB, 65535),
    Typed(
        "da", "DATE", FieldType(DATE, charset="binary", collate="binary"),
        [*DAYS, "0000-00-00"], [_quoted(one) for one in (*DAYS, *MOMENTS)] + ["DATE '2024-01-01'"],
    ),
    Typed(
        "dt", "DATETIME", FieldType(DATETIME, charset="binary", collate="binary", decimal=0),
        MOMENTS, [*map(_quoted, (*DAYS, *MOMENTS, *FRACTIONS)), "TIMESTAMP '2024-01-01 10:00:00'"],
    ),
    Typed(
        "d3", "DATETIME(3)", FieldType(DATETIME, charset="binary", collate="binary", decimal=3),
        FRACTIONS, [_quoted(one) for one in (*DAYS, *MOMENTS, *FRACTIONS)],
    ),
    Typed(
        "ts", "TIMESTAMP(6) NULL", FieldType(TIMESTAMP, charset="binary", collate="binary", decimal=6),
        FRACTIONS, [_quoted(one) for one in (*DAYS, *MOMENTS, *FRACTIONS)],
    ),
    Typed(
        "tm", "TIME(2)", FieldType(TIME, charset="binary", collate="binary", decimal=2),
        TIMES, [*map(_quoted, TIMES), "TIME '10:00:00'"],
    ),
    Typed(
        "en", "ENUM('a','B','c d','é','ab') CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        FieldType(ENUM, charset="utf8mb4", collate="utf8mb4_general_ci", elems=_ENUM_TEXTS),
        _ENUM_TEXTS, _ENUM_LITERALS,
    ),
    Typed(
        "eb", "ENUM('a','B','c d','é','ab') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        FieldType(ENUM, charset="utf8mb4", collate="utf8mb4_bin", elems=_ENUM_TEXTS),
        _ENUM_TEXTS, _ENUM_LITERALS, ["a%", "_", "%d", "A%"],
    ),
    Typed(
        "st", "SET('x','Y','z') CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        FieldType(SET, charset="utf8mb4", collate="utf8mb4_general_ci", elems=_SET_TEXTS),
        ["", "x", "Y", "x,Y", "x,Y,z", "z"], _SET_LITERALS,
    ),
    Typed(
        "sb", "SET('x','Y','z') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        FieldType(SET, charset="utf8mb4", collate="utf8mb4_bin", elems=_SET_TEXTS),
        ["", "x", "Y", "x,Y", "x,Y,z", "z"], _SET_LITERALS, ["x%", "%z", ""],
    ),
)  # fmt: skip
JSON_COLUMN = Column(
    len(COLUMNS) + 2, "js", len(COLUMNS) + 1, FieldType(JSON, charset="binary", collate="binary")
)
BY_NAME = {one.name: one for one in COLUMNS}


def table() -> TableInfo:
    key = Column(
        1, "id", 0, FieldType(LONGLONG, FLAG_NOT_NULL | FLAG_PRIMARY, charset="binary", collate="binary")
    )
    columns = (key, *(one.column(number) for number, one in enumerate(COLUMNS)), JSON_COLUMN)
    return TableInfo(1, "t", columns, pk_is_handle=True)


def declaration() -> str:
    columns = ", ".join(f"`{one.name}` {one.sql}" for one in COLUMNS)
    return f"CREATE TABLE t (id BIGINT PRIMARY KEY, {columns}, js JSON)"


def rows(draw: Draw, count: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(count):
        row: dict[str, Any] = {"id": number, "js": None}
        for one in COLUMNS:
            row[one.name] = None if draw.random() < 0.12 else draw.choice(one.values)
        made.append(row)
    return made


# -- expressions ------------------------------------------------------------------------------------------

_BEYOND_SIGNED = ("9223372036854775808", "18446744073709551615", "99999999999999999999")
_TIMES = (ColumnKind.DATE, ColumnKind.DATETIME, ColumnKind.TIMESTAMP, ColumnKind.TIME)
_OPS = ("=", "<>", "<", "<=", ">", ">=", "<=>", "!=")
_NUMERIC = ("ti", "i", "bi", "bu", "b", "f", "d", "de", "dz")
_PAIRS = (
    *((left, right) for left in _NUMERIC for right in _NUMERIC),
    ("vb", "ch"), ("vg", "tx"), ("vy", "bl"), ("bn", "vy"), ("dt", "d3"), ("da", "dt"), ("ts", "dt"),
)  # fmt: skip


def predicate(draw: Draw, *, tame: bool = False) -> str:
    """A comparison. `tame`: none of those that MySQL 8.0 answers otherwise than its manual has it: numbers
    beyond the column's range in IN, those from 2^63 on in BETWEEN, NULL as a bound of dates or of times."""
    one = draw.choice(COLUMNS)
    name, maybe_not = one.name, draw.choice(("", "NOT "))

    def value() -> str:
        return "NULL" if draw.random() < 0.05 else draw.choice(one.literals)

    def bound() -> str:
        """Elements by name or by number, not both."""
        if one.type.kind in (ColumnKind.ENUM, ColumnKind.SET) or (tame and one.type.kind in _TIMES):
            return draw.choice([literal for literal in one.literals if not literal.isdigit()])
        found = value()
        return "1" if tame and found in _BEYOND_SIGNED else found

    def item() -> str:
        if draw.random() < 0.05 and not (tame and one.type.kind is ColumnKind.TIME):
            return "NULL"
        if tame and one.type.kind in (ColumnKind.SIGNED, ColumnKind.UNSIGNED, ColumnKind.BIT):
            return draw.choice(("0", "1", "2", "100"))
        return draw.choice(
            [literal for literal in one.literals if not (tame and literal.startswith("TIME "))]
        )

    kinds: list[Callable[[], str]] = [
        lambda: f"{name} {draw.choice(_OPS)} {value()}",
        lambda: f"{value()} {draw.choice(_OPS)} {name}",
        lambda: f"{name} {maybe_not}BETWEEN {bound()} AND {bound()}",
        lambda: f"{name} {maybe_not}IN ({', '.join(item() for _ in range(draw.randint(1, 5)))})",
        lambda: f"{name} IS {maybe_not}NULL",
    ]
    if one.likes:
        kinds.append(lambda: f"{name} {maybe_not}LIKE {_quoted(draw.choice(one.likes))}")
        kinds.append(lambda: f"{name} {maybe_not}LIKE 'a|_%' ESCAPE '|'")
    kinds.append(lambda: "{0} {2} {1}".format(*draw.choice(_PAIRS), draw.choice(_OPS)))
    return draw.choice(kinds)()


def expression(draw: Draw, depth: int = 2, *, tame: bool = False) -> str:
    if not depth or draw.random() < 0.4:
        return predicate(draw, tame=tame)
    kind = draw.randrange(3)
    if kind == 0:
        return f"NOT ({expression(draw, depth - 1, tame=tame)})"
    word = " AND " if kind == 1 else " OR "
    return word.join(f"({expression(draw, depth - 1, tame=tame)})" for _ in range(draw.randint(2, 3)))


def without(info: TableInfo, name: str) -> TableInfo:
    return replace(info, columns=tuple(column for column in info.columns if column.name != name))


def pairs(image: bytes) -> list[bytes]:
    """The columns of a DELETE image, each with its id."""
    found, at = [], 0
    while at < len(image):
        end = skip(image, svarint(image, at + 1)[1])
        found.append(image[at:end])
        at = end
    return found
