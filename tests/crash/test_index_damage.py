"""Damage of the index's own files: rebuilt, filed again or without effect; never another answer.

`python -m tests.crash.faults.index_damage` tries every bit, byte and sector; here each Nth.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from pump.index import index_files
from pump.index.backends import LEVELDB, SQLITE
from pump.index.index import Index
from pump.index.index_files import Broken, Whole
from pump.log.record import START, LogRecord, ValuePointer
from tests.crash.faults import index_damage
from tests.pump.support.payloads import opened, pull, put_pair, wait_watermark
from tests.waiting import PATIENCE_S
from tidb_binlog.binlog import COMMIT, PREWRITE

EVERY = 89
_FORKS = multiprocessing.get_context("forkserver")


@pytest.fixture
def scratch() -> Iterator[Path]:
    made = index_damage.scratch()
    yield Path(made)
    shutil.rmtree(made)


async def test_damage_of_any_file_of_the_index(scratch: Path) -> None:
    few = await index_damage.few_bytes(scratch / "few")
    idle = await index_damage.idle(scratch / "idle")
    many = await index_damage.many_blocks(scratch / "many")
    assert {name.rpartition(".")[2].partition("-")[0] for name, _ in few.files()} == {
        "log",
        "ldb",
        "CURRENT",
        "MANIFEST",
    }
    assert max(size for _, size in many.files()) > 3 * index_damage.BLOCK
    seen = Counter[str]()
    for image, damages in (
        (few, islice(chain(few.bits(), few.cuts()), 0, None, EVERY)),
        (few, few.sectors()),
        (idle, islice(chain(idle.bits(), idle.cuts(), idle.sectors()), 0, None, EVERY)),
        (many, islice(many.sectors(), 0, None, EVERY)),
    ):
        for damage in damages:
            seen[await index_damage.judge(image, damage, scratch / "damaged")] += 1
    assert seen["rebuilt"] > 90
    assert seen["no loss"] > 90


async def test_a_table_that_is_damaged_while_the_pump_runs_does_not_stop_pulls_for_good(
    scratch: Path,
) -> None:
    """What a puller finds wrong ends the pump; the next start builds the index anew."""
    image = await index_damage.tables(scratch / "tables")
    seen = Counter[str]()
    for name, _ in image.files():
        if not name.endswith(".ldb"):
            continue
        end = index_damage.data_end((image.path / "kv" / name).read_bytes())
        for at in range(0, end, max(1, end // 12)):
            damage = index_damage.Damage("flip", name, at, at % 8)
            seen[await index_damage.judge(image, damage, scratch / "damaged", while_open=True)] += 1
    assert seen["told, rebuilt"]
    assert seen.keys() <= {"told, rebuilt", "no loss"}


async def test_damage_of_the_file_of_sqlite(scratch: Path) -> None:
    image = await index_damage.sqlite(scratch / "sqlite" / "whole")
    seen = Counter[str]()
    assert [name for name, _ in image.files()] == ["index.sqlite", "index.sqlite-wal"]
    flips = [
        index_damage.Damage("flip", name, at, at % 8)
        for name, size in image.files()
        for at in range(0, size, size // 20)
    ]
    sectors = list(image.sectors())
    for damage in (*flips, *sectors[:: len(sectors) // 20]):
        seen[await index_damage.judge(image, damage, scratch / "damaged")] += 1
    assert seen["told, rebuilt"] > 1
    assert seen["no loss"] > 10


def write_until_killed(
    path: str, backend: str, batches: multiprocessing.synchronize.Semaphore, written: Any
) -> None:
    """Batches of all sizes; the smallest buffer that LevelDB takes is full every few of them."""
    index = Index.open(path, backend=backend, write_buffer_bytes=64 << 10)
    at = index.head.offset
    rng = random.Random(at)
    while True:
        records = []
        for _ in range(rng.choice([1, 1, 5, 400])):
            at += 1
            records.append(
                LogRecord(*((PREWRITE, at, 0) if at % 9 else (COMMIT, at - 1, at)), ValuePointer(1, at))
            )
        index.write(records, ValuePointer(1, at), at, START)
        written.value = at
        batches.release()


def judge(path: str) -> Whole | Broken:
    files = {file.name: file.read_bytes() for file in Path(path).iterdir()}
    sizes = {name: len(data) for name, data in files.items()}
    return index_files.judge(sizes, lambda name, offset, size: files[name][offset : offset + size])


@pytest.mark.parametrize("backend", [LEVELDB, SQLITE])
def test_a_killed_process_leaves_the_index_whole(backend: str, scratch: Path) -> None:
    """No batch is lost. However LevelDB was about to write a table, to merge some or to remove a log: no
    alarm, and no cut but that of a batch in the middle of whose write the process was killed."""
    path, rng = str(scratch / "kv"), random.Random(7)
    written = _FORKS.Value("q", 0)
    for _ in range(6):
        batches = _FORKS.Semaphore(0)
        writer = _FORKS.Process(
            target=write_until_killed, args=(path, backend, batches, written), daemon=True
        )
        writer.start()
        for _ in range(rng.randint(1, 40)):
            assert batches.acquire(timeout=PATIENCE_S)
        writer.kill()
        writer.join()
        if backend == LEVELDB:
            judged = judge(path)
            assert isinstance(judged, Whole)
            assert [cut.reason for cut in judged.cuts] in ([], ["the file ends early"])
        index = Index.open(path, backend=backend, write_buffer_bytes=64 << 10)
        stored = [ts for run, _ in index.runs(0, 1 << 62) for ts in run]
        assert stored == list(range(1, index.head.offset + 1))
        assert index.head.offset >= written.value
        index.close()


async def test_a_pump_goes_on_where_the_log_of_leveldb_was_cut(
    scratch: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end that a power cut took is filed again, and the index is not built anew for it."""
    async with opened(scratch, abandon=True) as storage:
        for ts in range(10, 1000, 10):
            await put_pair(storage, ts, ts + 1)
        await wait_watermark(storage, 991)
        expected = await pull(storage)
    (file,) = (scratch / "kv").glob("*.log")
    data = bytearray(file.read_bytes())
    data[1000:1512] = bytes(512)
    file.write_bytes(data)
    caplog.set_level("INFO", "tidb_binlog")
    async with opened(scratch) as storage:
        (sorted_again,) = [record for record in caplog.records if record.msg == "what was stored is sorted"]
        assert sorted_again.__dict__["fields"]["replayed_records"] > 150
        assert await pull(storage, from_disk=True) == expected
    assert not list(scratch.glob("kv.*"))
