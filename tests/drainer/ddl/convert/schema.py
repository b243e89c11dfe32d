"""A downstream's session and statements for conversions of columns."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest

from drainer.ddl.convert.cast import Value
from drainer.ddl.convert.columns import Conversion, _form, _literal, _value
from drainer.ddl.derive import definition
from drainer.ddl.derive.compare import PresentColumn
from drainer.mysql.connection import Connection, Target, connect
from drainer.txn import Ddl, Tracked
from tests.drainer.support import conversions
from tidb_binlog import table_info as ti
from tidb_binlog import tso
from tidb_binlog.ddl_job import ActionType
from tidb_binlog.table_info import Column, ColumnKind, FieldType, Index, TableInfo
from tidb_binlog.type_text import type_text

COMMIT_TS = tso.from_wall_s(conversions.DAY.replace(tzinfo=UTC).timestamp() + 12 * 3600)

ID = Column(1, "id", 0, FieldType(ti.LONG, flag=ti.FLAG_NOT_NULL | ti.FLAG_PRIMARY))


class Schema:
    def database_collation(self, schema: str) -> tuple[str, str] | None:
        return "utf8mb4", "utf8mb4_bin"


def table(*parts: Column, indexes: tuple[Index, ...] = (), keyed: bool = True, name: str = "t") -> Tracked:
    return Tracked("d", name, TableInfo(1, name, parts, indexes, pk_is_handle=keyed).to_json())


def ddl(before: Tracked, after: Tracked, job: dict[str, Any] | None = None) -> Ddl:
    return Ddl(
        COMMIT_TS, 7, ActionType.MODIFY_COLUMN, "d", "ALTER TABLE t MODIFY ...", (("d", before.name),), 5,
        job=job, before=(before,), after=(after,),
    )  # fmt: skip


@pytest.fixture
def session(target: Target) -> Iterator[Connection]:
    with connect(target) as connection:
        connection.autocommit(True)
        connection.run(b"CREATE DATABASE d COLLATE utf8mb4_bin")
        connection.run(b"SET SESSION sql_mode='ALLOW_INVALID_DATES'")
        yield connection


def column(number: int, kind: FieldType, name: str = "v", offset: int = 1) -> Column:
    return Column(number, name, offset, kind)


def create(session: Connection, kind: FieldType, values: list[Value], name: str = "t", key: str = "") -> None:
    text = type_text(kind)
    if kind.kind is ColumnKind.TEXT or kind.kind in (ColumnKind.ENUM, ColumnKind.SET):
        text += " COLLATE utf8mb4_bin"
    session.run(f"CREATE TABLE d.`{name}` (id INT NOT NULL{key}, v {text} NULL)".encode())
    rows = b",".join(b"(%d,%b)" % (number, _literal(value, kind)) for number, value in enumerate(values))
    session.run(b"INSERT INTO d.`%b` VALUES %b" % (name.encode(), rows))


def contents(session: Connection, kind: FieldType, name: str = "t") -> list[Value]:
    """By id, exactly."""
    own = definition.Column(9, "v", kind)
    one = Conversion(PresentColumn("v", ""), "", own, own)
    rows = session.printed(b"SELECT %b FROM d.`%b` ORDER BY id" % (_form(one), name.encode()))
    return [None if value is None else _value(one, value) for (value,) in rows]


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
