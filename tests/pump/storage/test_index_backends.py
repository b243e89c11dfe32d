"""Which files an index has, and a change from one kind to the other: everything is served as before."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pump.index import backends
from pump.index.backends import AUTO, LEVELDB, SQLITE, Missing
from pump.storage.data_dir import DataDir
from pump.storage.opening import StorageLimits
from pump.storage.storage import Storage
from tests.missing import without
from tests.pump.support import corpus
from tests.pump.support.payloads import opened, pull, put, put_pair, wait_watermark
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption

SMALL = StorageLimits(segment_bytes_max=20_000)
OTHER = {LEVELDB: SQLITE, SQLITE: LEVELDB}
RECORDED = corpus.recordings(killed=False)


async def fill(storage: Storage, first_ts: int, count: int = 100) -> None:
    """Transactions whose ends come in another order than their beginnings, one of them rolled back."""
    started = range(first_ts, first_ts + count)
    await put(storage, *(binlog.prewrite(ts, b"k", bytes(ts % 300)) for ts in started))
    last_ts = first_ts + 3 * count
    ends = [binlog.commit(ts, last_ts - (ts - first_ts), b"k") for ts in started[1:]]
    await put(storage, *ends, binlog.rollback(first_ts))
    await wait_watermark(storage, last_ts - 1)


def index_files(directory: Path) -> list[str]:
    return backends.present_in(str(directory / "kv"))


@pytest.mark.parametrize("first", [LEVELDB, SQLITE])
@pytest.mark.parametrize("abandon", [False, True], ids=["stopped", "killed"])
async def test_nothing_is_lost_and_the_order_is_the_same_whichever_way_it_is_changed(
    first: str, abandon: bool, tmp_path: Path
) -> None:
    """Also what was written between two changes, and by a pump that was killed."""
    expected, at = [], 1000
    for backend in (first, OTHER[first], first, first, OTHER[first]):
        async with opened(tmp_path, limits=SMALL, index_backend=backend, abandon=abandon) as storage:
            assert await pull(storage, from_disk=True) == expected
            await fill(storage, at)
            at += 1000
            expected = await pull(storage)
            assert storage.open_count == 0
        assert index_files(tmp_path) == [backend]
    assert len(expected) == 5 * 99
    assert [one.commit_ts for one in expected] == sorted({one.commit_ts for one in expected})
    set_aside = {path.name for path in tmp_path.glob("kv.*")}
    assert set_aside == {f"kv.{first}-1", f"kv.{first}-2", f"kv.{OTHER[first]}-1"}


@pytest.mark.parametrize("first", [LEVELDB, SQLITE])
async def test_a_pump_that_is_killed_while_it_builds_the_new_index_goes_on_building_it(
    first: str, tmp_path: Path
) -> None:
    async with opened(tmp_path, limits=SMALL, index_backend=first) as storage:
        for at in range(1000, 30_000, 1000):
            await fill(storage, at)
        expected = await pull(storage, from_disk=True)
    for _ in range(3):
        async with opened(tmp_path, limits=SMALL, index_backend=OTHER[first], abandon=True, replayed=False):
            await asyncio.sleep(0)
    async with opened(tmp_path, limits=SMALL, index_backend=OTHER[first]) as storage:
        assert await pull(storage, from_disk=True) == expected
    assert len(list(tmp_path.glob("kv.*"))) == 1


@pytest.mark.parametrize("first", [LEVELDB, SQLITE])
async def test_damage_of_what_was_acknowledged_is_not_taken_for_a_torn_end(
    first: str, tmp_path: Path
) -> None:
    """The index that is left knows what was; until the loss is accepted it stays."""
    async with opened(tmp_path, index_backend=first) as storage:
        await put_pair(storage, 10, 20)
        await put(storage, binlog.prewrite(30, b"k", b"v"))
        damaged_at = storage.value_log.end.offset
        await put(storage, binlog.commit(30, 40, b"k"))
        await wait_watermark(storage, 40)
        end = storage.value_log.end.offset
    log = tmp_path / "value" / "000000.vlog"
    log.write_bytes(log.read_bytes()[:damaged_at] + bytes(end - damaged_at))
    for _ in range(2):
        with pytest.raises(Corruption, match="it had been acknowledged") as told:
            async with opened(tmp_path, index_backend=OTHER[first]):
                pass
        assert index_files(tmp_path) == [first]
    place = f"000000.vlog:{damaged_at}"
    assert f"--accept-loss {place}" in str(told.value.hint)
    async with opened(tmp_path, index_backend=OTHER[first], accept_loss=place) as storage:
        await put_pair(storage, 70, 80)
        await put(storage, binlog.rollback(30))
        await wait_watermark(storage, 80)
        expected = await pull(storage)
        assert [one.commit_ts for one in expected] == [20, 80]
    async with opened(tmp_path, index_backend=OTHER[first]) as storage:
        assert await pull(storage, from_disk=True) == expected
    assert index_files(tmp_path) == [OTHER[first]]


@pytest.mark.parametrize("first", [LEVELDB, SQLITE])
async def test_what_was_purged_stays_purged(first: str, tmp_path: Path) -> None:
    """Told by the index alone: a pump of before has no note of it."""
    async with opened(tmp_path, index_backend=first) as storage:
        await fill(storage, 1000)
        storage.index.set_gc_ts(1050)
    async with opened(tmp_path, index_backend=OTHER[first]) as storage:
        assert storage.gc_ts == 1050
        assert storage.index.gc_ts == 1050
    async with opened(tmp_path, index_backend=first) as storage:
        assert storage.gc_ts == 1050


async def test_a_prewrite_that_is_decided_without_an_end_in_the_log_stays_decided(tmp_path: Path) -> None:
    """As a Go pump leaves it when the database says that it was rolled back."""
    async with opened(tmp_path, index_backend=LEVELDB) as storage:
        await put(storage, binlog.prewrite(1, b"k", b"v"))
        await put(
            storage,
            *(
                payload
                for ts in range(1000, 1100, 2)
                for payload in (binlog.prewrite(ts, b"k", b"v"), binlog.commit(ts, ts + 1, b"k"))
            ),
        )
        async with asyncio.timeout(PATIENCE_S):
            while storage.value_log.end != storage.places.indexed:
                await asyncio.sleep(0)
        last = storage.index.head
    async with opened(tmp_path, index_backend=LEVELDB, abandon=True) as storage:
        storage.index.set_handle(last)
    async with opened(tmp_path, index_backend=SQLITE) as storage:
        assert storage.open_count == 0
        await wait_watermark(storage, 1099)
        assert [one.commit_ts for one in await pull(storage, from_disk=True)] == [*range(1001, 1100, 2)]


@pytest.mark.parametrize("recording", RECORDED, ids=lambda recording: recording.name)
async def test_a_go_pump_s_directory_opens_with_leveldb_and_is_served_alike_after_a_change(
    recording: corpus.Recording, tmp_path: Path
) -> None:
    directory = recording.unpack(tmp_path)
    async with opened(directory) as storage:
        expected, gc_ts = await pull(storage, storage.gc_ts), storage.gc_ts
    assert index_files(directory) == [LEVELDB]
    assert not list(directory.glob("kv.*"))
    async with opened(directory, index_backend=SQLITE) as storage:
        assert (storage.open_count, storage.gc_ts) == (0, gc_ts)
        assert await pull(storage, gc_ts, from_disk=True) == expected


@pytest.fixture
def without_leveldb(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "plyvel", "plyvel_next", forget=r"pump\.index\.leveldb_store")


async def test_a_python_without_leveldb_builds_the_index_of_a_directory_anew(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened(tmp_path) as storage:
        await fill(storage, 1000)
        storage.purged_to(1010)
        expected = await pull(storage, 1010)
    request.getfixturevalue("without_leveldb")
    async with opened(tmp_path) as storage:
        assert storage.gc_ts == 1010
        assert await pull(storage, 1010, from_disk=True) == expected
    assert index_files(tmp_path) == [SQLITE]
    assert backends.present_in(str(tmp_path / "kv.leveldb-1")) == [LEVELDB]


@pytest.mark.usefixtures("without_leveldb")
async def test_a_backend_that_is_asked_for_and_missing_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 20)
    with pytest.raises(Missing, match="this Python has no leveldb") as told:
        async with opened(tmp_path, index_backend=LEVELDB):
            pass
    assert 'storage.index = "sqlite"' in str(told.value.hint)
    assert index_files(tmp_path) == [SQLITE]


@pytest.mark.parametrize(
    ("present", "chosen"),
    [([], LEVELDB), ([LEVELDB], LEVELDB), ([SQLITE], SQLITE), ([LEVELDB, SQLITE], LEVELDB)],
)
def test_automatically_it_is_what_the_directory_has(present: list[str], chosen: str) -> None:
    assert backends.choose(AUTO, present) == chosen


async def test_an_index_beside_which_a_go_pump_went_on_is_not_believed(tmp_path: Path) -> None:
    """The Go pump sees a directory without an index, and builds its own from the log."""
    async with opened(tmp_path, index_backend=SQLITE) as storage:
        await fill(storage, 1000)
    shutil.copytree(tmp_path / "kv", tmp_path / "before")
    async with opened(tmp_path, index_backend=LEVELDB) as storage:
        await fill(storage, 3000)
        expected = await pull(storage)
    shutil.copy(tmp_path / "before" / "index.sqlite", tmp_path / "kv")
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    for directory, backend in ((tmp_path, AUTO), (tmp_path.with_name("copy"), SQLITE)):
        async with opened(directory, index_backend=backend) as storage:
            assert await pull(storage, from_disk=True) == expected
        assert index_files(directory) == [SQLITE if backend == SQLITE else LEVELDB]


def test_locks_of_a_directory_stay_while_its_index_is_set_aside(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    assert data_dir.set_aside("kv", LEVELDB) == str(tmp_path / "kv.leveldb-1")
    with pytest.raises(Exception, match="locked"):
        DataDir(str(tmp_path))
    data_dir.close()
