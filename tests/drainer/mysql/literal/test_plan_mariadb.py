"""Literals against a real server: what is stored and found is what the row says, for every type."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pymysql
import pytest
from pymysql.converters import encoders

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import SQL_MODE
from drainer.mysql.literal.plan import SqlPlan, compile_sql
from drainer.mysql.literal.quoting import quote_name
from drainer.mysql.session_mode import DEFAULT
from tests.common.rowcodec.random_rows import RandomTable
from tests.common.rowcodec.recorded import DELETE, INSERT, events, expected, history
from tests.common.rowcodec.tables import kind, table
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.rowcodec.plan import compile_table
from tidb_binlog.table_info import TableInfo
from tidb_binlog.type_text import type_text

pytestmark = pytest.mark.integration
DATABASE = "literals"
# Expressions that show a column as the recording does.
SHOWN = {
    "double": "%s+0e0",
    "uint": "%s+0",
    "int": "%s+0",
    "dec": "%s+0",
    "hex": "LOWER(HEX(%s))",
    "text": "%s",
}


class Session:
    def __init__(self, server: MariaDbServer) -> None:
        self._connection = pymysql.connect(
            unix_socket=server.socket,
            user=server.user,
            password=server.password,
            charset="utf8mb4",
            conv=dict(encoders),
        )
        self.run(b"SET SESSION time_zone='+00:00', foreign_key_checks=0")
        self.run(b"DROP DATABASE IF EXISTS " + DATABASE.encode())
        self.run(b"CREATE DATABASE " + DATABASE.encode() + b" CHARSET utf8mb4 COLLATE utf8mb4_bin")
        self.run(b"USE " + DATABASE.encode())
        self.mode(SQL_MODE)

    def mode(self, mode: str) -> None:
        self.run(f"SET SESSION sql_mode='{mode}'".encode())

    def run(self, statement: bytes) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)  # type: ignore[arg-type]
            return tuple(cursor.fetchall())

    def affected(self, statement: bytes) -> int:
        with self._connection.cursor() as cursor:
            return cursor.execute(statement)  # type: ignore[arg-type]

    def store(self, statement: bytes) -> None:
        """Run it as the applier does: loosely only if a value needs it."""
        if b"0/*enum*/" not in statement:
            self.run(statement)
            return
        with pytest.raises(pymysql.MySQLError):
            self.run(statement)
        self.mode(DEFAULT.lax)
        self.run(statement)
        self.mode(SQL_MODE)

    def close(self) -> None:
        self.run(b"DROP DATABASE " + DATABASE.encode())
        self._connection.close()


@pytest.fixture
def session(mariadb: MariaDbServer) -> Iterator[Session]:
    opened = Session(mariadb)
    yield opened
    opened.close()


def put(session: Session, name: bytes, sql: SqlPlan, literals: bytes) -> None:
    session.store(b"REPLACE INTO %b (%b) VALUES %b" % (name, sql.column_list, literals))


def drop(session: Session, name: bytes, sql: SqlPlan, literal: bytes) -> None:
    assert session.affected(b"DELETE FROM %b WHERE %b" % (name, sql.key_list.condition([literal]))) == 1


def equal_rows(session: Session, name: bytes, predicate: bytes) -> int:
    return int(session.run(b"SELECT COUNT(*) FROM %b WHERE %b" % (name, predicate))[0][0])


def contents(session: Session, name: bytes, columns: list[dict[str, Any]]) -> list[list[Any]]:
    # DOUBLE(M,D) holds the nearest it can make of D digits; what it shows is what was meant.
    parts = [
        quote_name(column["name"])
        if column["type"].startswith("double(")
        else SHOWN[column["repr"]].encode() % quote_name(column["name"])
        for column in columns
    ]
    found = session.run(b"SELECT %b FROM %b" % (b",".join(parts), name))
    return [
        [
            value if value is None or column["repr"] != "double" else repr(float(value))
            for value, column in zip(row, columns, strict=True)
        ]
        for row in found
    ]


@pytest.mark.parametrize("scenario", ["types", "keys"])
def test_recorded_rows_are_stored_and_found(session: Session, scenario: str) -> None:
    """Replays a recording into tables as TiDB shows them at the end: rows by key or by all columns."""
    past, wanted = history(scenario), expected(scenario)
    plans: dict[int, tuple[bytes, SqlPlan]] = {}
    for table_id, name in past.names.items():
        if name in wanted:
            session.run(wanted[name]["create"].encode())
            plans[table_id] = (quote_name(name[1]), compile_sql(past.last(table_id)))
    for event in events(scenario):
        if event.table_id not in plans:
            continue
        name, sql = plans[event.table_id]
        keyed = bool(sql.key_columns)
        if event.kind == INSERT:
            put(session, name, sql, sql.insert_literals(event.row))
            predicate = sql.full_row_predicate("insert", event.row)
        elif event.kind == DELETE:
            assert equal_rows(session, name, sql.full_row_predicate("delete", event.row)) >= 1
            if keyed:
                drop(session, name, sql, sql.key_literal_of_delete(event.row))
            else:
                one = sql.full_row_predicate("delete", event.row)
                assert session.affected(b"DELETE FROM %b WHERE %b LIMIT 1" % (name, one)) == 1
            continue
        else:
            old = sql.full_row_predicate("old", event.row)
            assert equal_rows(session, name, old) >= 1
            assert session.affected(b"DELETE FROM %b WHERE %b LIMIT 1" % (name, old)) == 1
            put(session, name, sql, sql.update_literals(event.row, sql.update_split(event.row)))
            predicate = sql.full_row_predicate("new", event.row)
        assert equal_rows(session, name, predicate) >= 1, predicate
    for table_id, (name, _) in plans.items():
        entry = wanted[past.names[table_id]]
        found = contents(session, name, entry["columns"])
        assert sorted(map(repr, found)) == sorted(map(repr, entry["rows"])), name


def shown(name: str, column: bytes) -> bytes:
    """A column so that the server shows what `plain` makes of its value."""
    if name in ("float", "double", "bit"):
        return column + (b"+0" if name == "bit" else b"+0e0")
    return b"HEX(%b)" % column if name in ("varchar", "varbinary") else column


def plain(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("float", "double"):
        return float(value)
    if name in ("varchar", "varbinary"):
        return (value if isinstance(value, bytes) else value.encode()).hex().upper()
    return f"{value:04}" if name == "year" else str(value)


@pytest.mark.parametrize("seed", range(3))
def test_random_rows_of_every_type_are_what_they_say(session: Session, seed: int) -> None:
    """Written by literals, replaced by those of UPDATEs, and read: every value as the plain reader has it."""
    made = RandomTable(Random(seed))
    columns = [b"id BIGINT NOT NULL PRIMARY KEY"]
    for number, type_ in enumerate(made.types):
        null = b" NOT NULL" if type_.not_null else b" NULL"
        columns.append(b"c%d %b%b" % (number, type_text(type_).encode(), null))
    session.run(b"CREATE TABLE r (%b) CHARSET utf8mb4 COLLATE utf8mb4_bin" % b",".join(columns))
    info, encoder = made.info, RowEncoder(made.info)
    sql, strict = compile_sql(info), compile_table(info).strict
    inserted = [encoder.insert(made.row(number)) for number in range(40)]
    written = b",".join(map(sql.insert_literals, inserted))
    session.run(b"INSERT INTO r (%b) VALUES %b" % (sql.column_list, written))
    wanted = {values[0]: values for values in map(strict.insert, inserted)}
    old = made.row(0)
    updated = [encoder.update(old, made.row(number)) for number in range(0, 40, 2)]
    images = [sql.update_literals(row, sql.update_keys(row)[2]) for row in updated]
    session.run(b"REPLACE INTO r (%b) VALUES %b" % (sql.column_list, b",".join(images)))
    wanted |= {values[0]: values for values in (strict.update(row)[1] for row in updated)}
    names = ("bigint", *made.names)
    select = [shown(name, quote_name(column.name)) for name, column in zip(names, info.columns, strict=True)]
    found = session.run(b"SELECT %b FROM r ORDER BY id" % b",".join(select))
    for row in found:
        told = [float(v) if name in ("float", "double") and v is not None else v
                for name, v in zip(names, row, strict=True)]  # fmt: skip
        values = wanted.pop(int(row[0]))
        assert told == [plain(name, value) for name, value in zip(names, values, strict=True)]
    assert not wanted


def test_text_that_needs_care(session: Session) -> None:
    texts = [
        "",
        "'",
        "\\",
        "\\'",
        "'' \\\\ '",
        '"',
        "\0\n\r\x1a\t",
        "中文😀",
        "a' OR '1'='1",
        "%s %d",
        "/*x*/ -- ;",
    ]
    session.run(b"CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b BLOB, j JSON)")
    info = table(
        ("id", kind("bigint", not_null=True)), ("a", kind("blob")), ("b", kind("blob", charset="binary")),
        ("j", kind("json")), handle="rowid",
    )  # fmt: skip
    sql, encoder = compile_sql(info), RowEncoder(info)
    for number, text in enumerate(texts):
        raw = text.encode() * 40 + bytes(range(256)) * (number % 3)
        document = [text, {text: text}]
        row = encoder.insert((number, text, raw, document), rowid=1)
        put(session, b"t", sql, sql.insert_literals(row))
        assert equal_rows(session, b"t", sql.full_row_predicate("insert", row)) == 1
        stored, binary, valid = session.run(b"SELECT a, HEX(b), JSON_VALID(j) FROM t WHERE id=%d" % number)[0]
        assert (stored, bytes.fromhex(binary), valid) == (text, raw, "1")


def test_bytes_that_are_not_utf8_go_unchanged_into_latin1(session: Session) -> None:
    session.run(b"CREATE TABLE l (id INT PRIMARY KEY, a VARCHAR(9) CHARSET latin1)")
    latin1 = kind("varchar", charset="latin1", collate="latin1_bin")
    info = table(("id", kind("int", not_null=True)), ("a", latin1), handle="rowid")
    row = RowEncoder(info).insert((1, b"\xe9t\xe9"), rowid=1)
    sql = compile_sql(info)
    put(session, b"l", sql, sql.insert_literals(row))
    assert session.run(b"SELECT HEX(a), a FROM l") == (("E974E9", "été"),)


def test_texts_that_a_collation_takes_for_equal_are_told_apart(session: Session) -> None:
    """In a table without key a delete must hit the row with these bytes, not its look-alike."""
    session.run(b"CREATE TABLE k (a VARCHAR(9) COLLATE utf8mb4_general_ci)")
    info: TableInfo = table(("a", kind("varchar", collate="utf8mb4_general_ci")), handle="rowid")
    sql, encoder = compile_sql(info), RowEncoder(info)
    texts = ["a", "A", "a ", "á"]
    for text in texts:
        session.run(b"INSERT INTO k VALUES " + sql.insert_literals(encoder.insert((text,), rowid=1)))
    for text in texts:
        predicate = sql.full_row_predicate("delete", encoder.delete((text,), rowid=1))
        assert equal_rows(session, b"k", predicate) == 1
