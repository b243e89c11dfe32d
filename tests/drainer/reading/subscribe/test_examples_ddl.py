"""The examples that keep rows, where a schema change moves, takes or brings rows: nothing is wrong."""

from __future__ import annotations

import importlib.util
import random
import sqlite3
from pathlib import Path
from types import ModuleType

import pytest

from drainer.changes.model import Ddl
from tests.drainer.changes.mirror import World

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Store:
    """A key-value store in memory."""

    def __init__(self) -> None:
        self.values: set[str] = set()

    def delete_prefix(self, prefix: str) -> None:
        self.values = {key for key in self.values if not key.startswith(prefix)}


@pytest.mark.parametrize("seed", range(10))
def test_a_cache_holds_no_row_that_is_not_there(seed: int) -> None:
    """What it does not hold is asked of the database."""
    cache, store, draw = example("cache"), Store(), random.Random(seed)

    class Cached(World):
        def seen(self, ddl: Ddl) -> None:
            cache.apply(store, ddl)

    world = Cached()
    for _ in range(80):
        world.any_change(draw)
        there = {f"{name}:{row}" for name, rows in world.truth().items() for row in rows}
        assert store.values <= there
        if world.tables:
            world.insert(draw.choice(list(world.tables)))
        store.values = {f"{name}:{row}" for name, rows in world.truth().items() for row in rows}


def test_sums_start_anew_with_an_empty_table_and_end_where_nobody_knows_them() -> None:
    sums = example("own_database")
    database = sqlite3.connect(":memory:")
    database.executescript(sums.SCHEMA)
    ddls: list[Ddl] = []

    class Summed(World):
        def seen(self, ddl: Ddl) -> None:
            ddls.append(ddl)

    def total() -> list[tuple[str]]:
        database.execute("INSERT OR IGNORE INTO total VALUES ('pen', 1, 2.5)")
        sums.apply_ddl(database, ddls[-1])
        return database.execute("SELECT category FROM total").fetchall()

    world = Summed()
    one, parts = world.create("ra", 0), world.create("rb", 2)
    assert total() == [("pen",)]
    world.rename((one, "rc"))
    assert total() == [("pen",)], "the rows are there"
    world.truncate(one)
    assert total() == []
    last_ts = ddls[-1].commit_ts
    for number in range(4):
        if number < 2:
            world.lose_partition(parts, drop=not number)
        elif number == 2:
            world.recast(parts)
        else:
            world.flashback(random.Random(1))
        with pytest.raises(SystemExit, match="sums cannot go on: rows became others without row changes"):
            total()
        (position,) = database.execute("SELECT max(commit_ts) FROM position").fetchone()
        assert position == last_ts, "the next start comes to the same place"
