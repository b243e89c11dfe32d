"""Storage: what was written comes back, after every kind of end."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from pump.index.store import IndexDamaged
from pump.log import segment
from pump.log.delivery import Delivery
from pump.log.record import START, ValuePointer
from pump.log.value_log import ValueLog
from pump.log.writer import WriteFailed
from pump.storage.data_dir import DataDir
from pump.storage.history import PositionPurged
from pump.storage.opening import StorageLimits, oldest_whole_commit
from pump.storage.storage import Storage
from tests.pump.support import corpus
from tests.pump.support.memory_log import MemoryDirectory, MemoryFile
from tests.pump.support.payloads import header, opened, pull, put, put_pair, wait_watermark
from tests.waiting import PATIENCE_S
from tidb_binlog import binlog
from tidb_binlog.clock import SystemClock
from tidb_binlog.errors import ConfigError, Corruption
from tidb_binlog.process.daemon import exit_code

pytestmark = pytest.mark.usefixtures("each_index")
CLEAN = corpus.recordings(killed=False)
KILLED = corpus.recordings(killed=True)


async def pair(storage: Storage, ts: int, value: bytes) -> Delivery:
    return Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, value))


def transactions(deliveries: list[Delivery]) -> list[Delivery]:
    """Without marks of time."""
    return [delivery for delivery in deliveries if delivery.start_ts != delivery.commit_ts]


async def settle(storage: Storage, recording: corpus.Recording) -> None:
    """Write the ends of open prewrites that the recording pump learned later."""
    ends = {entry.start_ts: entry for entry in corpus.entries(recording.written) if entry.tp in ("C", "R")}
    for prewrite in list(storage.open_prewrites()):
        end = ends.get(prewrite.start_ts)
        await put(storage, end.payload if end else binlog.rollback(prewrite.start_ts))
    async with asyncio.timeout(PATIENCE_S):
        while storage.open_count:
            await asyncio.sleep(0)


@pytest.mark.parametrize("recording", CLEAN, ids=lambda recording: recording.name)
async def test_recorded_directory_serves_exactly_what_the_go_pump_served(
    recording: corpus.Recording, tmp_path: Path
) -> None:
    expected = [
        Delivery(entry.commit_ts, entry.start_ts, entry.payload) for entry in corpus.entries(recording.pulled)
    ]
    async with opened(recording.unpack(tmp_path)) as storage:
        assert storage.open_count == 0
        assert transactions(await pull(storage)) == expected
        middle = expected[len(expected) // 2].commit_ts
        rest = transactions(await pull(storage, middle))
        assert rest == [delivery for delivery in expected if delivery.commit_ts > middle]


@pytest.mark.parametrize("recording", CLEAN[:1] + KILLED, ids=lambda recording: recording.name)
async def test_deleted_index_is_rebuilt_with_the_same_answers(
    recording: corpus.Recording, tmp_path: Path
) -> None:
    directory = recording.unpack(tmp_path)
    async with opened(directory) as storage:
        await settle(storage, recording)
        before, watermark = await pull(storage), storage.watermark
    shutil.rmtree(directory / "kv")
    async with opened(directory) as storage:
        # A Go pump does not store that a prewrite was rolled back; it is asked for again.
        await settle(storage, recording)
        assert storage.watermark == watermark
        assert await pull(storage) == before


@pytest.mark.parametrize("recording", KILLED, ids=lambda recording: recording.name)
async def test_killed_directory_keeps_every_pair_and_takes_up_where_it_was(
    recording: corpus.Recording, tmp_path: Path
) -> None:
    directory = recording.unpack(tmp_path)
    served = {entry.commit_ts: entry.payload for entry in corpus.entries(recording.pulled)}
    async with opened(directory) as storage:
        await settle(storage, recording)
        found = transactions(await pull(storage))
        assert found
        assert all(served[delivery.commit_ts] == delivery.payload for delivery in found)
        # Nothing below the watermark is missing.
        expected = [commit_ts for commit_ts in sorted(served) if commit_ts <= storage.watermark]
        assert [delivery.commit_ts for delivery in found] == expected


async def test_written_payloads_come_back_from_memory_from_disk_and_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        expected = [
            Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, b"v" * (ts % 977)))
            for ts in range(10, 400, 10)
        ]
        await wait_watermark(storage, 391)
        assert await pull(storage) == expected
        assert await pull(storage, from_disk=True) == expected
        assert await pull(storage, 200) == [delivery for delivery in expected if delivery.commit_ts > 200]
    async with opened(tmp_path) as storage:
        assert storage.watermark == 391
        assert await pull(storage) == expected


async def test_a_process_that_dies_loses_nothing_acknowledged(tmp_path: Path) -> None:
    expected = []
    for life in range(1, 6):
        async with opened(tmp_path, abandon=True) as storage:
            assert await pull(storage) == expected
            for number in range(20):
                ts = life * 1000 + number * 10
                expected.append(Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1)))


async def test_rotation_keeps_everything_and_closes_files_with_a_footer(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=5000)
    async with opened(tmp_path, limits=limits) as storage:
        expected = [
            Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, bytes(300)))
            for ts in range(10, 1000, 10)
        ]
        await wait_watermark(storage, 991)
        assert await pull(storage, from_disk=True) == expected
    files = sorted((tmp_path / "value").iterdir())
    assert len(files) > 4
    for file in files[:-1]:
        data = file.read_bytes()
        assert data[-4:] == b"\x22\xb9\x3a\x12"
    async with opened(tmp_path, limits=limits) as storage:
        assert await pull(storage) == expected
    shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path, limits=limits) as storage:
        assert await pull(storage) == expected


async def test_start_reads_only_what_the_index_does_not_know(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=5000)
    async with opened(tmp_path, limits=limits) as storage:
        expected = [await pair(storage, ts, bytes(300)) for ts in range(10, 1000, 10)]
    # Damage that a scan would meet, in a closed file: start does not look there, a puller is told.
    first = tmp_path / "value" / "000000.vlog"
    data = bytearray(first.read_bytes())
    data[500] ^= 1
    first.write_bytes(data)
    async with opened(tmp_path, limits=limits) as storage:
        assert storage.watermark == 991
        for _ in range(2):
            with pytest.raises(Corruption, match=r"000000\.vlog: offset \d+: checksum mismatch"):
                await pull(storage)
        data[500] ^= 1
        first.write_bytes(data)
        assert await pull(storage) == expected, "once the disk is mended, without a restart"


async def test_open_prewrite_survives_a_restart_and_holds_the_watermark(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, binlog.prewrite(10, b"k", b"v"))
        await put_pair(storage, 20, 21)
        assert storage.watermark == 0
    async with opened(tmp_path) as storage:
        assert [entry.start_ts for entry in storage.open_prewrites()] == [10]
        assert storage.watermark == 0
        await put(storage, binlog.commit(10, 15))
        await wait_watermark(storage, 21)
        assert [delivery.commit_ts for delivery in await pull(storage)] == [15, 21]
    async with opened(tmp_path) as storage:
        assert storage.open_count == 0


async def test_settled_rollback_is_remembered(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, binlog.prewrite(10, b"k", b"v"))
        await put(storage, binlog.rollback(10))
    async with opened(tmp_path) as storage:
        assert storage.open_count == 0
        assert await storage.find(0) is None  # a real rollback is not filed


async def test_mark_raises_the_watermark_without_a_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
        storage.mark(50)
        await wait_watermark(storage, 50)
        await put(storage, binlog.prewrite(60, b"k", b"v"))
        storage.mark(70)
        await put(storage, binlog.commit(60, 80))
        await wait_watermark(storage, 80)
        assert [delivery.commit_ts for delivery in await pull(storage, 50)] == [80]
        storage.mark(90)
        await wait_watermark(storage, 90)
        assert storage.stored_total == 4
    async with opened(tmp_path) as storage:
        assert storage.watermark == 90  # what was told stays true


async def test_commits_above_the_watermark_are_served_after_a_start(tmp_path: Path) -> None:
    """Where timestamps are drawn, ends alone do not move the watermark: it is below what is settled."""
    async with opened(tmp_path, draws=True) as storage:
        delivery = await pair(storage, 10, b"value")
        await put(storage, binlog.prewrite(20, b"k", b"v"))
        await put(storage, binlog.rollback(20))
    async with opened(tmp_path, draws=True) as storage:
        assert storage.watermark == 0
        storage.mark(50)
        await wait_watermark(storage, 50)
        assert await pull(storage) == [delivery]


async def test_stored_time_mark_is_served_to_old_drainers_as_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, binlog.fake(42))
        await wait_watermark(storage, 42)
        assert await pull(storage) == [Delivery(42, 42, binlog.fake(42))]
        assert await pull(storage, from_disk=True) == [Delivery(42, 42, binlog.fake(42))]


async def test_commit_without_prewrite_is_an_error_that_names_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, binlog.commit(10, 11))
        await wait_watermark(storage, 11)
        for from_disk in (False, True):
            with pytest.raises(Corruption, match="commit 11 has no prewrite 10 on this pump"):
                await pull(storage, from_disk=from_disk)


async def test_position_below_what_was_purged_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
        await put(storage, binlog.commit(5, 30))
        await put_pair(storage, 40, 41)
        await wait_watermark(storage, 41)
        storage._index.set_gc_ts(20)
    async with opened(tmp_path) as storage:
        with pytest.raises(PositionPurged, match="position 10 is below the gc timestamp 20"):
            await pull(storage, 10)
        # Its prewrite was purged: that is a hole too, and said so.
        with pytest.raises(PositionPurged, match="prewrite 5 of commit 30 was purged"):
            await pull(storage, 25)
        assert [delivery.commit_ts for delivery in await pull(storage, 30)] == [41]


async def test_a_rebuilt_index_promises_nothing_about_purged_files(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=1000)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 200, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
    shutil.rmtree(tmp_path / "kv")
    (tmp_path / "value" / "000000.vlog").unlink()
    async with opened(tmp_path, limits=limits) as storage:
        assert storage.gc_ts > 10
        with pytest.raises(PositionPurged):
            await pull(storage, 0)
        assert await pull(storage, storage.gc_ts)


async def test_duplicates_and_repeats_are_served_once(tmp_path: Path) -> None:
    first, second = binlog.prewrite(10, b"key", b"v"), binlog.commit(10, 11, b"key")
    async with opened(tmp_path) as storage:
        for payload in (first, first, second, second, first):
            await put(storage, payload)
        joined = binlog.join(first, second)
        await wait_watermark(storage, 11)
        assert storage.open_count == 0
        assert await pull(storage) == [Delivery(11, 10, joined)]
        assert await pull(storage, from_disk=True) == [Delivery(11, 10, joined)]


async def test_slow_index_never_delays_writers_and_the_log_is_read_to_catch_up(tmp_path: Path) -> None:
    limits = StorageLimits(index_queue_bytes_max=4000)
    data_dir = DataDir(str(tmp_path))
    storage = await Storage.open(data_dir, clock=SystemClock(), limits=limits)
    storage.on_committed = storage.mark
    # The indexer does not run at all: writers must not notice.
    expected = [
        Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, bytes(300))) for ts in range(10, 1000, 10)
    ]
    assert storage.is_chasing
    assert storage.index_lag_bytes > 30_000
    following = asyncio.create_task(storage.run())
    await wait_watermark(storage, 991)
    async with asyncio.timeout(PATIENCE_S):
        while storage.is_chasing:
            await asyncio.sleep(0)
    assert storage.index_lag_bytes == 0
    assert await pull(storage) == expected
    last = await put_pair(storage, 2000, 2001)
    await wait_watermark(storage, 2001)
    assert (await pull(storage, 991)) == [Delivery(2001, 2000, last)]
    await storage.close()
    await following
    data_dir.close()


async def test_marks_wait_for_the_index_to_catch_up(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    storage = await Storage.open(
        data_dir, clock=SystemClock(), limits=StorageLimits(index_queue_bytes_max=10)
    )
    for ts in range(10, 100, 10):
        await put_pair(storage, ts, ts + 1)
    storage.mark(500)
    assert storage.watermark == 0  # nothing is filed yet, so nothing can be promised
    following = asyncio.create_task(storage.run())
    await wait_watermark(storage, 500)
    assert len(await pull(storage)) == 9
    await storage.close()
    await following
    data_dir.close()


@pytest.mark.parametrize("step", ["append", "sync"])
async def test_after_a_failed_write_or_sync_nothing_is_stored_any_more(step: str, tmp_path: Path) -> None:
    directory = MemoryDirectory()
    error = OSError(errno.EIO, "Input/output error")
    async with opened(tmp_path, directory=directory) as storage:
        await put_pair(storage, 10, 11)
        setattr(directory, f"{step}_error", error)
        with pytest.raises(WriteFailed, match=r"unable to write to log file: memory/000000\.vlog"):
            await put(storage, binlog.prewrite(20, b"k", b"v"))
        setattr(directory, f"{step}_error", None)
        happened = list(directory.happened)
        with pytest.raises(WriteFailed):
            await put(storage, binlog.prewrite(30, b"k", b"v"))
        assert directory.happened == happened
        assert storage.write_failure is not None
        await wait_watermark(storage, 11)
        assert [delivery.commit_ts for delivery in await pull(storage)] == [11]


async def test_real_disk_error_stops_writing(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
        try:
            with pytest.raises(WriteFailed):
                await put(storage, binlog.prewrite(20, b"k", bytes(50_000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, handler)
    async with opened(tmp_path) as storage:
        assert storage.open_count == 0
        await put_pair(storage, 30, 31)
        await wait_watermark(storage, 31)
        assert [delivery.commit_ts for delivery in await pull(storage)] == [11, 31]


async def test_a_group_is_synced_before_any_of_it_is_acknowledged(tmp_path: Path) -> None:
    directory = MemoryDirectory()
    async with opened(tmp_path, directory=directory) as storage:
        writes = [put(storage, binlog.prewrite(ts, b"k", bytes(100))) for ts in range(10, 500)]
        acknowledged = []

        async def write(number: int) -> None:
            await writes[number]
            file = directory.files["000000.vlog"]
            assert file.durable == file.size() or directory.happened[-1].startswith("append")
            acknowledged.append(file.durable)

        await asyncio.gather(*(write(number) for number in range(len(writes))))
        syncs = directory.happened.count("sync 000000.vlog")
        assert 1 <= syncs < 100, "writes queued together share a sync"
        assert directory.happened.index("create 000000.vlog") == 0


async def test_wakes_of_a_writer_that_is_never_idle_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, released = threading.Semaphore(0), threading.Semaphore(0)
    sync = MemoryFile.sync

    def slow_sync(file: MemoryFile) -> None:
        syncs.release()
        assert released.acquire(timeout=PATIENCE_S)
        sync(file)

    async with opened(tmp_path, directory=MemoryDirectory()) as storage:
        await put(storage, binlog.prewrite(10, b"k", b"v"))
        monkeypatch.setattr(MemoryFile, "sync", slow_sync)
        writes = []
        for ts in range(20, 30):
            writes.append(asyncio.ensure_future(put(storage, binlog.prewrite(ts, b"k", b"v"))))
            await asyncio.sleep(0)
            if ts > 20:
                released.release()
            await asyncio.to_thread(syncs.acquire, timeout=PATIENCE_S)
        wakes = storage._writer._wake.qsize()
        released.release()
        await asyncio.gather(*writes)
        monkeypatch.undo()
        assert wakes <= 1


async def test_full_queue_makes_writers_wait_but_loses_none(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=StorageLimits(write_queue_bytes_max=2000)) as storage:
        await put(storage, *(binlog.prewrite(ts, b"k", bytes(500)) for ts in range(10, 110)))
        assert storage.write_queue_bytes == 0
        async with asyncio.timeout(PATIENCE_S):
            while storage.open_count < 100:
                await asyncio.sleep(0)


async def test_transaction_larger_than_every_limit_passes(tmp_path: Path) -> None:
    limits = StorageLimits(
        write_queue_bytes_max=1000,
        group_bytes_max=1000,
        index_queue_bytes_max=1000,
        recent_bytes_max=1000,
        segment_bytes_max=1000,
    )
    async with opened(tmp_path, limits=limits) as storage:
        expected = [
            Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1, os.urandom(3 << 20))) for ts in (10, 20)
        ]
        await wait_watermark(storage, 21)
        assert await pull(storage) == expected
    async with opened(tmp_path, limits=limits) as storage:
        assert await pull(storage) == expected


async def test_foreign_files_in_the_log_directory(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
    (tmp_path / "value" / "notes.txt").write_text("not ours")
    async with opened(tmp_path) as storage:
        assert storage.watermark == 11
    (tmp_path / "value" / "abc.vlog").write_text("")
    with pytest.raises(Corruption, match=r"abc\.vlog"):
        async with opened(tmp_path):
            pass


async def test_damaged_index_is_set_aside_and_rebuilt(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        expected = [Delivery(ts + 1, ts, await put_pair(storage, ts, ts + 1)) for ts in range(10, 300, 10)]
    for damaged in ("CURRENT", "MANIFEST"):
        names = ("index.sqlite", damaged)
        (file,) = (file for file in (tmp_path / "kv").iterdir() if file.name.startswith(names))
        file.write_bytes(b"\x00" * 20)
        async with opened(tmp_path) as storage:
            assert await pull(storage) == expected
    assert (tmp_path / "kv.damaged-1").is_dir()
    assert (tmp_path / "kv.damaged-2").is_dir()


def test_segment_names() -> None:
    assert segment.name_of(7) == "000007.vlog"
    assert segment.fid_of("000007.vlog") == 7
    assert segment.fid_of("LOCK") is None
    for wrong in ("7.vlog", "0000007.vlog", "-00001.vlog", "x.vlog"):
        with pytest.raises(Corruption):
            segment.fid_of(wrong)


async def test_locked_directory_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(ConfigError, match="locked: file already locked"):
            DataDir(str(tmp_path))


def test_directory_of_another_cluster_is_refused_and_a_go_directory_adopted(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    data_dir.adopt_cluster(1)
    data_dir.adopt_cluster(1)
    with pytest.raises(ConfigError, match="belongs to cluster 1, but the upstream is cluster 2"):
        data_dir.adopt_cluster(2)
    data_dir.close()


def test_node_id_is_kept_from_the_first_start_on(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    assert data_dir.node_id("", "host:1") == ("host:1", False)
    assert data_dir.node_id("other", "host:2") == ("host:1", True)
    assert data_dir.node_id("host:1", "x") == ("host:1", False)
    (tmp_path / ".node").write_text(" mine \n")
    assert data_dir.node_id("", "x") == ("mine", False)
    data_dir.close()


# -- opening while much is left to do --------------------------------------------------------------


async def test_writes_go_on_while_the_index_is_built_anew(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=20_000)
    async with opened(tmp_path, limits=limits) as storage:
        expected = [await pair(storage, ts, bytes(300)) for ts in range(10, 3000, 10)]
    shutil.rmtree(tmp_path / "kv")
    data_dir = DataDir(str(tmp_path))
    storage = await Storage.open(data_dir, clock=SystemClock(), limits=limits)
    storage.on_committed = storage.mark
    # Open, and nothing has been read yet: acknowledged all the same, and behind what was there.
    expected.append(Delivery(5001, 5000, await put_pair(storage, 5000, 5001)))
    assert storage.watermark == 0
    assert storage.index_lag_bytes > 100_000
    assert not storage.replayed.is_set()
    following = asyncio.create_task(storage.run())
    await wait_watermark(storage, 5001)
    assert await pull(storage) == expected
    assert await pull(storage, from_disk=True) == expected
    await storage.close()
    await following
    data_dir.close()


async def test_a_stop_in_the_middle_of_catching_up_goes_on_at_the_next_start(tmp_path: Path) -> None:
    expected = []
    async with opened(tmp_path) as storage:
        for ts in range(10, 40_000, 10):
            first, second = binlog.prewrite(ts, b"k", b"v"), binlog.commit(ts, ts + 1, b"k")
            expected.append(Delivery(ts + 1, ts, binlog.join(first, second)))
        await asyncio.gather(
            *(put(storage, binlog.prewrite(one.start_ts, b"k", b"v")) for one in expected),
            *(put(storage, binlog.commit(one.start_ts, one.commit_ts, b"k")) for one in expected),
        )
    shutil.rmtree(tmp_path / "kv")
    for _ in range(3):
        async with opened(tmp_path, replayed=False):
            await asyncio.sleep(0)
    async with opened(tmp_path) as storage:
        await wait_watermark(storage, expected[-1].commit_ts)
        assert await pull(storage, from_disk=True) == expected


async def test_a_log_of_many_files_needs_few_descriptors(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=500)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 3000, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
    assert len(list((tmp_path / "value").iterdir())) > 100
    async with opened(tmp_path, limits=limits) as storage:
        assert len(await pull(storage, from_disk=True)) == 299
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        log_files = [link for link in links if os.path.exists(link) and ".vlog" in os.readlink(link)]
        assert 1 <= len(log_files) <= 65
        assert await put_pair(storage, 5000, 5001)  # the newest is still the one that is written


async def test_removed_files_are_gone_and_the_newest_never_is(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=2000)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 300, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
        log = storage.value_log
        reading = log.record_batches(START, log.end)
        first, _ = next(reading)
        size = sum(closed.size for closed in log.closed_files()[:3])
        assert log.remove(2) == size
        assert not (tmp_path / "value" / "000000.vlog").exists()
        assert log.first_fid == 3
        assert next(closed.fid for closed in log.closed_files()) == 3
        with pytest.raises(Corruption, match=r"000001\.vlog, which does not exist"):
            list(reading)
        assert first
        newest = log.active.fid
        log.remove(newest + 10)
        assert log.first_fid == newest


async def test_an_index_found_damaged_while_running_is_built_anew_at_the_next_start(tmp_path: Path) -> None:
    data_dir = DataDir(str(tmp_path))
    storage = await Storage.open(data_dir, clock=SystemClock(), limits=StorageLimits(recent_bytes_max=1))
    storage.on_committed = storage.mark
    following = asyncio.create_task(storage.run())
    expected = [await pair(storage, ts, b"value") for ts in range(10, 300, 10)]
    await wait_watermark(storage, 291)

    def damaged(*_: object, **__: object) -> Any:
        raise IndexDamaged("a block cannot be read")

    storage.index.runs = damaged  # type: ignore[method-assign]
    history = storage.history()
    with pytest.raises(IndexDamaged):
        await storage.page(history, 0, 1000)
    with pytest.raises(IndexDamaged) as caught:  # it ends, and whoever looks after it starts it again
        await asyncio.wait_for(following, PATIENCE_S)
    assert exit_code(caught.value) == 2  # not the code of a damaged log, after which no restart helps
    await storage.close()
    data_dir.close()
    async with opened(tmp_path) as storage:
        assert (tmp_path / "kv.damaged-1").is_dir()
        assert await pull(storage) == expected
    async with opened(tmp_path):
        assert not (tmp_path / "kv.damaged-2").exists()


async def test_damage_in_an_older_file_stops_and_can_be_given_up(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=5000)
    async with opened(tmp_path, limits=limits) as storage:
        expected = [await pair(storage, ts, bytes(300)) for ts in range(10, 1000, 10)]
    shutil.rmtree(tmp_path / "kv")
    first = tmp_path / "value" / "000001.vlog"
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    with pytest.raises(Corruption, match=r"000001\.vlog: offset (\d+): checksum mismatch") as caught:
        async with opened(tmp_path, limits=limits):
            pass
    lost = caught.value.hint.rpartition("--accept-loss ")[2].strip("`")
    async with opened(tmp_path, limits=limits, accept_loss=lost) as storage:
        # The prewrite is lost, and with it its transaction; the others are there.
        await wait_watermark(storage, 991)
        served = await pull(storage)
        assert len(served) == len(expected) - 1
        assert [one for one in expected if one in served] == served


async def test_purged_is_remembered_without_the_index(tmp_path: Path) -> None:
    limits = StorageLimits(segment_bytes_max=2000)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 300, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
        storage.purged_to(100)
        storage.purged_to(90)
        assert storage.gc_ts == 100
    shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path, limits=limits) as storage:
        assert storage.gc_ts == 100
        with pytest.raises(PositionPurged):
            await pull(storage, 50)


def test_oldest_whole_commit() -> None:
    """Files are gone; what is left begins with ends of transactions that began in them."""
    log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
    log.open(START, START, 0)
    payloads = [
        binlog.commit(5, 30),
        binlog.fake(31),
        binlog.prewrite(32, b"k", b"v"),
        binlog.rollback(32),
        binlog.prewrite(33, b"k", b"v"),
        binlog.commit(20, 36),
        binlog.commit(33, 35),
        binlog.commit(12, 40),
    ]
    log.commit(log.append(payloads), len(payloads[-1]), 40, sync=True)
    assert oldest_whole_commit(log) == 35


def test_without_a_whole_transaction_nothing_stored_is_promised() -> None:
    log = ValueLog(MemoryDirectory(), group_bytes_max=1 << 20)
    log.open(START, START, 0)
    payloads = [binlog.commit(5, 30), binlog.fake(31)]
    log.commit(log.append(payloads), len(payloads[-1]), 31, sync=True)
    assert oldest_whole_commit(log) == 32


async def test_a_commit_turned_into_a_prewrite_by_a_flipped_bit_is_not_passed_over(tmp_path: Path) -> None:
    base = 470_607_648_165_462_018
    async with opened(tmp_path) as storage:
        await put_pair(storage, base, base + 1)
        await put_pair(storage, base + 2, base + 3)
        await wait_watermark(storage, base + 3)  # the index follows what is acknowledged
        place = storage.index.pointer(base + 1)
        assert place is not None
    path = tmp_path / "value" / "000000.vlog"
    data = bytearray(path.read_bytes())
    assert data[place.offset + 17] == binlog.COMMIT
    data[place.offset + 17] = binlog.PREWRITE
    path.write_bytes(data)
    async with opened(tmp_path) as storage:
        with pytest.raises(Corruption, match="checksum mismatch"):
            await pull(storage, from_disk=True)


async def test_pages_of_every_size_go_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """Also where a page is full with the last entry of a run of the index."""
    base = 470_607_648_165_462_018  # large, so that all payloads have one size
    commits = [base + 10 * number + 1 for number in range(700)]
    async with opened(tmp_path) as storage:
        payloads = [
            payload
            for ts in commits
            for payload in (binlog.prewrite(ts - 1, b"k", b"value"), binlog.commit(ts - 1, ts, b"k"))
        ]
        await storage.write_many(payloads, [header(payload) for payload in payloads])
        await wait_watermark(storage, commits[-1])
        history = storage.history()
        size = history.page(0, commits[-1], bytes_max=1).deliveries[0].size
        for count in (1, 2, 255, 256, 257, 511, 512, 513, 700):
            position, found = 0, []
            while position < commits[-1]:
                page = history.page(position, commits[-1], bytes_max=count * size)
                assert page.covered > position
                assert len(page.deliveries) <= count
                found += [delivery.commit_ts for delivery in page.deliveries]
                position = page.covered
            assert found == commits


async def test_what_was_purged_is_not_guessed(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        storage.purged_to(100)
    (tmp_path / ".purged").write_text("1oo")
    with pytest.raises(ConfigError, match=r"\.purged is not a timestamp: '1oo'"):
        async with opened(tmp_path):
            pass


async def test_a_clean_stop_leaves_nothing_in_leveldbs_own_log_for_a_go_pump_to_step_over(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 11)
    assert not any(log.stat().st_size for log in (tmp_path / "kv").glob("*.log"))


@pytest.mark.parametrize("loses", ["all", "its end"])
@pytest.mark.parametrize("is_noted", [True, False])
async def test_what_a_pump_of_before_purged_is_known_though_its_index_is_lost(
    loses: str, is_noted: bool, tmp_path: Path
) -> None:
    """One that keeps it in the index alone: no note of ours may stand for what it removed later."""
    limits = StorageLimits(segment_bytes_max=2000)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 600, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
        if is_noted:
            storage.purged_to(41, 1)
            storage.value_log.remove(0)
    shutil.copytree(tmp_path / "kv", tmp_path / "before")
    async with opened(tmp_path, limits=limits, abandon=True) as storage:
        newest, before = storage.value_log.first_fid, storage.gc_ts
        storage.value_log.remove(newest + 3)
        storage.index.set_gc_ts(300)
    if loses == "all":
        shutil.rmtree(tmp_path / "kv")
    else:
        for log in (tmp_path / "kv").glob("*.log"):
            log.write_bytes(b"")
        for file in (tmp_path / "before").glob("index.sqlite"):
            shutil.copy(file, tmp_path / "kv")
    async with opened(tmp_path, limits=limits) as storage:
        first = next(ts for ts in range(11, 600, 10) if is_whole(storage, ts - 1))
        assert before < first - 1 <= storage.gc_ts
        for position in (before, first - 11):
            with pytest.raises(PositionPurged):
                await pull(storage, position, from_disk=True)
        served = await pull(storage, storage.gc_ts, from_disk=True)
        assert [one.commit_ts for one in served] == list(range(first, 600, 10))


def is_whole(storage: Storage, start_ts: int) -> bool:
    """Whether a transaction's prewrite is still in the log."""
    log = storage.value_log
    record_batches = log.record_batches(ValuePointer(log.first_fid, 0), log.end)
    return any(
        one.tp == binlog.PREWRITE and one.start_ts == start_ts for found, _ in record_batches for one in found
    )


async def test_what_was_purged_here_is_known_exactly_though_the_index_is_lost(tmp_path: Path) -> None:
    """Nobody is told that more is gone than is: a drainer that stands there goes on."""
    limits = StorageLimits(segment_bytes_max=2000)
    async with opened(tmp_path, limits=limits) as storage:
        for ts in range(10, 600, 10):
            await put_pair(storage, ts, ts + 1, bytes(300))
        storage.purged_to(41, 1)
        storage.value_log.remove(0)
    shutil.rmtree(tmp_path / "kv")
    async with opened(tmp_path, limits=limits) as storage:
        assert storage.gc_ts == 41


async def test_a_commit_below_the_watermark_is_counted(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put_pair(storage, 10, 20)
        storage.mark(100)
        await wait_watermark(storage, 100)
        assert storage.late.commits == 0
        await put(storage, binlog.commit(40, 50, b"k"))
        storage.mark(200)
        await wait_watermark(storage, 200)
        late = storage.late
        assert late.commits == 1
        assert late.last_s > 0
    async with opened(tmp_path) as storage:
        assert storage.late == late, "who looks after a restart is told as well"
        await put(storage, binlog.commit(60, 70, b"k"))
        storage.mark(300)
        await wait_watermark(storage, 300)
        assert storage.late.commits == 2
    (tmp_path / ".late").write_bytes(b"{")
    async with opened(tmp_path) as storage:
        assert storage.late.commits == 0, "no reason not to start"
