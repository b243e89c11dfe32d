"""What is called the same is the same on a real MariaDB: for recorded values, for edges, and at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from drainer.ddl.convert.cast import Moments, cast
from drainer.ddl.convert.columns import is_same
from drainer.ddl.run.session_settings import ANY_VALUE
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.dialect import Dialect
from tests.cases import case
from tests.drainer.ddl.convert.schema import MORE, contents, create, generated
from tests.drainer.support import conversions
from tests.drainer.support.conversions import field_type
from tidb_binlog.table_info import ColumnKind
from tidb_binlog.type_text import type_text


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


def test_what_keeps_values_is_the_same_everywhere() -> None:
    for dialect in Dialect:
        for source, target, expected in [
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
        ]:
            with case(dialect, source, target, expected):
                assert is_same(field_type(source), field_type(target), dialect) is (dialect in expected)
