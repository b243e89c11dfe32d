"""The publisher refuses what a strict server refuses, and stores what it stores: values x types."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pymysql.converters import escape_item

from common.rowcodec import compile_table
from common.rowcodec.encoder import RowEncoder
from deploy.playground.cluster.mariadb import MariaDbServer
from drainer.sink.mysql.connection import Connection, Target, connect
from drainer.sink.mysql.errors import StatementRefused
from pumpclient import InvalidValue, column
from pumpclient.publish.row_values import row_values
from tests.pumpclient.publish.test_schema_publishing import table

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


@pytest.mark.parametrize("kind", TYPES)
def test_the_publisher_refuses_what_a_strict_server_refuses(kind: str, server: Server) -> None:
    info = table("t", [column("id", "int"), column("c", kind)])
    encoder, plan = RowEncoder(info), compile_table(info)
    null = (kind.startswith("timestamp") and " NULL") or ""
    server.run(f"CREATE OR REPLACE TABLE t (c {kind}{null}, d {kind}{null})")
    wrong = []
    for value in values_of(kind):
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
        except InvalidValue as error:
            published = error.message
            assert "column c of table t cannot hold" in published
        if bool(refused) != bool(published):
            wrong.append((value, refused or "taken", published or stored))
        elif not refused:
            server.run("SET sql_mode = 'TIME_ROUND_FRACTIONAL'")
            server.run("UPDATE t SET d = %s", stored)
            same, there, here = server.row("SELECT c <=> d, c, d FROM t")
            if not same:
                wrong.append((value, there, here))
    assert not wrong


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
