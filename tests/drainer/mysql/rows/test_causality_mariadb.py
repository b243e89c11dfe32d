"""Lanes and forms for every pair of a key column upstream and downstream, judged by a real MariaDB.

For each pair: values that the server takes for one key must meet in one lane; and if it takes two values for
one that upstream keeps apart, rows must not be written in a form that silently overwrites.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.collation_reader import read_collation
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.collation import Collation
from drainer.mysql.rows.causality import Spread, collations_of
from drainer.mysql.rows.change import Form, TableTarget
from drainer.mysql.rows.table_target import target_of
from drainer.mysql.table_reader import read_table
from drainer.txn import TableVersion
from tests.common.rowcodec.tables import binary, index, kind, table
from tidb_binlog.errors import DownstreamError
from tidb_binlog.rowcodec.encoder import RowEncoder
from tidb_binlog.table_info import FieldType, TableInfo

pytestmark = pytest.mark.integration

TEXTS = [
    "a",
    "A",
    "a ",
    "á",
    "ab",
    "AB",
    "abc",
    "abd",
    "ß",
    "ss",
    "",
    "b",
    "b  ",
    "日本",
    "😀",
    "é",
    "日" * 7,
    "本" * 7,
]
BYTES = [b"a", b"A", b"a\0", b"a ", b"", b"ab", b"abc", b"abd"]
INTS = [0, 1, 2, 70, 1970, -1, 16777217, 16777216, 2**31 - 1]
DECIMALS = ["1.10", "1.11", "1.1", "1.14", "0.00", "-0.10", "99.99"]
TIMES = [
    "2024-01-02 03:04:05.100",
    "2024-01-02 03:04:05.000",
    "2024-01-02 03:04:05.140",
    "2024-01-02 00:00:00.000",
]
FLOATS = [0.1, 0.10000001, 1.0, -2.5, 3e20]

Upstream = tuple[FieldType, str, list[Any], int]


def text(collate: str, length: int = -1, here: str = "") -> Upstream:
    """`here`: MariaDB's collation that compares as upstream's does."""
    made = kind("varchar", flen=20, collate=collate, not_null=True)
    return made, f"VARCHAR(20) COLLATE {here or collate}", TEXTS, length


UPSTREAM: dict[str, Upstream] = {
    "bin": text("utf8mb4_bin"),
    "general": text("utf8mb4_general_ci"),
    "unicode": text("utf8mb4_unicode_ci"),
    "prefix": text("utf8mb4_bin", 2),
    "0900_bin": text("utf8mb4_0900_bin", here="utf8mb4_nopad_bin"),
    "0900_ai_ci": text("utf8mb4_0900_ai_ci", here="utf8mb4_unicode_520_nopad_ci"),
    "bytes": (binary("varchar", flen=20, not_null=True), "VARBINARY(20)", BYTES, -1),
    "int": (kind("bigint", not_null=True), "BIGINT", INTS, -1),
    "decimal": (kind("decimal", flen=10, decimal=2, not_null=True), "DECIMAL(10,2)", DECIMALS, -1),
    "datetime": (kind("datetime", decimal=3, not_null=True), "DATETIME(3)", TIMES, -1),
    "float": (kind("float", not_null=True), "FLOAT", FLOATS, -1),
    "double": (kind("double", not_null=True), "DOUBLE", FLOATS, -1),
}
ON_TEXT = [
    *("VARCHAR(20) COLLATE utf8mb4_" + name for name in ("bin", "general_ci", "unicode_ci", "nopad_bin")),
    "VARCHAR(20) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin",
    "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin",
    "VARCHAR(80) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
    "CHAR(20) COLLATE utf8mb4_bin",
    "CHAR(20) COLLATE utf8mb4_nopad_bin",
    "VARCHAR(20) COLLATE utf8mb4_unicode_520_nopad_ci",
    "VARCHAR(20) COLLATE utf8mb4_uca1400_as_cs",
    "VARCHAR(20) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
    "VARBINARY(80)",
    "VARCHAR(20) COLLATE utf8mb4_bin /*2*/",
    "VARCHAR(20) COLLATE utf8mb4_bin /*1*/",
]
ON_NUMBERS = [
    "BIGINT",
    "DECIMAL(20,0)",
    "DECIMAL(20,4)",
    "DECIMAL(10,1)",
    "FLOAT",
    "DOUBLE",
    "VARCHAR(20)",
    "YEAR",
]
DOWNSTREAM = {
    "bin": ON_TEXT, "general": ON_TEXT, "unicode": ON_TEXT, "prefix": ON_TEXT, "0900_bin": ON_TEXT,
    "0900_ai_ci": ON_TEXT,
    "bytes": ["VARBINARY(20)", "BINARY(20)", "VARBINARY(20) /*2*/", "VARCHAR(20) COLLATE utf8mb4_bin"],
    "int": ON_NUMBERS, "decimal": ON_NUMBERS, "float": ["FLOAT", "DOUBLE"], "double": ["FLOAT", "DOUBLE"],
    "datetime": ["DATETIME(3)", "DATETIME(6)", "DATETIME(1)", "DATETIME", "TIMESTAMP(3)", "DATE"],
}  # fmt: skip
PAIRS = [(name, theirs) for name, all_ in DOWNSTREAM.items() for theirs in all_]


@pytest.fixture(scope="module")
def connection(mariadb: MariaDbServer) -> Iterator[Connection]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    opened = connect(target)
    opened.run(b"DROP DATABASE IF EXISTS pairs")
    opened.run(b"CREATE DATABASE pairs")
    opened.run(b"SET SESSION sql_mode=''")
    yield opened
    opened.run(b"DROP DATABASE pairs")
    opened.close()


@cache
def collation_of(connection: Connection, name: str) -> Collation | None:
    """Read once: it is the weights of all characters."""
    return read_collation(connection, name)


def target_now(connection: Connection, info: TableInfo) -> TableTarget:
    """As lanes are told of `pairs.t`."""
    found = read_table(connection, "PAIRS", "T")
    assert found is not None
    read = {name: collation_of(connection, name) for name in collations_of(found)}
    collations = {name: collation for name, collation in read.items() if collation is not None}
    return target_of(TableVersion(info, "pairs", "t", 1), 4, found, collations=collations)


def one_key(connection: Connection, name: str, literals: list[bytes], length: int) -> set[tuple[int, int]]:
    """Pairs of values that the server takes for one key."""
    rows = b",".join(b"(%d,%s)" % (number, literal) for number, literal in enumerate(literals))
    connection.run(b"INSERT INTO pairs.%s VALUES %s" % (name.encode(), rows))
    key = f"LEFT({{0}}.k,{length})" if length > 0 else "{0}.k"
    query = f"SELECT a.n, b.n FROM pairs.{name} a JOIN pairs.{name} b WHERE a.n<b.n AND "
    query += f"{key.format('a')}={key.format('b')}"
    found = connection.rows(query.encode())
    connection.run(b"DROP TABLE pairs." + name.encode())
    return {(int(a), int(b)) for a, b in found}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda value: str(value).replace(" ", "_"))
def test_one_key_downstream_is_one_lane(connection: Connection, ours: str, theirs: str) -> None:
    made, upstream, values, length = UPSTREAM[ours]
    prefix = int(theirs[-3]) if theirs.endswith("*/") else -1
    part = f"k({prefix})" if prefix > 0 else "k"
    info = table(("k", made), handle="rowid", indexes=(index(1, ("k", 0, length)),))
    connection.run(f"CREATE TABLE pairs.t (k {theirs} NOT NULL, UNIQUE KEY u({part}))".encode())
    target = target_now(connection, info)
    connection.run(b"DROP TABLE pairs.t")
    connection.run(f"CREATE TABLE pairs.up (n INT, k {upstream} NOT NULL)".encode())
    connection.run(f"CREATE TABLE pairs.down (n INT, k {theirs} NOT NULL)".encode())
    kept, rows, literals = [], [], []
    for value in values:
        row = RowEncoder(info).insert({"k": value}, rowid=1)
        with contextlib.suppress(DownstreamError):  # a key that does not fit is refused
            literals.append(target.sql.insert_literals(row)[1:-1])
            rows.append(row)
            kept.append(value)
    assert len(kept) == len(values) or "latin1" in theirs
    same_downstream = one_key(connection, "down", literals, prefix)
    merged = same_downstream - one_key(connection, "up", literals, length)
    if target.spread is Spread.BY_KEY:
        lane_keys = [target.sql.insert_key(row) for row in rows]
    elif target.spread is not Spread.BY_TABLE:
        lane_keys = [target.sql.insert_lane_key(row) for row in rows]
    else:
        lane_keys = [b""] * len(rows)
    for a, b in same_downstream:
        assert lane_keys[a] == lane_keys[b], (kept[a], kept[b])
    if merged:
        assert target.form is Form.REWRITE, [(kept[a], kept[b]) for a, b in merged]


@pytest.mark.parametrize(
    ("ours", "theirs", "form", "spread"),
    [
        ("bin", "VARCHAR(20) COLLATE utf8mb4_bin", Form.REPLACE, Spread.BY_PADDED_KEY),
        ("general", "VARCHAR(20) COLLATE utf8mb4_general_ci", Form.REPLACE, Spread.BY_COLLATED_KEY),
        ("general", "VARCHAR(20) COLLATE utf8mb4_bin", Form.REPLACE, Spread.BY_PADDED_KEY),
        ("bin", "VARCHAR(20) COLLATE utf8mb4_general_ci", Form.REWRITE, Spread.BY_COLLATED_KEY),
        ("bin", "VARCHAR(20) COLLATE utf8mb4_czech_ci", Form.REWRITE, Spread.BY_TABLE),
        ("prefix", "VARCHAR(20) COLLATE utf8mb4_general_ci", Form.REWRITE, Spread.BY_TABLE),
        ("bin", "VARCHAR(80) CHARACTER SET latin1 COLLATE latin1_swedish_ci", Form.REWRITE, Spread.BY_TABLE),
        ("bytes", "VARBINARY(20)", Form.REPLACE, Spread.BY_KEY),
        ("int", "BIGINT", Form.REPLACE, Spread.BY_KEY),
        ("int", "DECIMAL(20,0)", Form.REPLACE, Spread.BY_KEY),
        ("decimal", "DECIMAL(20,4)", Form.REPLACE, Spread.BY_KEY),
        ("datetime", "DATETIME(6)", Form.REPLACE, Spread.BY_KEY),
        ("float", "FLOAT", Form.REPLACE, Spread.BY_TABLE),
    ],
)
def test_and_no_coarser_than_it_must_be(
    connection: Connection, ours: str, theirs: str, form: Form, spread: Spread
) -> None:
    made, _, _, length = UPSTREAM[ours]
    info = table(("k", made), handle="rowid", indexes=(index(1, ("k", 0, length)),))
    connection.run(f"CREATE TABLE pairs.t (k {theirs} NOT NULL, UNIQUE KEY u(k))".encode())
    target = target_now(connection, info)
    connection.run(b"DROP TABLE pairs.t")
    assert (target.form, target.spread) == (form, spread)
