"""Undo against a real MariaDB: random histories in tables of all shapes, taken back to what was before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from common.rowcodec.plan import TablePlan
from deploy.playground.mariadb import MariaDbServer
from drainer import downstream_table
from drainer.change import TableTarget
from drainer.sink import mysql
from drainer.spark import undo
from drainer.spark.operations import Effect, Operations, effects_in_order, table_id
from drainer.spark.records import Changes, Row
from drainer.spark.undo import Undo
from drainer.sql_literal import ImageSqlPlan
from drainer.table_target import target_of
from drainer.txn import DELETE, INSERT
from tests.drainer.test_apply_model_mariadb import SHAPES, Shape, World

pytestmark = pytest.mark.integration

ROUNDS = 6
Transactions = list[list[Row]]


@pytest.fixture
def connection(mariadb: MariaDbServer) -> Iterator[pymysql.Connection[Any]]:
    target = mysql.Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password, mariadb.socket)
    opened = mysql.connect(target)
    mysql.run(opened, b"DROP DATABASE IF EXISTS m")
    mysql.run(opened, b"CREATE DATABASE m")
    yield opened
    opened.rollback()
    mysql.run(opened, b"DROP DATABASE m")
    opened.close()


class History:
    """What happens to a table, as an archive tells it."""

    def __init__(self, world: World) -> None:
        self.world = world
        found = downstream_table.read(world.connection, "m", "dst")
        assert found is not None
        self.target: TableTarget = target_of(world.version, 1, found, plan=ImageSqlPlan)
        self._plan = TablePlan(world.version.info)

    def some(self, transactions: int) -> Transactions:
        """Made up, and applied downstream."""
        found: Transactions = []
        for _ in range(transactions):
            events = [event for _ in range(self.world.rng.randint(1, 4)) for event in self.world.event()]
            found.append([self._row(*event) for event in events])
        return found

    def _row(self, kind: int, encoded: bytes) -> Row:
        version = self.world.version
        if kind == INSERT:
            return version, kind, None, self.world.encoder.delete(self._plan.decode_insert(encoded), rowid=1)
        if kind == DELETE:
            return version, kind, encoded, None
        split = self.target.sql.update_split(encoded)
        return version, kind, encoded[:split], encoded[split:]

    def effects(self, transactions: Transactions) -> list[Effect]:
        number = table_id(self.world.version)
        operations = Operations(lambda _: 1, frozenset({number}))
        for ts, rows in enumerate(transactions, 1):
            operations.add(Changes(ts, 0, "", 0, 0, rows))
        return list(effects_in_order(operations.take()))

    def net(self, transactions: Transactions) -> list[Undo]:
        """Of the whole range."""
        return list(undo.of_effects(self.effects(transactions), lambda _: self.target))

    def backwards(self, transactions: Transactions) -> list[Undo]:
        """One transaction after the other."""
        return [one for transaction in reversed(transactions) for one in self.net([transaction])]


def run(connection: pymysql.Connection[Any], undos: list[Undo], rows_max: int) -> None:
    for batch in undo.batches(undos, rows_max, 1 << 20):
        for question, count in undo.questions(batch):
            assert mysql.rows(connection, question) == [(count,)], batch[0].shown
        for statement in undo.statements(batch, 1 << 20):
            assert statement.drift(mysql.run(connection, statement.sql)) == 0, statement.sql


def contents(world: World) -> Counter[Any]:
    columns = ",".join(f"HEX({name})" if name != "f" else "f+0e0" for name in world.names)
    return Counter(world.run(f"SELECT {columns} FROM m.dst"))


def copy_to_downstream(world: World) -> None:
    """Upstream's rows, as a drainer would have brought them."""
    names = ",".join(world.names)
    world.run("DELETE FROM m.dst")
    world.run(f"INSERT INTO m.dst ({names}) SELECT {names} FROM m.ref")


@pytest.mark.parametrize("way", ["net", "backwards"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_rows_are_what_they_were(connection: pymysql.Connection[Any], shape: Shape, way: str) -> None:
    world = World(connection, shape, random.Random(shape.name + way))
    history = History(world)
    history.some(8)
    for _ in range(ROUNDS):
        copy_to_downstream(world)
        before, kept = contents(world), dict(world.rows)
        transactions = history.some(world.rng.randint(1, 8))
        copy_to_downstream(world)
        undos = history.net(transactions) if way == "net" else history.backwards(transactions)
        run(connection, undos, world.rng.choice((1, 3, 1000)))
        assert contents(world) == before
        world.run("DELETE FROM m.ref")
        world.rows = {}
        for rid, row in kept.items():
            world._put(rid, row)


def test_a_row_changed_by_others_is_told(connection: pymysql.Connection[Any]) -> None:
    shape = next(shape for shape in SHAPES if shape.name == "int_extra")
    world = World(connection, shape, random.Random(3))
    history = History(world)
    (insertion,) = [[history._row(*world._insert())]]
    (rid,) = world.rows
    change = [history._row(*world._update(rid))]
    world.run("INSERT INTO m.dst (id, v, s) SELECT id, v + 100, s FROM m.ref")
    for transactions in ([insertion], [insertion, change]):
        (batch,) = undo.batches(history.net(transactions), 10, 1 << 20)
        ((question, wanted),) = undo.questions(batch)
        assert mysql.rows(connection, question) != [(wanted,)]
    assert batch[0].shown.startswith("M.dst `id` = ") or batch[0].shown.startswith("m.dst `id` = ")
    deletion = [history._row(*world._delete(rid))]
    (batch,) = undo.batches(history.net([deletion]), 10, 1 << 20)
    ((question, wanted),) = undo.questions(batch)
    assert (mysql.rows(connection, question), wanted) == ([(1,)], 0)
