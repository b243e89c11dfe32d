"""The publisher refuses what a strict server refuses, and stores what it stores: values x types."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pymysql.converters import escape_item

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.errors import StatementRefused
from pumpclient import InvalidValue, column
from pumpclient.publish.row_values import row_values
from pumpclient.schema.table_definition import table
from tidb_binlog.rowcodec.encoder import RowEncoder, UnwritableValue
from tidb_binlog.rowcodec.plan import compile_table

pytestmark = pytest.mark.integration

SQL_MODE = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,TIME_ROUND_FRACTIONAL"
)
"""TiDB's and MySQL's default; they round fractions of a second, which MariaDB has to be told."""
INTEGERS = [
    f"{name}{sign}"
    for name in ("tinyint", "smallint", "mediumint", "int", "bigint")
    for sign in ("", " unsigned")
]
REALS = ["float", "double", "decimal(5,2)", "decimal(5,2) unsigned", "decimal(20,0)"]
TEXTS = ["char(4)", "varchar(4)", "tinytext", "text", "binary(3)", "varbinary(3)", "tinyblob"]
ELEMENTS = ["enum('small','big','3')", "set('a','b','c')"]
TIMES = ["date", "datetime", "datetime(3)", "timestamp", "timestamp(2)", "time", "time(3)"]
TYPES = [*INTEGERS, *REALS, *TEXTS, *ELEMENTS, *TIMES, "bit(3)", "bit(64)", "year", "json"]
NUMBERS: list[Any] = [0, 1, -1, 3, 4, 5, 8, 69, 70, 99, 127, 128, 1900, 1901, 2155, 2156, True]
NUMBERS += [
    side * (2**bits) + more
    for bits in (7, 8, 15, 16, 23, 24, 31, 32, 40, 63, 64)
    for side in (1, -1)
    for more in (-1, 0)
]
NUMBERS += [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 999.994, 999.996, 1e10, 3.4e38, 3.5e38, 1e300]
NUMBERS += [
    Decimal(text) for text in ("0.5", "1.5", "2.5", "-0.4", "-0.5", "127.5", "999.994", "999.995", "1e30")
]
WORDS: list[Any] = [
    "",
    "a",
    "abcd",
    "xxxxx",
    "abcd   ",
    "abc   d",
    "ääää",
    "äääää",
    "😀😀",
    "small",
    "SMALL",
    "small ",
]
WORDS += ["a,b", "b,a", "A", "a,d", "a,", "medium", "x" * 255, "x" * 256, "ä" * 127, "ä" * 128]
FIGURES: list[Any] = [
    "0",
    "3",
    "4",
    "12",
    " 12 ",
    "12abc",
    "1.5",
    "2.5",
    "1e3",
    "1e",
    "-1",
    "1,5",
    ".5",
    "5.",
    "+7",
    "128",
]
FIGURES += ["999.996", "0x10", "nan", "inf", "1_000"]
DAYS: list[Any] = [
    "2024-02-29",
    "2023-02-29",
    "2024-02-31",
    "2024-13-01",
    "2024-00-10",
    "0000-00-00",
    "2024-1-2",
]
DAYS += ["2024-02-29 12:30:45.6789", "2024-02-29 24:00:00", "2024-02-29 12:60:00", "9999-12-31 23:59:59.9996"]
DAYS += [
    "1970-01-01 00:00:00",
    "1970-01-01 00:00:01",
    "2038-01-19 03:14:07",
    "2038-01-19 03:14:08",
    "2024-12-31T23:59:59.999",
]
DAYS += [
    "2024-02-30 10:00:00",
    "nonsense",
    "2024-12-31 23:59:59.9995",
    date(2024, 2, 29),
    datetime(2024, 1, 2, 3, 4, 5, 678500),
]
CLOCKS: list[Any] = [
    "10:20:30",
    "10:20",
    "10:20:30.4567",
    "838:59:59",
    "838:59:58.4",
    "839:00:00",
    "-838:59:59",
    "-839:00:00",
]
CLOCKS += ["10:60:00", "10:20:60", "-00:00:01.5", "nonsense", timedelta(hours=-30), timedelta(hours=900)]
RAW: list[Any] = [b"", b"\1", b"abc", b"abcd", b"\0\0\7", b"\xff\xfe", b"x" * 256]
JSONS: list[Any] = ['{"k": 1}', "{k}", "[1, 2]", "null", "", "1", "NaN", '"a"', "a"]


def values_of(kind: str) -> list[Any]:
    """What is tried. Of moments, servers also read numbers and other forms of text."""
    if kind in TIMES:
        return CLOCKS if kind.startswith("time") and "stamp" not in kind else DAYS
    if kind.startswith("bit"):
        return [*(one for one in NUMBERS if isinstance(one, int)), *RAW]
    if kind == "json":
        return JSONS
    if kind == "year":
        return [
            *(one for one in NUMBERS if isinstance(one, int)),
            "2024",
            "1900",
            "24",
            "99",
            "0",
            "abc",
            "0000",
        ]
    if kind in TEXTS:
        return [*NUMBERS[:17], *WORDS, *FIGURES, *RAW]
    if kind in ELEMENTS:
        return [*(one for one in NUMBERS if isinstance(one, int)), *WORDS, *FIGURES]
    return [*NUMBERS, *WORDS[:4], *FIGURES]


class Server:
    """A session, with values as literals."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: str, *values: Any) -> None:
        texts = [escape_item(value, "utf8mb4") for value in values]
        self._connection.run((statement % tuple(texts)).encode("utf-8", "surrogateescape"))

    def row(self, query: str) -> tuple[Any, ...]:
        (found,) = self._connection.rows(query.encode())
        return found


@pytest.fixture(scope="module")
def server(mariadb: MariaDbServer) -> Iterator[Server]:
    connection = connect(Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password))
    server = Server(connection)
    server.run("CREATE DATABASE fits")
    server.run("USE fits")
    server.run("SET time_zone = '+00:00'")
    yield server
    server.run("DROP DATABASE fits")
    connection.close()


def differences(kind: str, values: Iterable[Any], server: Server) -> list[Any]:
    """Values that one refuses and the other takes, or that both store otherwise."""
    info = table("t", [column("id", "int"), column("c", kind)])
    encoder, plan = RowEncoder(info), compile_table(info)
    null = (kind.startswith("timestamp") and " NULL") or ""
    server.run(f"CREATE OR REPLACE TABLE t (c {kind}{null}, d {kind}{null})")
    wrong = []
    for value in values:
        server.run("SET sql_mode = %s", SQL_MODE)
        server.run("DELETE FROM t")
        refused = published = ""
        try:
            server.run("INSERT INTO t (c) VALUES (%s)", value)
        except StatementRefused as error:
            refused = str(error)
        stored: Any = None
        try:
            stored = plan.decode_insert(encoder.insert(row_values(info, {"id": 1, "c": value}), rowid=1))[1]
        except (InvalidValue, UnwritableValue) as error:  # a transaction raises `InvalidValue` of both
            published = error.message
            assert published.startswith("column c of table t")
        if bool(refused) != bool(published):
            wrong.append((value, refused or "taken", published or stored))
        elif not refused:
            server.run("SET sql_mode = 'TIME_ROUND_FRACTIONAL'")
            server.run("UPDATE t SET d = %s", stored)
            same, there, here = server.row("SELECT c <=> d, c, d FROM t")
            if not same:
                wrong.append((value, there, here))
    return wrong


@pytest.mark.parametrize("kind", TYPES)
def test_the_publisher_refuses_what_a_strict_server_refuses(kind: str, server: Server) -> None:
    assert not differences(kind, values_of(kind), server)


@pytest.mark.parametrize("seed", range(12))
def test_so_it_is_with_any_type_and_value(seed: int, server: Server) -> None:
    draw = random.Random(seed)
    for _ in range(15):
        kind, values = any_type(draw)
        wrong = differences(kind, (values(draw) for _ in range(15)), server)
        assert not wrong, kind


def digits(draw: random.Random, least: int, most: int) -> str:
    return "".join(draw.choice("0123456789") for _ in range(draw.randint(least, most)))


def any_number(draw: random.Random) -> Any:
    match draw.randrange(6):
        case 0:
            return draw.choice((1, -1)) * 2 ** draw.randint(0, 66) + draw.randint(-2, 2)
        case 1:
            return draw.uniform(-10, 10) * 10 ** draw.randint(-10, 40)
        case 2:
            return Decimal(f"{draw.choice(('', '-'))}{digits(draw, 0, 20)}.{digits(draw, 1, 20)}1")
        case 3:
            exponent = draw.choice(("", f"e{draw.choice(('', '-', '+'))}{digits(draw, 1, 1)}"))
            return f"{draw.choice(('', '-', '+', ' '))}{digits(draw, 1, 5)}.{digits(draw, 0, 5)}{exponent}"
        case 4:
            return draw.randint(-300, 300)
    return draw.randint(-3, 70) + 0.5


def any_year(draw: random.Random) -> Any:
    return draw.choice((draw.randint(-3, 2200), draw.randint(0, 99), str(draw.randint(0, 2200)), -0.5, 67.5))


def any_whole(draw: random.Random) -> Any:
    """Not a text: of its digits servers make something else."""
    found = any_number(draw)
    return abs(found) if isinstance(found, int) else draw.randint(0, 70) + 0.5


def any_text(draw: random.Random) -> Any:
    match draw.randrange(5):
        case 0:
            return "".join(draw.choice("aAbB ,'\"äß😀\0\\\n\t") for _ in range(draw.randint(0, 7)))
        case 1:
            return draw.choice(("x", "ä", "😀")) * draw.choice((63, 64, 85, 86, 127, 128, 255, 256))
        case 2:
            return "ab" + " " * draw.randint(0, 6)
        case 3:
            return draw.randbytes(draw.randint(0, 9))
    return draw.randint(-(10**5), 10**5)


def any_element(draw: random.Random) -> Any:
    words = ("small", "SMALL", "Big", "big ", "ä", "Ä", "A", "a,B", "B,a,a", "a,,B", ",", "3", "7", "8", " a")
    return draw.choice((*words, "16", "0", 1.5, 4, 7, 8, -1, "o'x"))


def any_moment(draw: random.Random) -> str:
    day = "-".join(map(draw.choice, (YEARS, MONTHS, MONTH_DAYS)))
    fraction = draw.choice(("", f".{digits(draw, 0, 8)}", ".9999995", ".999999"))
    if day.startswith("0000"):  # MariaDB rounds some of that year, and has no date for others
        fraction = ""
    clock = f"{draw.choice(('00', '3', '23', '24'))}:{draw.choice(('59', '5', '60'))}"
    clock = draw.choice((clock, f"{clock}:{draw.choice(('59', '07', '60'))}{fraction}"))
    return draw.choice((day, f"{day} {clock}", f"{day}T{clock}"))


def any_clock(draw: random.Random) -> Any:
    """MariaDB has fractions of the last second, which MySQL and TiDB have not."""
    clock = (
        f"{draw.choice(('', '-'))}{draw.choice(('0', '10', '838', '839'))}:{draw.choice(('58', '00', '60'))}"
    )
    fraction = draw.choice(("", f".{digits(draw, 1, 8)}"))
    size = timedelta(seconds=draw.uniform(-4e6, 4e6))
    return draw.choice((size, clock, f"{clock}:{draw.choice(('59', '00', '60'))}{fraction}"))


def any_document(draw: random.Random) -> Any:
    return draw.choice(
        ("{}", "[", '{"a": [1.5, null]}', "[1,]", "[" * 9 + "]" * 9, "tru", "-1", '"\n"', "  ")
    )


YEARS = ("0000", "0001", "1969", "1970", "2023", "2024", "2038", "9999", "10000")
MONTHS = ("00", "01", "02", "1", "12", "13")
MONTH_DAYS = ("00", "01", "28", "29", "30", "31", "32", "9")
NAMED = ("enum('small','Big','3','ä','o''x')", "set('a','B','c','3')")


def any_type(draw: random.Random) -> tuple[str, Callable[[random.Random], Any]]:
    """And what makes values to try on it."""
    size = draw.randint(1, 40)
    decimal = f"decimal({size},{draw.randint(0, min(size, 20))}){draw.choice(('', ' unsigned'))}"
    digits = draw.choice(("", "(1)", "(3)", "(6)"))
    collation = draw.choice((" collate utf8mb4_bin", " collate utf8mb4_general_ci"))
    return draw.choice(
        (
            (draw.choice(INTEGERS), any_number),
            (decimal, any_number),
            (draw.choice(("float", "double", "double unsigned")), any_number),
            ("year", any_year),
            (f"bit({draw.randint(1, 64)})", any_whole),
            (f"{draw.choice(('char', 'varchar', 'binary', 'varbinary'))}({draw.randint(0, 6)})", any_text),
            (draw.choice(("tinytext", "tinyblob", "text")), any_text),
            (draw.choice(NAMED) + collation, any_element),
            (draw.choice(("date", f"datetime{digits}", f"timestamp{digits}")), any_moment),
            (f"time{digits}", any_clock),
            ("json", any_document),
        )
    )


@pytest.mark.parametrize(
    "text", ["1e400", "[NaN]", f'{{"n": {10**400}}}', "[" * 200 + "]" * 200, "[" * 10**5]
)
def test_a_document_that_no_row_holds_is_refused(text: str) -> None:
    """A server that keeps JSON as text takes some of them. A row of it could not be read."""
    info = table("t", [column("id", "int"), column("c", "json")])
    for value in (text, {"k": [float("inf")]}, {"n": 10**400}):
        with pytest.raises((InvalidValue, UnwritableValue), match="column c of table t"):
            RowEncoder(info).insert(row_values(info, {"id": 1, "c": value}), rowid=1)


def test_null_goes_where_it_may() -> None:
    info = table("t", [column("id", "int"), column("c", "int", nullable=False)])
    with pytest.raises(InvalidValue, match="column c of table t cannot hold this NULL: it is NOT NULL"):
        row_values(info, {"id": 1, "c": None})


def test_a_row_that_is_there_is_named_whatever_it_holds() -> None:
    """An UPDATE or DELETE of it, from before its columns were what they are."""
    info = table("t", [column("id", "int"), column("c", "varchar(4)"), column("d", "date")])
    row = {"id": 1, "c": "xxxxx", "d": "0000-00-00"}
    assert row_values(info, row, old=True) == row
    for name in ("c", "d"):
        with pytest.raises(InvalidValue, match=f"column {name} .*cannot hold this str"):
            row_values(info, {"id": 1, name: row[name]})
    assert list(itertools.islice(row_values(info, {"id": "7"}, old=True).values(), 1)) == [7]
