"""Power cuts, torn tails and flipped bits: what was acknowledged comes back, or the pump refuses to start."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from pump.log.record import START, ValuePointer
from pump.log.value_log import ValueLog
from pump.storage.opening import StorageLimits
from tests.crash.log_reading import GROUP, new_log, read_all
from tests.pump.support.memory_log import MemoryDirectory
from tests.pump.support.payloads import opened, pull, put_pair
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.record import encode_value


def store(log: ValueLog, payloads: Sequence[bytes]) -> list[ValuePointer]:
    places = log.append(payloads)
    log.commit(places, len(payloads[-1]), 1, sync=True)
    return places


def groups(count: int, seed: int = 1) -> list[list[bytes]]:
    rng = random.Random(seed)
    made, ts = [], 0
    for _ in range(count):
        group = []
        for _ in range(rng.randint(1, 4)):
            ts += 10
            group.append(binlog.prewrite(ts, b"k", rng.randbytes(rng.choice([0, 10, 300]))))
        made.append(group)
    return made


def stamps(made: Sequence[Sequence[bytes]]) -> list[tuple[int, int]]:
    return [(message.start_ts, message.commit_ts) for group in made for message in map(binlog.parse, group)]


@pytest.mark.parametrize("segment_bytes", [200, 1000, 1 << 20])
def test_power_cut_after_every_step_keeps_what_was_acknowledged(segment_bytes: int) -> None:
    made = groups(12)
    for cut in range(len(made) + 1):
        for part in ("nothing", "half", "all"):
            directory = MemoryDirectory()
            log = new_log(directory, segment_bytes_max=segment_bytes)
            for group in made[:cut]:
                store(log, group)
            unsynced = made[cut : cut + 1]
            size = 0
            if unsynced:
                log.append(unsynced[0])  # written, not synced, not acknowledged
                size = sum(len(encode_value(payload)) for payload in unsynced[0])
            keep = {"nothing": 0, "half": size // 2, "all": size}[part]
            left = directory.after_power_cut(keep)
            again = new_log(left, segment_bytes_max=segment_bytes)
            found = read_all(again)
            acknowledged = stamps(made[:cut])
            assert found[: len(acknowledged)] == acknowledged
            assert found == stamps(made[: cut + 1])[: len(found)]
            # And it continues from there.
            store(again, [binlog.prewrite(10_000, b"k", b"v")])
            reopened = new_log(left.after_power_cut(), segment_bytes_max=segment_bytes)
            assert read_all(reopened) == [*found, (10_000, 0)]


def test_torn_tail_at_every_byte_keeps_whole_records() -> None:
    made = groups(5)
    directory = MemoryDirectory()
    log = new_log(directory)
    ends = [0]
    for group in made:
        for place, payload in zip(store(log, group), group, strict=True):
            ends.append(place.offset + len(encode_value(payload)))
    data = bytes(directory.files["000000.vlog"].data)
    for size in range(len(data) + 1):
        torn = MemoryDirectory()
        torn.create("000000.vlog").append([data[:size]])
        whole = sum(end <= size for end in ends) - 1
        assert read_all(new_log(torn)) == stamps(made)[:whole]
        assert len(torn.files["000000.vlog"].data) == ends[whole]


async def test_torn_tail_with_an_index(tmp_path: Path) -> None:
    # The index is left at the first pairs; what follows is only in the log, as after a kill.
    original = tmp_path / "original"
    async with opened(original) as storage:
        for ts in (10, 20):
            await put_pair(storage, ts, ts + 1)
    kv = tmp_path / "kv"
    shutil.copytree(original / "kv", kv)
    log_file = original / "value" / "000000.vlog"
    indexed_end = log_file.stat().st_size
    async with opened(original) as storage:
        for ts in (30, 40):
            await put_pair(storage, ts, ts + 1, encode_value(binlog.fake(99)))
    data = log_file.read_bytes()
    for size in (*range(0, indexed_end, 29), *range(indexed_end, len(data), 7), len(data)):
        directory = tmp_path / "torn"
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "value").mkdir(parents=True)
        shutil.copytree(kv, directory / "kv")
        (directory / "value" / "000000.vlog").write_bytes(data[:size])
        if size < indexed_end:
            with pytest.raises(Corruption, match=r"000000\.vlog"):
                async with opened(directory):
                    pass
            continue
        async with opened(directory) as storage:
            found = [delivery.commit_ts for delivery in await pull(storage)]
            assert found == [11, 21, 31, 41][: len(found)]
            assert len(found) >= 2
            kept = (directory / "value" / "000000.vlog").stat().st_size
            assert kept <= size
            for prewrite in storage.open_prewrites():
                assert prewrite.start_ts in (30, 40)
        if size == len(data):
            assert found == [11, 21, 31, 41]


async def test_every_flipped_bit_is_refused_or_told_to_the_puller(tmp_path: Path) -> None:
    original = tmp_path / "original"
    async with opened(original) as storage:
        for ts in (10, 20):
            await put_pair(storage, ts, ts + 1)
    data = (original / "value" / "000000.vlog").read_bytes()
    rng = random.Random(3)
    at_start: list[int] = []

    async def serve(directory: Path) -> None:
        async with opened(directory) as storage:
            at_start.pop()
            await pull(storage)

    refused, offsets = 0, range(0, len(data), 2)
    for offset in offsets:
        directory = tmp_path / "flipped"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        damaged = bytearray(data)
        damaged[offset] ^= 1 << rng.randrange(8)
        (directory / "value" / "000000.vlog").write_bytes(damaged)
        at_start.append(offset)
        with pytest.raises(Corruption, match=r"000000\.vlog"):
            await serve(directory)
        refused += len(at_start)
        at_start.clear()
    assert 0 < refused < len(offsets), "some damage is met at start, some only by a puller"


def build(payloads: Sequence[bytes]) -> MemoryDirectory:
    directory = MemoryDirectory()
    log = new_log(directory)
    for payload in payloads:
        store(log, [payload])
    return directory


PAYLOADS = [binlog.prewrite(ts, b"k", bytes(1000)) for ts in range(1, 11)]
SIZE = len(encode_value(PAYLOADS[0]))


def test_damage_far_from_the_end_refuses_and_names_the_place() -> None:
    directory = build(PAYLOADS)
    directory.files["000000.vlog"].data[SIZE + 40] ^= 1
    with pytest.raises(Corruption, match=rf"000000\.vlog: offset {SIZE}: checksum mismatch") as caught:
        new_log(directory)
    assert f"--accept-loss 000000.vlog:{SIZE}" in caught.value.hint
    # The operator gives it up: that record goes, and no other.
    log = new_log(directory, loss_accepted=lambda name, offset: (name, offset) == ("000000.vlog", SIZE))
    assert read_all(log) == [(number, 0) for number in range(1, 11) if number != 2]


def test_a_tear_that_a_go_pump_wrote_behind_is_not_cut() -> None:
    """A Go pump leaves what a kill tore, and appends. Without the index nothing else tells such a tear,
    though it is near the end, from an unsynced group that a power cut tore."""
    torn = encode_value(PAYLOADS[0])[:-7]
    pair = [binlog.prewrite(50, b"k", b"v"), binlog.commit(50, 51, b"k")]
    directory = build(PAYLOADS[:2])
    directory.files["000000.vlog"].data += torn + b"".join(map(encode_value, pair))
    with pytest.raises(Corruption, match="a transaction stands after it with its end") as caught:
        new_log(directory)
    place = ("000000.vlog", 2 * SIZE)
    assert f"--accept-loss {place[0]}:{place[1]}" in caught.value.hint
    log = new_log(directory, loss_accepted=lambda *at: at == place)
    assert read_all(log) == [(1, 0), (2, 0), (50, 0), (50, 51)]
    # What only looks like unsynced is cut: no end after, or no prewrite.
    for after in (pair[:1], pair[1:], [pair[1], pair[0]]):
        directory = build(PAYLOADS[:2])
        directory.files["000000.vlog"].data += torn + b"".join(map(encode_value, after))
        assert read_all(new_log(directory)) == [(1, 0), (2, 0)]


def test_damage_that_the_index_knows_refuses_even_near_the_end() -> None:
    directory = build(PAYLOADS)
    directory.files["000000.vlog"].data[-1] ^= 1
    log = ValueLog(directory, group_bytes_max=GROUP)
    with pytest.raises(Corruption, match="it had been acknowledged"):
        log.open(ValuePointer(0, SIZE * 9), START, 0)
    # Unknown to the index it is the unsynced end.
    assert len(read_all(new_log(directory))) == 9


def test_damage_in_an_older_file_refuses() -> None:
    directory = MemoryDirectory()
    log = new_log(directory, segment_bytes_max=3000)
    for payload in PAYLOADS:
        store(log, [payload])
    assert len(directory.files) > 2
    directory.files["000000.vlog"].data[SIZE + 40] ^= 1
    with pytest.raises(Corruption, match=rf"000000\.vlog: offset {SIZE}"):
        read_all(new_log(directory, segment_bytes_max=3000))


def test_missing_file_in_the_middle_and_at_the_end_refuse() -> None:
    directory = MemoryDirectory()
    log = new_log(directory, segment_bytes_max=3000)
    for payload in PAYLOADS:
        store(log, [payload])
    end = log.end
    middle = directory.files.pop("000001.vlog")
    with pytest.raises(Corruption, match=r"000001\.vlog is missing"):
        new_log(directory)
    directory.files["000001.vlog"] = middle
    directory.files = dict(sorted(directory.files.items()))
    del directory.files[f"{end.fid:06d}.vlog"]
    again = ValueLog(directory, group_bytes_max=GROUP)
    with pytest.raises(Corruption, match="but the value log ends at"):
        again.open(ValuePointer(end.fid, 0), START, 0)


def test_footer_is_believed_only_behind_the_last_record() -> None:
    # A torn record whose cut happens to end in the footer's magic.
    look_alike = struct.pack("<qI", 77, 0x123AB922)
    torn = encode_value(binlog.prewrite(5, b"k", look_alike + bytes(500)))
    cut = torn[: torn.index(look_alike) + len(look_alike)]
    directory = build(PAYLOADS[:2])
    directory.files["000000.vlog"].data += cut
    log = new_log(directory)
    assert list(directory.files) == ["000000.vlog"], "not taken for a closed file"
    assert read_all(log) == [(1, 0), (2, 0)]
    assert log.end == ValuePointer(0, 2 * SIZE)


def test_real_footer_starts_a_new_file() -> None:
    directory = build(PAYLOADS)
    log = new_log(directory)
    log.active.close_with_footer()
    again = new_log(directory)
    assert list(directory.files) == ["000000.vlog", "000001.vlog"]
    assert len(read_all(again)) == 10


def test_record_inside_a_torn_payload_is_no_record() -> None:
    inner = encode_value(binlog.commit(7, 8))
    torn = encode_value(binlog.prewrite(5, b"k", inner + bytes(500)))[:-100]
    directory = build(PAYLOADS[:2])
    directory.files["000000.vlog"].data += torn
    assert read_all(new_log(directory)) == [(1, 0), (2, 0)]


@pytest.mark.parametrize("length", [2**31, 2**40, 2**63])
def test_absurd_length_allocates_nothing(length: int) -> None:
    directory = build(PAYLOADS[:2])
    directory.files["000000.vlog"].data += struct.pack("<IQI", 0x823A56E8, length, 0) + bytes(100)
    assert read_all(new_log(directory)) == [(1, 0), (2, 0)]


def test_zero_tail_and_garbage_tail_are_cut() -> None:
    for tail in (bytes(3000), random.Random(1).randbytes(3000)):
        directory = build(PAYLOADS[:2])
        directory.files["000000.vlog"].data += tail
        assert read_all(new_log(directory)) == [(1, 0), (2, 0)]
        assert len(directory.files["000000.vlog"].data) == 2 * SIZE


def test_valid_record_that_is_no_binlog_refuses() -> None:
    directory = build(PAYLOADS[:2])
    directory.files["000000.vlog"].data += encode_value(b"\xff\xff\xff invalid")
    with pytest.raises(Corruption, match=rf"000000\.vlog: offset {2 * SIZE}: .* is not a Binlog"):
        new_log(directory)


async def test_torn_tail_of_a_recorded_kill_is_cut_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, limits=StorageLimits()) as storage:
        await put_pair(storage, 10, 11)
    path = tmp_path / "value" / "000000.vlog"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + encode_value(binlog.fake(50))[:-3])
    with caplog.at_level("WARNING"):
        async with opened(tmp_path) as storage:
            assert storage.watermark == 11
    assert "cut the torn end of the value log" in caplog.text
    assert path.stat().st_size == size
