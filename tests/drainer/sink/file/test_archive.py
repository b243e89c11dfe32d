"""Archive: what the file sink leaves on a disk, through restarts, kills, rotation, and after a Go drainer."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import drainer
from drainer.checkpoint.value import Checkpoint
from drainer.formats import binlog_directory, binlog_file
from drainer.formats import compression as segment_compression
from drainer.formats.binlog_directory import BinlogDirectory
from drainer.formats.compression import Stopped
from drainer.formats.obinlog.writer import ObinlogWriter, definition_json
from drainer.formats.segment_index import STRIDE, SegmentIndex
from drainer.sink.file import file_sink
from drainer.sink.file import table_definitions as archive_tables
from drainer.sink.file.archive import Archive
from drainer.sink.file.file_sink import ArchiveStart, where_to_go_on
from drainer.sink.file.segments import DAY_S, ArchiveSegments
from drainer.stream.pull.merged import MergedBatch, Spilled
from drainer.txn import Ddl, Transaction
from tests.drainer.support import recorded
from tests.drainer.support.archive_life import CLUSTER_ID, Life, Ready, payloads, whole
from tests.drainer.support.relay_world import items
from tidb_binlog import checked, tso
from tidb_binlog.clock import ManualClock
from tidb_binlog.compression import zstd
from tidb_binlog.errors import Corruption, DirectoryLocked, DownstreamError, ForeignDirectory
from tidb_binlog.record import RecordError, decode_file, encode_file
from tidb_binlog.wire import pb_binlog_pb2 as pb

LONG_AFTER_S = 2_000_000_000.0  # upstream: whatever was recorded is old


def go_file(scenario: str) -> bytes:
    (path,) = (recorded.ROOT / scenario / "events").glob("binlog-*.gz")
    return gzip.decompress(path.read_bytes())


def archived(scenario: str, directory: Path, **settings: int) -> list[bytes]:
    asyncio.run(whole(directory, Ready(items(scenario)), **settings))
    return payloads(directory)


def records_of(path: Path) -> Iterator[tuple[int, bytes]]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        payload, end = decode_file(data, at)
        yield at, payload
        at = end


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("binlog-*"))


def index_of(directory: Path, name: str) -> SegmentIndex:
    found = ArchiveSegments(str(directory)).index_of(name)
    assert found is not None
    return found


@pytest.mark.parametrize("scenario", ["basic", "keys", "charset", "multi-pump"])
def test_the_file_is_byte_for_byte_that_of_the_go_drainer(scenario: str, tmp_path: Path) -> None:
    archived(scenario, tmp_path, max_file_size=512 << 20)
    (name,) = names(tmp_path)
    assert (tmp_path / name).read_bytes() == go_file(scenario)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_segments_end_behind_the_record_that_makes_them_large_enough(tmp_path: Path) -> None:
    everything = archived("basic", tmp_path / "whole", max_file_size=1 << 30)
    assert archived("basic", tmp_path / "cut", max_file_size=1500) == everything
    segments = names(tmp_path / "cut")
    assert [int(name.split("-")[1]) for name in segments] == list(range(len(segments)))
    sizes = [(tmp_path / "cut" / name).stat().st_size for name in segments]
    assert len(sizes) > 4
    assert all(size >= 1500 for size in sizes[:-1])


def test_an_index_says_what_reading_the_segment_says(tmp_path: Path) -> None:
    archived("txn", tmp_path, max_file_size=2 * STRIDE)
    segments = ArchiveSegments(str(tmp_path))
    found = segments.in_order()
    places = set()
    for number, name in found:
        index = index_of(tmp_path, name)
        os.unlink(tmp_path / "index" / f"{name}.json")
        again = segments.described(number, name)
        assert index.definitions > 0
        written = replace(again, definitions=index.definitions)
        assert index == replace(written, cluster_id=CLUSTER_ID, time_zone="UTC", closed=number < found[-1][0])
        assert index.size == (tmp_path / name).stat().st_size
        data = (tmp_path / name).read_bytes()
        for commit_ts, offset in index.places:
            assert pb.Binlog.FromString(decode_file(data, offset)[0]).commit_ts == commit_ts
        assert all(b - a >= STRIDE for (_, a), (_, b) in itertools.pairwise(index.places))
        places.add(len(index.places))
    assert max(places) > 1


def tables_of(directory: Path, name: str) -> list[archive_tables.ArchivedTable]:
    return list(archive_tables.read((directory / "index" / archive_tables.file_name(name)).read_bytes()))


@pytest.mark.parametrize("scenario", ["keys", "ddl", "types"])
def test_every_segment_has_the_definitions_that_its_rows_need(scenario: str, tmp_path: Path) -> None:
    """As the translator had them: the whole of it, under the names that the events have."""
    archived(scenario, tmp_path, max_file_size=20_000)
    wanted = {
        (item.commit_ts, *events.table.downstream): definition_json(events.table)
        for item in items(scenario)
        if isinstance(item, Transaction)
        for events in item.tables
    }
    seen = 0
    for name in names(tmp_path):
        known = tables_of(tmp_path, name) if index_of(tmp_path, name).rows else []
        for _, payload in records_of(tmp_path / name):
            message = pb.Binlog.FromString(payload)
            for event in message.dml_data.events:
                of_name = [one for one in known if one[1:3] == (event.schema_name, event.table_name)]
                last = [one for one in of_name if one.first_ts <= message.commit_ts][-1]
                at = message.commit_ts, event.schema_name, event.table_name
                assert definition_json(last.version) == wanted[at]
                seen += 1
    assert seen > 30


def test_definitions_survive_a_torn_line_and_come_once(tmp_path: Path) -> None:
    archived("keys", tmp_path, max_file_size=1 << 30)
    (name,) = names(tmp_path)
    before = tables_of(tmp_path, name)
    assert len(before) > 5
    path = tmp_path / "index" / archive_tables.file_name(name)
    path.write_bytes(path.read_bytes()[:-40])
    torn = archive_tables.line(before[-1].first_ts, before[-1].version)
    ArchiveSegments(str(tmp_path)).add_tables(name, [torn, torn])
    again = tables_of(tmp_path, name)
    assert [(one[:3], definition_json(one.version)) for one in again] == [
        (one[:3], definition_json(one.version)) for one in before
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_hole_that_a_power_cut_leaves_in_definitions_is_no_damage(tmp_path: Path) -> None:
    """Of what was not synced any blocks may be zeros, with line ends in them. The next start cleans up."""
    archived("keys", tmp_path, max_file_size=1 << 30)
    (name,) = names(tmp_path)
    path = tmp_path / "index" / archive_tables.file_name(name)
    synced = path.read_bytes()
    whole = tables_of(tmp_path, name)
    lines = [archive_tables.line(one.first_ts, one.version) for one in whole[:2]]
    written = b"\n" + b"".join(lines)
    for at in range(0, len(written), 100):
        hole = written[:at] + bytes(len(written[at : at + 512])) + written[at + 512 :]
        assert not archive_tables.damage(synced + hole, len(whole)), at
    end = written.index(b"\n", 1)
    path.write_bytes(synced + written[: end - 9] + bytes(20) + written[end + 11 :])
    asyncio.run(_some(tmp_path, 1))
    assert path.read_bytes() == synced.replace(b"\n\n", b"\n").lstrip(b"\n")


def test_definitions_that_no_index_has_counted_before_a_death_are_missed_later(tmp_path: Path) -> None:
    archived("keys", tmp_path, max_file_size=1 << 30)
    (name,) = names(tmp_path)
    segments = ArchiveSegments(str(tmp_path))
    before = index_of(tmp_path, name).definitions
    assert before > 1
    segments.store(name, SegmentIndex(CLUSTER_ID, "UTC").to_json())
    asyncio.run(_some(tmp_path, 1))
    assert index_of(tmp_path, name).definitions == before
    path = tmp_path / "index" / archive_tables.file_name(name)
    text = path.read_bytes()
    path.write_bytes(bytes(512) + text[512:])
    with pytest.raises(Corruption, match=f"has {before - 1} of {before} definitions"):
        list(drainer.open_archive(tmp_path))


def test_a_graceful_stop_leaves_a_consistent_savepoint_of_gos_form(tmp_path: Path) -> None:
    archived("basic", tmp_path)
    last = items("basic")[-1].commit_ts
    text = checked.read_text((tmp_path / "savepoint").read_text())
    theirs = json.loads((recorded.ROOT / "basic" / "checkpoint.json").read_text())["file_savepoint"]
    their_ts = theirs.splitlines()[1].partition(" = ")[2]  # of a time mark behind the last binlog
    assert text == theirs.replace(their_ts, str(last))


@pytest.mark.parametrize("seed", range(4))
def test_a_death_at_any_byte_is_made_good_at_the_next_start(seed: int, tmp_path: Path) -> None:
    """The synced part is kept; what lies behind it comes again, and nothing twice."""
    everything = archived("keys", tmp_path / "whole")
    rng = random.Random(seed)
    directory = tmp_path / "cut"
    for _ in range(6):
        asyncio.run(_some(directory, rng.randrange(1, 20)))
        newest = directory / names(directory)[-1]
        with newest.open("r+b") as file:  # what a write that was not synced may leave
            file.seek(0, os.SEEK_END)
            file.write(rng.choice([b"", b"\x04\x05\x1b", os.urandom(40), everything[0][:9], bytes(30)]))
        before = payloads_of_whole_records(directory)
        assert before == everything[: len(before)]
    asyncio.run(whole(directory, Ready(items("keys"))))
    assert payloads(directory) == everything


def spans(data: bytes) -> Iterator[tuple[int, int]]:
    for place in binlog_file.places(lambda at, size: data[at : at + size], len(data)):
        yield place.start, place.start + place.size


def payloads_of_whole_records(directory: Path) -> list[bytes]:
    found: list[bytes] = []
    for _, name in binlog_file.in_order(str(directory), names(directory)):
        data = (directory / name).read_bytes()
        try:
            found.extend(data[a:b] for a, b in spans(data))
        except RecordError:
            assert name == names(directory)[-1]
    return found


async def _some(directory: Path, batches: int) -> None:
    """So many batches, the last one maybe not synced, and no graceful stop."""
    life = Life(directory, Ready(items("keys")))
    stream = life.batches(3)

    async def few() -> AsyncIterator[MergedBatch]:
        number = 0
        async for batch in stream:
            yield batch
            number += 1
            if number % 4 == 0:
                await life.sink.save()
            if number >= batches:
                return

    await life.runner.run(few())
    await life.sink.settled()
    await asyncio.to_thread(life.archive.let_go)


# -- taking over ------------------------------------------------------------------------------------------


def test_a_go_drainers_archive_is_gone_on_with_in_a_segment_of_our_own(tmp_path: Path) -> None:
    """Its times are in a zone that nobody knows, ours in UTC: no segment has both."""
    theirs = go_file("keys")
    half = list(binlog_file.places(lambda at, size: theirs[at : at + size], len(theirs)))[90]
    name = "binlog-0000000000000000-20260101000000"
    (tmp_path / name).write_bytes(theirs[: half.end])
    (tmp_path / "savepoint").write_text("consistent = false\ncommitTS = 5\nschema-version = 3\n")
    asyncio.run(whole(tmp_path, Ready(items("keys")), max_file_size=1 << 30))
    first, second = names(tmp_path)
    assert first == name
    assert (tmp_path / first).read_bytes() + (tmp_path / second).read_bytes() == theirs
    assert (index_of(tmp_path, first).time_zone, index_of(tmp_path, first).closed) == ("", True)
    assert (index_of(tmp_path, second).time_zone, index_of(tmp_path, second).closed) == ("UTC", False)


def test_what_is_there_counts_where_the_savepoint_is_behind() -> None:
    assert where_to_go_on(9, Checkpoint(5, False, 3), 0) == ArchiveStart(9)
    assert where_to_go_on(5, Checkpoint(5, False, 3), 0) == ArchiveStart(5, 3)
    assert where_to_go_on(5, Checkpoint(8, True, 3), 0) == ArchiveStart(8, 3)
    assert where_to_go_on(0, Checkpoint(0, False, 3), 4) == ArchiveStart(4)
    assert where_to_go_on(0, None, 4) == ArchiveStart(4)


def test_statements_of_a_ddl_that_the_checkpoint_has_not_seen_come_again(tmp_path: Path) -> None:
    """They are several records: a power cut may leave the first of them."""
    ddl = Ddl(10, 1, 3, "d", "x", (("d", "t"),), 1, instead=("DROP TABLE `d`.`a`", "DROP VIEW `d`.`b`"))
    asyncio.run(whole(tmp_path, Ready([ddl])))
    both = payloads(tmp_path)
    assert [pb.Binlog.FromString(one).ddl_query for one in both] == [
        b"use `d`; DROP TABLE `d`.`a`;",
        b"use `d`; DROP VIEW `d`.`b`;",
    ]
    (name,) = names(tmp_path)
    os.truncate(tmp_path / name, 16 + len(both[0]))
    (tmp_path / ".synced").unlink()
    (tmp_path / "savepoint").unlink()
    asyncio.run(whole(tmp_path, Ready([ddl])))
    assert payloads(tmp_path) == both
    assert index_of(tmp_path, name).ddl == 2


def test_one_drainer_writes_and_of_one_cluster(tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path), ManualClock(), cluster_id=1)
    with pytest.raises(DirectoryLocked, match="another drainer uses it"):
        Archive.open(str(tmp_path), ManualClock(), cluster_id=1)
    archive.let_go()
    with pytest.raises(ForeignDirectory):
        Archive.open(str(tmp_path), ManualClock(), cluster_id=2)


def test_a_missing_segment_is_told_and_not_written_behind(tmp_path: Path) -> None:
    archived("basic", tmp_path, max_file_size=1500)
    os.unlink(tmp_path / names(tmp_path)[2])
    with pytest.raises(Corruption, match="index 2 is missing"):
        Archive.open(str(tmp_path), ManualClock(), cluster_id=CLUSTER_ID)


def test_a_relay_logs_directory_is_not_taken_for_an_archive(tmp_path: Path) -> None:
    directory = BinlogDirectory(str(tmp_path), ManualClock())
    rows = next(item for item in items("basic") if isinstance(item, Transaction) and item.tables)
    directory.append([encode_file(ObinlogWriter().transaction(rows))])
    directory.close()
    with pytest.raises(Corruption, match="directory of its own"):
        Archive.open(str(tmp_path), ManualClock(), cluster_id=CLUSTER_ID)


# -- large transactions, retention, rules -----------------------------------------------------------------


def test_a_large_transaction_in_pieces_is_one_record(tmp_path: Path) -> None:
    """The same message; its length has bytes to spare, as that is known only behind the last piece."""
    stream = [item for item in items("txn") if isinstance(item, Transaction) and item.tables]
    big = max(stream, key=lambda item: sum(len(events.rows) for events in item.tables))
    events = big.tables[0]
    cuts = [0, len(events.rows) // 3, len(events.rows) // 2, len(events.rows)]
    pieces = [
        replace(
            big,
            tables=(replace(events, kinds=events.kinds[a:b], rows=events.rows[a:b], first_ordinal=a),),
            last=b == cuts[-1],
        )
        for a, b in itertools.pairwise(cuts)
    ]
    small = [item for item in stream if item.commit_ts > big.commit_ts][:3]
    asyncio.run(whole(tmp_path / "a", Ready([big, *small])))
    asyncio.run(whole(tmp_path / "b", Ready([big, *small], {big.commit_ts: pieces})))
    first, second = payloads(tmp_path / "a"), payloads(tmp_path / "b")
    assert len(second[0]) > len(first[0])
    assert pb.Binlog.FromString(second[0]) == pb.Binlog.FromString(first[0])
    assert second[1:] == first[1:]
    a, b = (index_of(tmp_path / one, names(tmp_path / one)[0]) for one in "ab")
    assert a.rows == b.rows


async def test_a_pause_inside_a_large_transaction_syncs_what_was_written_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The savepoint moves past what is on the medium, and past nothing else."""
    stream = [item for item in items("txn") if isinstance(item, Transaction) and item.tables]
    small, big = stream[0], replace(stream[1], last=False)
    life = Life(tmp_path, Ready(stream))
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(file_sink, "BUFFERED_BYTES_MAX", 1)  # each piece goes to the operating system
    life.sink._append(small)
    await life.sink.begin_large(Spilled(big.commit_ts, 0, 0, 0, 0, lambda offset, size: b""), empty())
    await life.sink.take_piece(big)
    monkeypatch.setattr(binlog_directory.os, "fdatasync", sync)
    await life.sink.flush()
    await life.sink.settled()
    await life.sink.save()
    assert life.savepoint.load() is not None
    assert (life.sink.stored_ts, life.sink.resolved_ts) == (small.commit_ts, small.commit_ts)
    (name,) = names(tmp_path)
    assert synced == [(tmp_path / name).stat().st_size]
    await life.sink.take_piece(replace(big, last=True))
    await life.sink.finish(broken=False)


async def empty() -> AsyncIterator[Transaction]:
    for piece in ():
        yield piece


async def test_segments_older_than_wanted_go_the_oldest_first(tmp_path: Path) -> None:
    clock = ManualClock()
    await Life(tmp_path, Ready(items("basic")), max_file_size=1500).whole()
    segments = names(tmp_path)
    clock.advance(40 * 24 * 3600)
    for age_days, name in zip([9, 9, 2, 9], segments, strict=False):
        at = clock.wall_s() - age_days * 24 * 3600
        os.utime(tmp_path / name, (at, at))
    archive = Archive.open(str(tmp_path), clock, cluster_id=CLUSTER_ID)
    assert await archive.remove_older(7, LONG_AFTER_S) == 2
    await archive.close()
    assert names(tmp_path) == segments[2:]
    beside = {path.name for path in (tmp_path / "index").iterdir()}
    assert {name for name in beside if name.endswith(".json")} == {f"{one}.json" for one in segments[2:]}
    assert {name[: -len(".tables.jsonl")] for name in beside if name.endswith("l")} <= set(segments[2:])


async def test_no_segment_goes_by_one_clock_alone(tmp_path: Path) -> None:
    """Either may be ahead, or have been behind when the segment was written."""
    await Life(tmp_path, Ready(items("basic")), max_file_size=1500).whole()
    segments = names(tmp_path)
    last_s = tso.physical_s(items("basic")[-1].commit_ts)
    clock = ManualClock(last_s)
    archive = Archive.open(str(tmp_path), clock, cluster_id=CLUSTER_ID)
    for name in segments:
        os.utime(tmp_path / name, (last_s, last_s))
    clock.advance(9 * DAY_S)  # this host's clock is ahead
    assert await archive.remove_older(7, last_s + DAY_S) == 0
    clock.advance(-8 * DAY_S)  # the upstream's is
    assert await archive.remove_older(7, last_s + 9 * DAY_S) == 0
    for name in segments:  # this host's was behind
        os.utime(tmp_path / name, (1000, 1000))
    assert await archive.remove_older(7, last_s + DAY_S) == 0
    assert names(tmp_path) == segments
    clock.advance(7 * DAY_S)
    assert await archive.remove_older(7, last_s + 8 * DAY_S) == len(segments) - 1
    await archive.close()


async def test_closed_segments_are_compressed_and_the_archive_goes_on(tmp_path: Path) -> None:
    """What comes out is the segment; its age, index and definitions stay; retention and a restart know it."""
    everything = await asyncio.to_thread(archived, "keys", tmp_path / "plain")
    clock = ManualClock()
    await Life(tmp_path / "a", Ready(items("keys")[:-20]), max_file_size=4000).whole()
    before = {name: (tmp_path / "a" / name).read_bytes() for name in names(tmp_path / "a")}
    os.utime(tmp_path / "a" / min(before), (1000, 1000))
    archive = Archive.open(str(tmp_path / "a"), clock, cluster_id=CLUSTER_ID)
    assert await archive.compress() == len(before) - 1 > 3
    assert await archive.compress() == 0
    segments = ArchiveSegments(str(tmp_path / "a"))
    for _, name in segments.in_order()[:-1]:
        described = segments.index_of(name)
        assert described is not None
        assert name == f"{binlog_file.plain_name(name)}-{described.first_ts}.zst"
        data = zstd.unpacker().decompress((tmp_path / "a" / name).read_bytes())
        assert data == before[binlog_file.plain_name(name)]
        assert (tmp_path / "a" / name).stat().st_mode & 0o777 == 0o600
    assert names(tmp_path / "a")[-1] == max(before)
    assert (tmp_path / "a" / names(tmp_path / "a")[0]).stat().st_mtime == 1000
    assert await archive.remove_older(1, LONG_AFTER_S) == 1
    await archive.close()
    await Life(tmp_path / "a", Ready(items("keys")), max_file_size=4000).whole()
    left = [payload for _, name in segments.in_order() for payload in decompressed(tmp_path / "a" / name)]
    assert left == everything[-len(left) :]
    assert len(left) > len(everything) * 3 // 4
    for _, name in segments.in_order():  # nothing is written behind a compressed file
        if not binlog_file.is_compressed(name):
            os.unlink(tmp_path / "a" / name)
    (tmp_path / "a" / ".synced").unlink()
    Archive.open(str(tmp_path / "a"), clock, cluster_id=CLUSTER_ID).let_go()
    assert not binlog_file.is_compressed(segments.in_order()[-1][1])


def decompressed(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    if binlog_file.is_compressed(path.name):
        data = zstd.unpacker().decompress(data)
    at = 0
    while at < len(data):
        payload, at = decode_file(data, at)
        yield payload


async def test_a_compression_that_was_killed_leaves_the_segment(tmp_path: Path) -> None:
    await Life(tmp_path, Ready(items("basic")), max_file_size=1500).whole()
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    first, second = names(tmp_path)[:2]
    (tmp_path / f"{first}-7.zst").write_bytes(b"whole, and the segment not removed yet")
    (tmp_path / f"{second}-7.zst.tmp").write_bytes(b"half")
    archive = Archive.open(str(tmp_path), ManualClock(), cluster_id=CLUSTER_ID)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    archive.let_go()
    with pytest.raises(Stopped):
        segment_compression.compress(str(tmp_path), first, 7, lambda: True)
    assert set(names(tmp_path)) == set(before)


def test_what_does_not_read_back_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived("basic", tmp_path, max_file_size=1500)
    before = set(names(tmp_path))
    real = os.utime

    def damage(path: str, ns: tuple[int, int]) -> None:
        real(path, ns=ns)
        data = bytearray(Path(path).read_bytes())
        data[len(data) // 2] ^= 1
        Path(path).write_bytes(data)

    monkeypatch.setattr(segment_compression.os, "utime", damage)
    with pytest.raises(Corruption, match="does not give back"):
        segment_compression.compress(str(tmp_path), min(before), 7, lambda: False)
    assert set(names(tmp_path)) == before


async def test_a_ddl_that_loses_rows_or_has_a_stop_rule_stops_before_it(tmp_path: Path) -> None:
    ddl = Ddl(10, 1, 3, "d", "DROP TABLE t", (("d", "t"),), 1, refused="other tables replicate into it")
    life = Life(tmp_path, Ready([ddl]))
    with pytest.raises(DownstreamError, match="other tables replicate into it"):
        await life.runner.run(life.batches())
    await life.runner.stop(5)
    assert payloads(tmp_path) == []
    assert life.savepoint.load() is None
