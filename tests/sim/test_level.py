"""The world's LevelDB beside the real one, as the index uses it."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pump.index.index import plyvel
from tests.sim.level import Database, Level


def key(rng: random.Random) -> bytes:
    return b"ts:%03d" % rng.randrange(60)


def step(database: Any, rng: random.Random) -> Any:
    match rng.randrange(5):
        case 0:
            return database.put(key(rng), b"%d" % rng.randrange(9))
        case 1:
            with database.write_batch(sync=rng.random() < 0.3) as batch:
                for _ in range(rng.randrange(5)):
                    batch.delete(key(rng)) if rng.random() < 0.3 else batch.put(key(rng), b"x")
            return None
        case 2:
            return database.get(key(rng), verify_checksums=True)
        case 3:
            start, stop = sorted((key(rng), key(rng)))
            bounds = {"include_start": rng.random() < 0.5, "include_stop": rng.random() < 0.5}
            with database.iterator(start=start, stop=stop, verify_checksums=True, **bounds) as found:
                return list(found)
    with closing(database.raw_iterator(verify_checksums=True)) as found:
        found.seek(key(rng)) if rng.random() < 0.7 else found.seek_to_last()
        if not found.valid():
            return None
        at = found.key()
        (found.next if rng.random() < 0.5 else found.prev)()
        return at, found.valid() and found.key()


@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_the_real_one(seed: int, tmp_path: Path) -> None:
    simulated = Database(Level(), SimpleNamespace(alive=True))
    with closing(plyvel.DB(str(tmp_path / "kv"), create_if_missing=True)) as real:
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
    database.put(b"a", b"1")
    life.alive = False
    database.put(b"a", b"2")
    assert database.get(b"a", verify_checksums=True) == b"1"
