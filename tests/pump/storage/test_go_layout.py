"""What a Go pump finds: our directories by an independent reader, and the locks that keep the two apart."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pump.index.leveldb_store import plyvel
from pump.storage.data_dir import DataDir
from pump.storage.opening import StorageLimits
from tests.pump.support import corpus, go_layout
from tests.pump.support.go_layout import Broken, Pointer
from tests.pump.support.payloads import header, opened, pull, put, wait_watermark
from tidb_binlog import binlog
from tidb_binlog.errors import ConfigError, Corruption, DirectoryLocked

RECORDED = corpus.recordings(killed=False)
KILLED = corpus.recordings(killed=True)
SMALL = StorageLimits(segment_bytes_max=60_000)


def test_vectors_of_the_layout(tmp_path: Path) -> None:
    record = bytes.fromhex("e8563a820a0000000000000025a665560802102a182a38004000")
    footer = bytes.fromhex("2a0000000000000022b93a12")
    (tmp_path / "value").mkdir()
    (tmp_path / "value" / "000000.vlog").write_bytes(record + footer)
    database = plyvel.DB(str(tmp_path / "kv"), create_if_missing=True)
    database.put(bytes.fromhex("74733a000000000000002a"), bytes.fromhex("010000001000000000000000"))
    database.close()
    layout = go_layout.read(tmp_path)
    assert layout.records == [go_layout.Record(Pointer(0, 0), 2, 42, 42, binlog.fake(42))]
    assert layout.files[0].max_ts == 42
    assert layout.index == {42: Pointer(1, 16)}


@pytest.mark.parametrize("recording", RECORDED + KILLED, ids=lambda recording: recording.name)
def test_reader_is_right_about_every_directory_that_a_go_pump_left(
    recording: corpus.Recording, tmp_path: Path
) -> None:
    layout = go_layout.read(recording.unpack(tmp_path))
    killed = recording in KILLED
    go_layout.check(layout, clean=not killed)
    found = [record.payload for record in layout.records if record.start_ts != record.commit_ts]
    written = [entry.payload for entry in corpus.entries(recording.written)]
    assert found == (written[: len(found)] if killed else written)
    assert len(found) > 50


def transactions(first_ts: int, count: int, size: int) -> list[bytes]:
    """A prewrite and its end each; every seventh is rolled back."""
    written = []
    for ts in range(first_ts, first_ts + 10 * count, 10):
        written.append(binlog.prewrite(ts, b"key %d" % ts, os.urandom(size)))
        written.append(binlog.commit(ts, ts + 1, b"key") if ts % 70 else binlog.rollback(ts))
    return written


async def written_by_us(directory: Path, *, abandon: bool, limits: StorageLimits = SMALL) -> list[bytes]:
    """Two lives: one write at a time and batches, a time mark, large records, repeats, an open prewrite."""
    first = transactions(1000, 300, 400)
    large = transactions(10_000, 3, 200_000)
    async with opened(directory, limits=limits) as storage:
        for payload in first[:100]:
            await put(storage, payload)
        await put(storage, *first[100:])
        await put(storage, binlog.fake(9000))
        await wait_watermark(storage, 9000)
    last = transactions(20_000, 100, 100)
    last.insert(50, last[0])
    left_open = binlog.prewrite(30_000, b"open", b"value")
    async with opened(directory, limits=limits, abandon=abandon) as storage:
        for payload in large:
            await put(storage, payload)
        await storage.write_many(last, [header(payload) for payload in last])
        await wait_watermark(storage, 20_991)
        await put(storage, left_open)
    return [*first, binlog.fake(9000), *large, *last, left_open]


@pytest.mark.parametrize("abandon", [False, True], ids=["stopped", "killed"])
async def test_our_directory_is_one_that_a_go_pump_would_have_left(abandon: bool, tmp_path: Path) -> None:
    written = await written_by_us(tmp_path, abandon=abandon)
    layout = go_layout.read(tmp_path)
    go_layout.check(layout, clean=not abandon)
    assert [record.payload for record in layout.records] == written
    assert len(layout.files) > 4
    assert layout.max_commit_ts == 20_991 or abandon
    commits = {record.index_ts for record in layout.records if record.tp == binlog.COMMIT}
    assert commits <= set(layout.index)
    assert 0 not in layout.index, "rollbacks are not filed"


async def test_small_newest_file_stays_open_and_is_gone_on_with(tmp_path: Path) -> None:
    first, second = transactions(1000, 20, 100), transactions(2000, 20, 100)
    for payloads in (first, second):
        async with opened(tmp_path) as storage:
            await put(storage, *payloads)
        go_layout.check(go_layout.read(tmp_path), clean=True)
    layout = go_layout.read(tmp_path)
    assert [record.payload for record in layout.records] == first + second
    assert [file.max_ts for file in layout.files] == [None]


def test_a_large_payload_that_looks_like_a_footer_does_not_mislead_the_reader(tmp_path: Path) -> None:
    (tmp_path / "value").mkdir()
    disguised = binlog.prewrite(5, b"k", bytes.fromhex("2a0000000000000022b93a12"))
    data = go_layout.HEADER.pack(go_layout.RECORD_MAGIC, len(disguised), 0) + disguised
    (tmp_path / "value" / "000000.vlog").write_bytes(data)
    plyvel.DB(str(tmp_path / "kv"), create_if_missing=True).close()
    assert go_layout.read(tmp_path).files[0].torn == "wrong checksum"


def torn(size: int) -> bytes:
    """What a power cut or a full disk leaves of a record; its length reaches over what follows."""
    return go_layout.HEADER.pack(go_layout.RECORD_MAGIC, 1000, 12345) + bytes(size)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda data, at: data[:at] + torn(300) + data[at:], 0),
        (lambda data, at: data[:at] + torn(0)[:9] + data[at:], 0),
        (lambda data, at: data[:at] + bytes(16) + data[at + 16 :], 1),
        (lambda data, at: data[: at + 12] + bytes(4) + data[at + 16 :], 1),
    ],
    ids=["torn payload", "torn header", "no header", "wrong checksum"],
)
async def test_only_what_is_torn_is_given_up_where_a_go_pump_appended_behind_it(
    damage: Callable[[bytes, int], bytes], lost: int, tmp_path: Path
) -> None:
    limits = StorageLimits(segment_bytes_max=20_000)
    async with opened(tmp_path, limits=limits) as storage:
        for payload in transactions(1000, 60, 400):
            await put(storage, payload)
    records = go_layout.read(tmp_path).files[0].records
    shutil.rmtree(tmp_path / "kv")
    at = next(record for record in records[20:] if record.tp == binlog.COMMIT).place.offset
    in_file(tmp_path, 0, lambda data: damage(data, at))
    with pytest.raises(Corruption, match=rf"000000\.vlog: offset {at}: .*--accept-loss 000000\.vlog:{at}`"):
        async with opened(tmp_path, limits=limits):
            pass
    async with opened(tmp_path, limits=limits, accept_loss=f"000000.vlog:{at}") as storage:
        if lost:  # its prewrite waits for the upstream's word
            (waiting,) = storage.open_prewrites()
            await put(storage, binlog.commit(waiting.start_ts, waiting.start_ts + 1, b"key"))
        await wait_watermark(storage, 1591)
        assert len(await pull(storage)) == 60 - 8


# -- every rule can be broken ----------------------------------------------------------------------


def in_index(directory: Path, change: Callable[[plyvel.DB], None]) -> None:
    database = plyvel.DB(str(directory / "kv"))
    change(database)
    database.close()


def in_file(directory: Path, number: int, change: Callable[[bytes], bytes]) -> None:
    path = directory / "value" / f"{number:06d}.vlog"
    path.write_bytes(change(path.read_bytes()))


def entry(ts: int, place: tuple[int, int]) -> tuple[bytes, bytes]:
    return go_layout.KEY.pack(b"ts:", ts), go_layout.POINTER.pack(*place)


def footer(max_ts: int) -> bytes:
    return go_layout.FOOTER.pack(max_ts, go_layout.FOOTER_MAGIC)


def newest(directory: Path) -> int:
    return len(list((directory / "value").iterdir())) - 1


def without_positions(kv: plyvel.DB) -> None:
    kv.delete(go_layout.HEAD)
    kv.delete(go_layout.HANDLE)


BREAKAGES: dict[str, Callable[[Path], None]] = {
    "no file is missing": lambda path: (path / "value" / "000001.vlog").unlink(),
    "files are gone": lambda path: (path / "value" / "000000.vlog").unlink(),
    "decimal name": lambda path: (path / "value" / "00000a.vlog").touch(),
    "needless zero": lambda path: (path / "value" / "0000099.vlog").touch(),
    "every file but the newest is finished": lambda path: in_file(path, 0, lambda data: data[:-12]),
    "max_ts is the largest": lambda path: in_file(path, 0, lambda data: data[:-12] + footer(10)),
    "a small file is not finished": lambda path: in_file(
        path, newest(path), lambda data: data + footer(20_991)
    ),
    "not wrong checksum": lambda path: in_file(
        path, 0, lambda data: data[:40] + bytes([data[40] ^ 0xFF]) + data[41:]
    ),
    "not magic": lambda path: in_file(path, newest(path), lambda data: data + bytes(30)),
    "not a header ends early": lambda path: in_file(path, newest(path), lambda data: data + bytes(3)),
    "not a payload ends early": lambda path: in_file(path, newest(path), lambda data: data[:-1]),
    "no such key": lambda path: in_index(path, lambda kv: kv.put(b"!binlog!other", b"1")),
    "a timestamp has 8 bytes": lambda path: in_index(path, lambda kv: kv.put(b"ts:123", bytes(12))),
    "a pointer has 12 bytes": lambda path: in_index(path, lambda kv: kv.put(go_layout.HEAD, bytes(8))),
    "an integer has 8 bytes": lambda path: in_index(path, lambda kv: kv.put(go_layout.GC_TS, bytes(4))),
    "head pointer is at the start": lambda path: in_index(
        path, lambda kv: kv.put(go_layout.HEAD, go_layout.POINTER.pack(0, 7))
    ),
    "handle pointer is at the start": lambda path: in_index(
        path, lambda kv: kv.put(go_layout.HANDLE, go_layout.POINTER.pack(0, 7))
    ),
    "the head is the last record": lambda path: in_index(path, without_positions),
    "what is decided is in the index": lambda path: in_index(path, lambda kv: kv.delete(go_layout.HEAD)),
    "no decided commit is above": lambda path: in_index(path, lambda kv: kv.delete(go_layout.MAX_COMMIT_TS)),
    "only what is sorted is purged": lambda path: in_index(
        path, lambda kv: kv.put(go_layout.GC_TS, go_layout.INTEGER.pack(99_999))
    ),
    "an entry points to the start": lambda path: in_index(path, lambda kv: kv.put(*entry(1000, (0, 5)))),
    "a record of its timestamp": lambda path: in_index(path, lambda kv: kv.put(*entry(1001, (0, 0)))),
    "every record up to the head": lambda path: in_index(path, lambda kv: kv.delete(entry(1001, (0, 0))[0])),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of three files that keeps every rule."""

    async def write(directory: Path) -> None:
        async with opened(directory, limits=StorageLimits(segment_bytes_max=5000)) as storage:
            await put(storage, *transactions(1000, 40, 400))
            await put(storage, *transactions(10_000, 40, 400))
            await put(storage, *transactions(20_000, 100, 10))
            await wait_watermark(storage, 20_991)

    directory = tmp_path_factory.mktemp("whole")
    asyncio.run(write(directory))
    go_layout.check(go_layout.read(directory), clean=True)
    return directory


@pytest.mark.parametrize("rule", BREAKAGES)
def test_reader_sees_every_broken_rule(rule: str, whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "broken"
    shutil.copytree(whole, directory)
    BREAKAGES[rule](directory)
    with pytest.raises(Broken, match=rule):
        go_layout.check(go_layout.read(directory), clean=True)


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        ("1001 0800 1801 3800 4000", "in order, once"),
        ("0800 1001 1800", "even when they are zero"),
        ("0809 1001 1800 3800 4000", "one of five types"),
        ("0800 1000 1800 3800 4000", "a probe is not stored"),
        ("0800 1001 1800 2205 3800 4000", "ends inside the payload"),
        ("0800 1001 1800 25 00000000", "numbers and bytes only"),
    ],
)
def test_reader_sees_a_payload_that_a_go_pump_would_not_have_written(
    payload: str, rule: str, tmp_path: Path
) -> None:
    data = bytes.fromhex(payload)
    place = Pointer(0, 0)
    with pytest.raises(Broken, match=rule):
        go_layout.record_at(place, data)


# -- who works in the directory --------------------------------------------------------------------


def contents(directory: Path) -> dict[str, str]:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha1(path.read_bytes()).hexdigest() for path in files}


def test_directory_of_a_running_go_pump_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    directory = RECORDED[0].unpack(tmp_path)
    (directory / ".lock").touch()
    before = contents(directory)
    # All that a Go pump keeps: it forgets its `.lock` when its garbage is collected.
    with (directory / "kv" / "LOCK").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(DirectoryLocked, match="locked: file already locked"):
            DataDir(str(directory))
        assert contents(directory) == before
    DataDir(str(directory)).close()


async def test_go_pump_is_kept_out_of_our_directory(tmp_path: Path) -> None:
    take = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def taken() -> bool:
        command = [sys.executable, "-c", take, str(tmp_path / "kv" / "LOCK")]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    async with opened(tmp_path) as storage:
        await put(storage, *transactions(1000, 10, 100))
        assert not taken()
    assert taken()
    (tmp_path / "kv" / "CURRENT").write_bytes(b"damaged")
    async with opened(tmp_path):
        assert (tmp_path / "kv.damaged-1").is_dir()
        assert not taken(), "the index that was built anew is locked as well"


async def test_index_in_use_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as storage:
        await put(storage, *transactions(1000, 10, 100))
    hold = (
        "import sys; from pump.index.leveldb_store import plyvel\n"
        "db = plyvel.DB(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "kv")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=r"index .* cannot be opened: .*LOCK"):
            async with opened(tmp_path):
                pass
        holder.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "kv", "value"]
    async with opened(tmp_path) as storage:
        await wait_watermark(storage, 1091)
