"""Folding, forms of statements and lanes against a real MariaDB: the same contents as row by row.

Upstream is played by a MariaDB table of the same definition, changed one row at a time; what it refuses did
not happen. The same events then go through dispatcher, fold and statements, lanes in a random order, into a
table that may differ from upstream's: collations, keys, triggers, columns of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drainer.mysql.connection import Connection, Target, connect
from drainer.mysql.rows.change import Form
from drainer.mysql.rows.dialect import Dialect
from drainer.txn import UPDATE, TableEvents, Transaction
from tests.drainer.support.apply_model import SHAPES, Shape, World

pytestmark = pytest.mark.integration

BATCHES = 75


@pytest.fixture
def connection(server: Target) -> Iterator[Connection]:
    opened = connect(server)
    opened.run(b"DROP DATABASE IF EXISTS m")
    opened.run(b"CREATE DATABASE m")
    yield opened
    opened.rollback()
    opened.run(b"DROP DATABASE m")
    opened.close()


def has_triggers(connection: Connection) -> bool:
    return connection.dialect is not Dialect.TIDB


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_contents_equal_row_by_row(connection: Connection, shape: Shape) -> None:
    if shape.trigger and not has_triggers(connection):
        shape = replace(shape, trigger=False, form=Form.REPLACE if shape.form is Form.UPSERT else shape.form)
    rng = random.Random(shape.name)
    world = World(connection, shape, rng)
    assert (world.target.form, world.target.spread) == (shape.form, shape.spread)
    for _ in range(BATCHES):
        chunks = world.batch()
        world.apply(chunks)
        world.check()
        if world.target.keyed and rng.random() < 0.25:
            # A drainer that takes over may bring the same once more: safe mode.
            world.apply(chunks, replaying=True)
            world.moved.update(world.rows)
            world.check()


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.name.startswith("unique")], ids=lambda shape: shape.name
)
def test_a_cut_transaction_keeps_what_only_the_downstream_has(connection: Connection, shape: Shape) -> None:
    """Its parts go out one after the other; small transactions share a batch with its beginning."""
    world = World(connection, shape, random.Random(f"cut {shape.name} 0"), cut_rows=2)
    cut = 0
    for _ in range(BATCHES):
        chunks = world.batch()
        cut += sum(chunk.cut for chunk in chunks)
        world.apply(chunks)
        world.check()
    assert cut > BATCHES


def test_a_row_that_is_overwritten_fires_no_delete_trigger(connection: Connection) -> None:
    if not has_triggers(connection):
        return
    shape = next(shape for shape in SHAPES if shape.trigger)
    world = World(connection, shape, random.Random(1))
    events = [world.insert()]
    rid = next(iter(world.rows))
    row = world.rows[rid]
    for value in (1, 2, 3):
        new = {**row, "v": value}
        events.append((UPDATE, world.encoder.update(row, new)))
        row = new
    for kind_, encoded in events:  # each in a batch of its own
        world.ts += 1
        tables = (TableEvents(world.version, [kind_], [encoded], 0),)
        world.lanes.dispatch(Transaction(world.ts - 1, world.ts, tables, 1))
        world.apply([chunk for _, chunk in world.lanes.take()])
    assert world.run("SELECT v FROM m.dst") == ((3,),)
    assert world.run("SELECT * FROM m.gone") == ()
