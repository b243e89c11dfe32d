"""What both backends of the index promise, asked of each: `Store`."""

from __future__ import annotations

import random
import shutil
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from pump.index import backends, sqlite_store
from pump.index.backends import LEVELDB, SQLITE
from pump.index.store import IndexDamaged, Store
from tidb_binlog.errors import ConfigError

KEYS = [b"!binlog!head", *(b"%s:%04d" % (kind, number) for kind in (b"pr", b"ts") for number in range(1500))]


def opened(backend: str, path: Path) -> Store:
    path.mkdir(exist_ok=True)
    return backends.open_store(backend, str(path), write_buffer_bytes=64 << 10, cache_bytes=1 << 16)


@pytest.fixture(params=[LEVELDB, SQLITE])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def write(store: Store, changes: dict[bytes, bytes | None], *, sync: bool = False) -> None:
    with store.write_batch(sync=sync) as batch:
        for key, value in changes.items():
            batch.delete(key) if value is None else batch.put(key, value)


def a_batch(rng: random.Random) -> dict[bytes, bytes | None]:
    """Some keys anywhere, or a run of neighbours, put or (whole runs now and then) taken out."""
    if rng.random() < 0.5:
        keys = rng.sample(KEYS, rng.choice([0, 1, 30]))
    else:
        at = rng.randrange(len(KEYS))
        keys = KEYS[at : at + rng.choice([2, 200, 700])]
    kept = rng.choice([0, 0.9, 0.9])
    return {key: rng.randbytes(rng.choice([0, 12, 20])) if rng.random() < kept else None for key in keys}


def questions(store: Store, held: dict[bytes, bytes], rng: random.Random) -> None:
    ordered = sorted(held)
    key = rng.choice([*KEYS, b"", b"~"])
    assert store.get(key) == held.get(key)
    at = bisect_left(ordered, key)
    assert store.last_before(key) == (ordered[at - 1] if at else b"")
    start, stop = rng.choice([*KEYS, b"", b"ts:"]), rng.choice([*KEYS, b"~"])
    count = rng.choice([1, 100, 5000])
    runs = list(store.runs(start, stop, count, cached=rng.random() < 0.5))
    chosen = ordered[bisect_left(ordered, start) : bisect_right(ordered, stop)]
    assert [entry for run in runs for entry in run] == [(key, held[key]) for key in chosen]
    assert all(len(run) == count for run in runs[:-1])
    assert all(0 < len(run) <= count for run in runs[-1:])


@pytest.mark.parametrize("seed", range(4))
def test_it_answers_as_a_dictionary_does(backend: str, seed: int, tmp_path: Path) -> None:
    rng, held = random.Random(seed), dict[bytes, bytes]()
    store = opened(backend, tmp_path)
    for _ in range(120):
        changes = a_batch(rng)
        write(store, changes, sync=rng.random() < 0.1)
        for key, value in changes.items():
            held.pop(key, None) if value is None else held.update({key: value})
        for _ in range(3):
            questions(store, held, rng)
        if rng.random() < 0.1:
            store.close()
            store = opened(backend, tmp_path)
    write(store, dict.fromkeys(KEYS), sync=True)
    assert (store.last_before(b"~"), list(store.runs(b"", b"~", 10))) == (b"", [])
    store.close()


def test_a_second_process_does_not_get_it(backend: str, tmp_path: Path) -> None:
    store = opened(backend, tmp_path)
    with pytest.raises(ConfigError, match="cannot be opened"):
        opened(backend, tmp_path)
    write(store, {b"a": b"1"})
    assert store.get(b"a") == b"1"
    store.close()


def test_what_is_read_while_others_write_and_purge_is_in_order(backend: str, tmp_path: Path) -> None:
    """A reader that is in the middle of its runs: what stays is never stepped over."""
    store = opened(backend, tmp_path)
    write(store, dict.fromkeys(KEYS, b"v"))
    found = []
    for number, run in enumerate(store.runs(b"ts:", b"ts;", 100)):
        found += [key for key, _ in run]
        write(store, dict.fromkeys(KEYS[number * 400 : number * 400 + 200]))
    left = [key for run in store.runs(b"ts:", b"ts;", 100) for key, _ in run]
    assert found == sorted(set(found))
    assert set(left) <= set(found)
    store.close()


def test_what_was_read_is_not_read_again_though_what_follows_is_purged_meanwhile(
    backend: str, tmp_path: Path
) -> None:
    store = opened(backend, tmp_path)
    write(store, dict.fromkeys(KEYS, b"v"))
    for first in range(0, len(KEYS) - 300, 50):
        runs = store.runs(KEYS[first], KEYS[-1], 1)
        found = [key for key, _ in next(runs)]
        write(store, dict.fromkeys(KEYS[first + 1 : -1]))
        found += [key for run in runs for key, _ in run]
        assert found == sorted(set(found))
        assert found[-1] == KEYS[-1]
        write(store, dict.fromkeys(KEYS, b"v"))
    store.close()


def test_sqlite_is_not_closed_in_the_middle_of_another_call(tmp_path: Path) -> None:
    """Python's module does not wait for a call on another thread: the process would crash."""
    store = sqlite_store.SqliteStore(str(tmp_path), write_buffer_bytes=0, cache_bytes=1 << 16)
    real, alone = store._database, []

    class Closing:
        def close(self) -> None:
            alone.append(store._lock.locked())
            real.close()

    store._database = cast(sqlite3.Connection, Closing())
    store.close()
    assert alone == [True]


def test_a_full_disk_is_told_and_changes_nothing(tmp_path: Path) -> None:
    store = sqlite_store.SqliteStore(str(tmp_path), write_buffer_bytes=0, cache_bytes=1 << 16)
    write(store, dict.fromkeys(KEYS[:100], b"v"))
    store._database.execute("PRAGMA max_page_count = 3")
    with pytest.raises(OSError, match="cannot be written: database or disk is full"):
        write(store, dict.fromkeys(KEYS, b"w"))
    assert store.get(KEYS[0]) == b"v"
    store._database.execute("PRAGMA max_page_count = 1000000")
    write(store, dict.fromkeys(KEYS, b"w"))
    assert [entry for run in store.runs(b"", b"~", 999) for entry in run] == [(key, b"w") for key in KEYS]
    store.close()


def after_power_cut(path: Path, copy: Path, wal_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """What is there where only so much of what was written ahead was on the medium."""
    copy.mkdir()
    shutil.copy(path / "index.sqlite", copy)
    ahead = (path / "index.sqlite-wal").read_bytes()
    (copy / "index.sqlite-wal").write_bytes(ahead[:wal_bytes])
    store = opened(SQLITE, copy)
    for run in store.runs(b"", b"~", 100):
        yield from run
    store.close()
    shutil.rmtree(copy)


def test_a_power_cut_takes_the_newest_batches_alone_and_none_that_is_synced(tmp_path: Path) -> None:
    store = opened(SQLITE, tmp_path / "kv")
    for number in range(10):
        write(store, {b"%d" % number: b"v"}, sync=number == 4)
    ahead = (tmp_path / "kv" / "index.sqlite-wal").stat().st_size
    lost = set()
    for size in range(0, ahead + 1, 400):
        kept = [key for key, _ in after_power_cut(tmp_path / "kv", tmp_path / "copy", size)]
        assert kept == [b"%d" % number for number in range(len(kept))]
        lost.add(10 - len(kept))
    assert lost == set(range(6)), "none that is synced"
    store.close()


def test_a_leaf_of_another_moment_is_damage(tmp_path: Path) -> None:
    """Each of them fits its checksum; together they are not what was written."""
    store = opened(SQLITE, tmp_path)
    write(store, dict.fromkeys(KEYS[:140], b"v"))
    database = store._database  # type: ignore[attr-defined]
    (before,) = database.execute("SELECT data FROM leaf").fetchone()
    write(store, dict.fromkeys(KEYS[:1000], b"v"))
    database.execute("UPDATE leaf SET data = ? WHERE first = x''", (before,))
    for ask in (
        lambda: store.get(KEYS[0]),
        lambda: list(store.runs(b"", b"~", 100)),
        lambda: write(store, {KEYS[0]: b""}),
    ):
        with pytest.raises(IndexDamaged, match="a leaf after  is lost"):
            ask()
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM leaf",
        "UPDATE leaf SET data = substr(data, 2)",
        "UPDATE leaf SET first = x'70'",
    ],
)
def test_what_another_program_did_to_the_file_is_damage(change: str, tmp_path: Path) -> None:
    opened(SQLITE, tmp_path).close()
    with sqlite3.connect(tmp_path / "index.sqlite") as database:
        database.execute(change)
    database.close()
    store = opened(SQLITE, tmp_path)
    with pytest.raises(IndexDamaged):
        store.get(b"a")
    store.close()


def test_nothing_is_left_in_leveldbs_own_log_which_a_go_pump_may_step_over(tmp_path: Path) -> None:
    for _ in range(3):
        store = opened(LEVELDB, tmp_path)
        write(store, dict.fromkeys(KEYS, b"v"))
        store.settle()
        store.close()
        assert [log.stat().st_size for log in tmp_path.glob("*.log")] == [0]
    assert sum(len(run) for run in opened(LEVELDB, tmp_path).runs(b"", b"~", 100)) == len(KEYS)
