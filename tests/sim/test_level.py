"""The world's LevelDB beside the real one, as the index uses it."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pump.index.leveldb_store import LevelDbStore
from pump.index.store import Store
from tests.sim.level import Database, Level


def key(rng: random.Random) -> bytes:
    return b"ts:%03d" % rng.randrange(60)


def step(store: Store, rng: random.Random) -> Any:
    match rng.randrange(4):
        case 0:
            with store.write_batch(sync=rng.random() < 0.3) as batch:
                for _ in range(rng.randrange(5)):
                    batch.delete(key(rng)) if rng.random() < 0.3 else batch.put(key(rng), b"x")
            return None
        case 1:
            return store.get(key(rng))
        case 2:
            start, stop = sorted((key(rng), key(rng)))
            return list(store.runs(start, stop, rng.choice((1, 3, 100)), cached=rng.random() < 0.5))
    return store.last_before(key(rng) if rng.random() < 0.7 else b"~")


@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_the_real_one(seed: int, tmp_path: Path) -> None:
    simulated = Database(Level(), SimpleNamespace(alive=True))
    with closing(LevelDbStore(str(tmp_path), write_buffer_bytes=1 << 20, cache_bytes=1 << 20)) as real:
        ours, theirs = random.Random(seed), random.Random(seed)
        for _ in range(500):
            assert step(simulated, ours) == step(real, theirs)


def test_a_power_cut_takes_the_newest_batches_alone() -> None:
    lost = set()
    for seed in range(50):
        level = Level()
        database = Database(level, SimpleNamespace(alive=True))
        for number in range(10):
            with database.write_batch(sync=number == 4) as batch:
                batch.put(b"%d" % number, b"")
        kept = level.after_power_cut(random.Random(seed)).keys
        assert kept == [b"%d" % number for number in range(len(kept))]
        lost.add(10 - len(kept))
    assert lost == set(range(6)), "none that is synced"


def test_who_is_dead_writes_nothing() -> None:
    life = SimpleNamespace(alive=True)
    database = Database(Level(), life)
    for value, alive in ((b"1", True), (b"2", False)):
        life.alive = alive
        with database.write_batch() as batch:
            batch.put(b"a", value)
    assert database.get(b"a") == b"1"
