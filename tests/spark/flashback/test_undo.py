"""Undo against a real MariaDB: random histories in tables of all shapes, taken back to what was before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.session_mode import DEFAULT
from drainer.reading.archive.decode.records import Changes, Row
from drainer.spark.effects.operations import Operations, RowEffect, effects_in_order, table_id
from drainer.spark.flashback import undo
from drainer.spark.flashback.undo import Undo
from tests.drainer.support.apply_model import SHAPES, Shape, World
from tests.spark.support.table_history import History, contents, copy_to_downstream

ROUNDS = 6


@pytest.fixture
def connection(mariadb: MariaDbServer) -> Iterator[Connection]:
    target = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    opened = connect(target)
    opened.run(b"DROP DATABASE IF EXISTS m")
    opened.run(b"CREATE DATABASE m")
    yield opened
    opened.rollback()
    opened.run(b"DROP DATABASE m")
    opened.close()


Transactions = list[list[Row]]


def effects(history: History, transactions: Transactions) -> list[RowEffect]:
    number = table_id(history.world.version)
    operations = Operations(lambda _: 1, frozenset({number}))
    for ts, rows in enumerate(transactions, 1):
        operations.add(Changes(ts, 0, "", 0, 0, rows))
    return list(effects_in_order(operations.take()))


def net(history: History, transactions: Transactions) -> list[Undo]:
    """Of the whole range."""
    return list(undo.of_effects(effects(history, transactions), lambda _: history.target))


def backwards(history: History, transactions: Transactions) -> list[Undo]:
    """One transaction after the other."""
    return [one for transaction in reversed(transactions) for one in net(history, [transaction])]


def run(connection: Connection, undos: list[Undo], rows_max: int) -> None:
    for batch in undo.batches(undos, rows_max, 1 << 20):
        for question, count in undo.questions(batch):
            assert connection.rows(question) == [(count,)], batch[0].shown
        for statement in undo.statements(batch, 1 << 20):
            assert statement.drift(connection.run(statement.sql)) == 0, statement.sql


@pytest.mark.parametrize("way", ["net", "backwards"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_rows_are_what_they_were(connection: Connection, shape: Shape, way: str) -> None:
    world = World(connection, shape, random.Random(shape.name + way))
    history = History(world)
    history.some(8)
    for _ in range(ROUNDS):
        copy_to_downstream(world)
        before, kept = contents(world), dict(world.rows)
        transactions = history.some(world.rng.randint(1, 8))
        copy_to_downstream(world)
        undos = net(history, transactions) if way == "net" else backwards(history, transactions)
        run(connection, undos, world.rng.choice((1, 3, 1000)))
        assert contents(world) == before
        world.run("DELETE FROM m.ref")
        world.rows = {}
        for rid, row in kept.items():
            world.put(rid, row)


def test_a_row_changed_by_others_is_told(connection: Connection) -> None:
    shape = next(shape for shape in SHAPES if shape.name == "int_extra")
    world = World(connection, shape, random.Random(3))
    history = History(world)
    (insertion,) = [[history.row(*world.insert())]]
    (rid,) = world.rows
    change = [history.row(*world.update(rid))]
    world.run("INSERT INTO m.dst (id, v, s) SELECT id, v + 100, s FROM m.ref")
    for transactions in ([insertion], [insertion, change]):
        (batch,) = undo.batches(net(history, transactions), 10, 1 << 20)
        ((question, wanted),) = undo.questions(batch)
        assert connection.rows(question) != [(wanted,)]
    assert batch[0].shown.startswith("M.dst `id` = ") or batch[0].shown.startswith("m.dst `id` = ")
    deletion = [history.row(*world.delete(rid))]
    (batch,) = undo.batches(net(history, [deletion]), 10, 1 << 20)
    ((question, wanted),) = undo.questions(batch)
    assert (connection.rows(question), wanted) == ([(1,)], 0)


@pytest.mark.parametrize(("key", "is_lax"), [(b"'2020-00-01'", True), (b"'2020-01-01'", False)])
def test_a_script_removes_what_only_a_lax_tidb_finds(
    connection: Connection, key: bytes, *, is_lax: bool
) -> None:
    history = History(World(connection, SHAPES[0], random.Random(3)))
    (inserted,) = net(history, [[history.row(*history.world.insert())]])
    lines = b"".join(undo.body([replace(inserted, key=key)], DEFAULT, undo.Tally())).split(b"\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(b"DELETE "))
    modes = [b"SET SESSION sql_mode='%b';" % mode.encode() for mode in (DEFAULT.lax, DEFAULT.strict)]
    assert ([lines[at - 1], lines[at + 1]] == modes) is is_lax
