"""`where` beside a server's own answers: thousands of generated conditions over rows of every type."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.literal.plan import SqlPlan
from drainer.stream.rules.where.compiler import RowCondition
from drainer.stream.rules.where.expression import parse
from drainer.stream.rules.where.text_order import ORDERS
from tests.downstreams import server  # noqa: F401 - a fixture
from tests.drainer.stream.rules.where.typed_table import (
    COLUMNS,
    declaration,
    expression,
    predicate,
    rows,
    table,
)
from tidb_binlog.rowcodec.encoder import RowEncoder

pytestmark = pytest.mark.integration

ROWS, CONDITIONS = 60, 600
INFO = table()


@pytest.fixture
def filled(server_not_tidb: Target) -> Iterator[Connection]:
    """A connection to a server with the table and its rows."""
    connection = connect(server_not_tidb)
    try:
        for statement in (
            "SET SESSION sql_mode='', time_zone='+00:00'",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "DROP DATABASE IF EXISTS wheres",
            "CREATE DATABASE wheres CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "USE wheres",
            declaration(),
        ):
            connection.run(statement.encode())
        yield connection
        connection.run(b"DROP DATABASE wheres")
    finally:
        connection.close()


def fill(connection: Connection, encoded: list[bytes]) -> None:
    plan = SqlPlan(INFO)
    values = b",".join(map(plan.insert_literals, encoded))
    connection.run(b"INSERT INTO t (" + plan.column_list + b") VALUES " + values)
    connection.commit()


def answers(connection: Connection, conditions: list[str]) -> list[list[int | None]]:
    """By condition: what the server says of each row, in the order of ids."""
    shown = ",".join(f"({condition})" for condition in conditions)
    found = connection.rows(f"SELECT {shown} FROM t ORDER BY id".encode())
    return [
        [None if value is None else int(value) for value in column] for column in zip(*found, strict=True)
    ]


def test_conditions_are_what_the_server_says(filled: Connection) -> None:
    draw = random.Random(18)
    ((named,),) = filled.rows(b"SELECT VERSION()")
    tame = "MariaDB" not in named
    made = rows(draw, ROWS)
    encoder = RowEncoder(INFO)
    encoded = [encoder.insert(row) for row in made]
    images = [encoder.delete(row) for row in made]
    fill(filled, encoded)
    conditions = [predicate(draw, tame=tame) for _ in range(CONDITIONS)] + [
        expression(draw, tame=tame) for _ in range(CONDITIONS // 3)
    ]
    wrong = []
    for start in range(0, len(conditions), 50):
        some = conditions[start : start + 50]
        for text, said in zip(some, answers(filled, some), strict=True):
            parsed = parse(text)
            holds, fails = (
                RowCondition(one, INFO, "where", "d.t") for one in (parsed, parse(f"NOT ({text})"))
            )
            for place, answer in enumerate(said):
                row, image = encoded[place], images[place]
                ours = 1 if holds.insert(row) else 0 if fails.insert(row) else None
                assert holds.insert(row) == holds.delete(image) == holds.update(image + image)[1]
                if ours != answer:
                    wrong.append((text, made[place], answer, ours))
    assert not wrong, f"{len(wrong)} of {len(conditions) * ROWS}: {wrong[:3]}"


def test_general_ci_weighs_every_character_as_the_server_does(filled: Connection) -> None:
    general = "utf8mb4_general_ci"
    key = ORDERS[general].key
    numbers = [n for n in range(1, 0x10000) if not 0xD800 <= n <= 0xDFFF] + [0x10000, 0x1F600, 0x10FFFF]
    for start in range(0, len(numbers), 512):
        some = numbers[start : start + 512]
        shown = ",".join(
            f"HEX(WEIGHT_STRING(CONVERT(x'{chr(n).encode().hex()}' USING utf8mb4) COLLATE {general}))"
            for n in some
        )
        (weights,) = filled.rows(f"SELECT {shown}".encode())
        for number, weight in zip(some, weights, strict=True):
            assert f"{ord(key(chr(number).encode())):04X}" == weight, hex(number)


def test_every_type_is_asked_about() -> None:
    assert {column.type.kind for column in INFO.columns} >= {one.column(0).type.kind for one in COLUMNS}
