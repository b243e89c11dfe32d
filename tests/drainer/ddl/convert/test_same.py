"""What is called the same is the same on a real MariaDB: for recorded values, for edges, and at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from drainer.ddl.convert.cast import Moments, cast
from drainer.ddl.convert.same import is_same
from drainer.ddl.run.session_settings import ANY_VALUE
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.column_match import Dialect
from tests.drainer.ddl.convert.test_columns import contents, create
from tests.drainer.support import conversions
from tests.drainer.support.conversions import field_type
from tidb_binlog import table_info as ti
from tidb_binlog.table_info import ColumnKind, FieldType
from tidb_binlog.type_text import type_text

MORE = (
    *("tinyint", "tinyint unsigned", "int", "int unsigned", "bigint", "bigint unsigned", "float", "double"),
    *("decimal(10,2)", "decimal(12,2)", "decimal(30,3)", "decimal(30,3) unsigned", "bit(8)", "bit(16)"),
    *("bit(64)", "year", "date", "datetime", "datetime(3)", "datetime(6)", "timestamp", "timestamp(3)"),
    *("time", "time(3)", "time(6)", "char(5)", "char(9)", "varchar(5)", "varchar(60)", "text", "binary(5)"),
    *("binary(9)", "varbinary(20)", "varbinary(60)", "blob", "json", "enum('a','b')", "enum('a','b','c')"),
    *("set('x','y')", "set('x','y','z')"),
)


def generated(kind: FieldType, chance: random.Random) -> list[Any]:
    """Values that a column of the type holds."""
    found: list[Any]
    match kind.kind:
        case ColumnKind.SIGNED | ColumnKind.UNSIGNED:
            bits = {ti.TINY: 8, ti.LONG: 32, ti.LONGLONG: 64}[kind.tp]
            low, high = (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
            found = [low, high, *(chance.randint(low, high) for _ in range(20))]
        case ColumnKind.BIT:
            found = [0, (1 << kind.flen) - 1, chance.getrandbits(kind.flen)]
        case ColumnKind.YEAR:
            found = [0, 1901, 2155, 2024]
        case ColumnKind.FLOAT | ColumnKind.DOUBLE:
            numbers = [0.0, 0.1, -1e30, 16777217.0, *(chance.uniform(-1e9, 1e9) for _ in range(20))]
            short = kind.kind is ColumnKind.FLOAT
            found = [struct.unpack("<f", struct.pack("<f", one))[0] if short else one for one in numbers]
        case ColumnKind.DECIMAL:
            most = 10**kind.flen - 1
            low = 0 if kind.unsigned else -most
            found = [Decimal(one).scaleb(-kind.decimal) for one in (low, most, chance.randint(low, most))]
        case ColumnKind.TEXT:
            found = [one.encode() for one in ("", "é€", "aB 'c\\"[: kind.flen if kind.flen > 0 else 9])]
        case ColumnKind.BINARY:
            size = kind.flen if kind.flen > 0 else 30
            found = [bytes(size), chance.randbytes(size)] + ([b"a ", b""] if kind.tp != ti.STRING else [])
        case ColumnKind.ENUM | ColumnKind.SET:
            found = [0, 1, len(kind.elems)]
        case ColumnKind.JSON:
            found = [b'{"a": 1}', b"null"]
        case _:
            found = [*_times(kind, chance)]
    return found


def _times(kind: FieldType, chance: random.Random) -> list[str]:
    tail = f".{chance.randrange(10**kind.fsp):0{kind.fsp}d}" if kind.fsp > 0 else ""
    if kind.kind is ColumnKind.TIME:
        return [f"-12:34:56{tail}", f"838:59:58{tail}", f"00:00:00{tail}"]
    clock = "" if kind.kind is ColumnKind.DATE else f" 23:59:59{tail}"
    return [f"2023-12-31{clock}", f"2001-02-03{clock}"]


@pytest.fixture
def session(target: Target) -> Iterator[Connection]:
    with connect(target) as connection:
        connection.autocommit(True)
        connection.run(b"CREATE DATABASE d COLLATE utf8mb4_bin")
        connection.run(f"SET SESSION sql_mode='{ANY_VALUE}'".encode())
        yield connection


@pytest.mark.integration
@pytest.mark.parametrize("source", MORE)
def test_the_servers_own_conversion_gives_the_same(source: str, session: Connection) -> None:
    chance = random.Random(source)
    was = field_type(source)
    recorded = {
        str(value): value
        for case in conversions.cases()
        if case.source == source and (value := conversions.value_before(case)) is not None
    }
    values = [*recorded.values(), *generated(was, chance)]
    checked = 0
    for target in (one for one in MORE if one != source):
        kind = field_type(target)
        if not is_same(was, kind, Dialect.MARIADB):
            continue
        session.run(b"DROP TABLE IF EXISTS d.t")
        create(session, was, values)
        text = type_text(kind) + (" COLLATE utf8mb4_bin" if kind.kind is ColumnKind.TEXT else "")
        session.run(f"ALTER TABLE d.t MODIFY v {text} NULL".encode())
        wanted = [cast(value, was, kind, Moments()) for value in values]
        assert contents(session, kind) == wanted, target
        checked += 1
    assert checked or source in ALONE


ALONE = {
    *("decimal(30,3)", "decimal(30,3) unsigned", "bit(64)", "year", "date", "datetime(6)", "timestamp(3)"),
    *("time(6)", "varchar(60)", "text", "blob", "json", "enum('a','b','c')", "set('x','y','z')"),
    *("float", "double", "varbinary(60)", "char(9)", "binary(9)"),
}
"""No other type of the list is the same."""


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("int", "bigint", {*Dialect}),
        ("bigint", "int", {Dialect.MARIADB, Dialect.TIDB}),
        ("int", "bigint unsigned", {Dialect.MARIADB, Dialect.TIDB}),
        ("datetime(3)", "datetime", {Dialect.TIDB}),
        ("datetime", "datetime(6)", {*Dialect}),
        ("double", "varchar(60)", {Dialect.TIDB}),
        ("varchar(5)", "varchar(60)", {*Dialect}),
        ("varchar(60)", "varchar(5)", {Dialect.TIDB}),
        ("varchar(60)", "text", {*Dialect}),
        ("varchar(60)", "char(60)", {Dialect.TIDB}),
        ("decimal(10,2)", "decimal(10,3)", {Dialect.TIDB}),
        ("decimal(10,2)", "decimal(12,2)", {*Dialect}),
        ("enum('a','b')", "enum('b','a')", {Dialect.TIDB}),
        ("timestamp", "datetime", {Dialect.TIDB}),
        ("bit(16)", "bit(8)", {Dialect.TIDB}),
        ("year", "int", {Dialect.TIDB}),
    ],
)
def test_what_keeps_values_is_the_same_everywhere(
    source: str, target: str, expected: set[Dialect], dialect: Dialect
) -> None:
    assert is_same(field_type(source), field_type(target), dialect) is (dialect in expected)
