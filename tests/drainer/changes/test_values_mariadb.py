"""Value table against a real server: values written as literals and as parameters are read back equal."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.changes.row_reader import RowReader
from drainer.changes.sql_literal import sql_literal
from drainer.mysql.literal.quoting import quote_name
from drainer.stream.rules.table_rules import TableFilter
from drainer.stream.schema.tracker import SchemaTracker
from drainer.stream.translate.translator import Translator
from drainer.txn import Transaction
from tests.common.rowcodec.tables import binary, key, kind, table
from tests.drainer.support import recorded
from tidb_binlog.rowcodec.values import EnumValue, JsonText, PartialDate, SetValue
from tidb_binlog.table_info import ENUM, SET, Column, TableInfo
from tidb_binlog.type_text import type_text

pytestmark = pytest.mark.integration
DATABASE = "value_table"
MODE = "ALLOW_INVALID_DATES"
MICRO = timedelta(microseconds=1)


@pytest.fixture
def session(mariadb: MariaDbServer) -> Iterator[Any]:
    connection = pymysql.connect(
        unix_socket=mariadb.socket, user=mariadb.user, password=mariadb.password, charset="utf8mb4"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION time_zone='+00:00', sql_mode='{MODE}'")
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARSET utf8mb4 COLLATE utf8mb4_bin")
        cursor.execute(f"USE {DATABASE}")
        yield cursor
        cursor.execute(f"DROP DATABASE {DATABASE}")
    connection.close()


def create(cursor: Any, info: TableInfo) -> list[Column]:
    """A table with the same types; texts in utf8mb4, since other servers have fewer characters in others."""
    columns = [column for column in info.columns if column.is_writable]
    clauses = ["`#` INT AUTO_INCREMENT PRIMARY KEY"]
    for column in columns:
        text = type_text(column.type)
        null = "NOT NULL" if column.type.not_null else "NULL"
        clauses.append(f"{quote_name(column.name).decode()} {text} {null}")
    cursor.execute(f"CREATE OR REPLACE TABLE t ({', '.join(clauses)}) ROW_FORMAT=DYNAMIC")
    return columns


def read_back(cursor: Any, columns: list[Column]) -> list[list[Any]]:
    """What the driver makes of the rows, each ENUM and SET with its number."""
    shown = []
    for column in columns:
        name = quote_name(column.name).decode()
        shown.append(name)
        shown.append(f"{name}+0" if column.type.tp in (ENUM, SET) else "NULL")
        if column.type.tp == 4:  # a FLOAT is shown in six digits
            shown[-2] = f"{name}+0e0"
    cursor.execute(f"SELECT {', '.join(shown)} FROM t ORDER BY `#`")
    return [
        [fitting(column, row[2 * place], row[2 * place + 1]) for place, column in enumerate(columns)]
        for row in cursor.fetchall()
    ]


def fitting(column: Column, value: Any, number: Any) -> Any:
    """A value of the driver as the table of values has it."""
    kind = column.type
    name = type_text(kind).partition("(")[0]
    if value is None:
        return None
    if name == "bit":
        return int.from_bytes(value, "big")
    if name == "enum":
        return EnumValue(value, int(number))
    if name == "set":
        return SetValue(value, int(number) % (1 << 64))
    if name == "timestamp" and isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    return value


def same(column: Column, found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and column.type.decimal < 0:
        if column.type.tp == 4:
            return struct.pack(">f", found) == struct.pack(">f", wanted)
        return bool(found == wanted)
    if isinstance(wanted, float):  # FLOAT(M,D), DOUBLE(M,D)
        return bool(abs(found - wanted) <= 10.0**-column.type.decimal)
    if isinstance(wanted, EnumValue | SetValue):
        return str(found) == str(wanted) and found.number == wanted.number
    if isinstance(wanted, Decimal):
        return str(found) == str(wanted)
    if isinstance(wanted, JsonText | PartialDate):
        return str(found) == str(wanted)
    return type(found) is type(wanted) and found == wanted


def as_parameter(value: Any) -> Any:
    """What a driver can take; the page of values says which it cannot."""
    if isinstance(value, EnumValue) and not value:
        return value.number
    return value


def check(cursor: Any, info: TableInfo, rows: list[dict[str, Any]]) -> None:
    columns = create(cursor, info)
    names = ", ".join(quote_name(column.name).decode() for column in columns)
    for way in ("literal", "parameter"):
        cursor.execute("TRUNCATE TABLE t")
        for row in rows:
            values = [row[column.name] for column in columns]
            if way == "literal":
                texts = ", ".join(map(sql_literal, values))
                cursor.execute(f"INSERT INTO t ({names}) VALUES ({texts})")
            else:
                places = ", ".join(["%s"] * len(values))
                statement = f"INSERT INTO t ({names.replace('%', '%%')}) VALUES ({places})"
                cursor.execute(statement, [as_parameter(value) for value in values])
        found = read_back(cursor, columns)
        assert len(found) == len(rows)
        for row, values in zip(rows, found, strict=True):
            for column, value in zip(columns, values, strict=True):
                assert same(column, value, row[column.name]), (way, column.name, value, row[column.name])


def storable(column: Column, value: Any) -> bool:
    """Whether the server can hold it at all: it has no text that is not UTF-8."""
    return not (isinstance(value, bytes) and not column.type.is_binary_string)


def test_recorded_values_of_every_type(session: Any) -> None:
    reader, translator = RowReader(), Translator(SchemaTracker(), TableFilter())
    rows: dict[str, list[dict[str, Any]]] = {}
    infos: dict[str, TableInfo] = {}
    for entry in recorded.merged("types"):
        item = translator.translate(entry)
        for events in item.tables if isinstance(item, Transaction) else ():
            info = events.table.info
            known = infos.get(info.name)
            if known is not None and known.columns != info.columns:
                rows.pop(info.name, None)
            infos[info.name] = info
            by_name = {column.name: column for column in info.columns}
            for row in reader.rows(events):
                image = row.after or row.before or {}
                if all(storable(by_name[name], value) for name, value in image.items()):
                    rows.setdefault(info.name, []).append(image)
    kinds = set()
    for name, images in rows.items():
        info = utf8(infos[name])
        check(session, info, images[:200])
        kinds |= {column.type.kind for column in info.columns}
    assert len(kinds) >= 16


def utf8(info: TableInfo) -> TableInfo:
    """As the session's database has it: no generated columns."""
    return replace(info, columns=tuple(column for column in info.columns if column.is_writable))


def test_random_values(session: Any) -> None:
    pick = random.Random(1)
    elements = tuple(f"e'{number}" for number in range(64))
    info = table(
        ("id", key("bigint", unsigned=True)),
        ("small", kind("tinyint", not_null=True)),
        ("y", kind("year")),
        ("bits", kind("bit", flen=64)),
        ("f", kind("float")),
        ("d", kind("double")),
        ("amount", kind("decimal", flen=65, decimal=30)),
        ("day", kind("date")),
        ("at", kind("datetime", decimal=6)),
        ("stamp", kind("timestamp", decimal=3)),
        ("took", kind("time", decimal=6)),
        ("text", kind("varchar", flen=50)),
        ("raw", binary("varchar", flen=50)),
        ("e", kind("enum", elems=elements)),
        ("s", kind("set", elems=elements)),
    )

    def text() -> str:
        alphabet = "aZ'\"\\%_\0\n\r\x1a é日😀"
        return "".join(pick.choice(alphabet) for _ in range(pick.randrange(10)))

    def mask_value() -> SetValue:
        mask = pick.getrandbits(64)
        return SetValue(",".join(e for bit, e in enumerate(elements) if mask >> bit & 1), mask)

    def row() -> dict[str, Any]:
        number = pick.randrange(64)
        spread = pick.choice((10, 10**6, 10**16))
        found: dict[str, Any] = {
            "id": pick.getrandbits(64),
            "small": pick.randrange(-128, 128),
            "y": pick.choice((0, pick.randrange(1901, 2156))),
            "bits": pick.getrandbits(pick.choice((1, 8, 64))),
            "f": struct.unpack(">f", struct.pack(">f", pick.uniform(-1e30, 1e30)))[0],
            "d": pick.choice((0.1, pick.uniform(-1, 1), pick.uniform(-1e300, 1e300), 5e-300)),
            "amount": Decimal(f"{pick.randrange(-spread, spread)}.{pick.randrange(10**30):030d}"),
            "day": (datetime(1, 1, 1) + timedelta(days=pick.randrange(3_600_000))).date(),
            "at": datetime(1, 1, 1) + pick.randrange(10**17) * MICRO,
            "stamp": datetime(2000, 1, 1, tzinfo=UTC) + timedelta(milliseconds=pick.randrange(10**12)),
            "took": pick.randrange(-(838 * 3600 * 10**6), 838 * 3600 * 10**6) * MICRO,
            "text": text(),
            "raw": pick.randbytes(pick.randrange(20)),
            "e": EnumValue(elements[number], number + 1),
            "s": mask_value(),
        }
        for name in found:
            if name not in ("id", "small") and pick.random() < 0.1:
                found[name] = None
        return found

    check(session, info, [row() for _ in range(200)])
