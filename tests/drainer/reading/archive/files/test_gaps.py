"""Archives with holes: whichever file is gone, whoever reads, wherever the range begins and ends, what is
missing is said, and what is there is read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import drainer
from drainer.config.options import DrainerConfig
from drainer.formats import binlog_file, compression, segment_index
from drainer.formats.binlog_file import SYNCED, Synced
from drainer.formats.obinlog.writer import definition_json
from drainer.formats.segment_index import SegmentIndex
from drainer.places.place import Place
from drainer.points.restore.options import RestoreOptions
from drainer.points.restore.restoring import Restoration
from drainer.reading.archive.archive_source import ArchiveSource
from drainer.reading.archive.archive_source import read as read_part
from drainer.reading.archive.decode import reading
from drainer.reading.archive.files.segments import Slice, survey
from drainer.reading.archive.files.selection import Selection
from drainer.reparo.options import ReparoConfig
from drainer.reparo.ordered_records import surveyed
from drainer.reparo.viewing import Viewer
from drainer.sink.file import table_definitions
from drainer.spark.audit.auditing import audit
from drainer.spark.replay.archive_range import ArchiveRange
from drainer.spark.replay.plan import ReplayOptions
from drainer.spark.replay.plan import plan as replay_plan
from drainer.spark.source.stream_archive import StreamArchive
from drainer.spark.source.stream_offsets import Admission
from tests.spark.support.replay_world import our_archive
from tidb_binlog.errors import BinlogError, Corruption
from tidb_binlog.record import encode_file

SCENARIO = "basic"
Reader = Callable[[Path, int, int], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return our_archive(SCENARIO, tmp_path_factory.mktemp("gaps") / "archive", 3 << 10)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("binlog-*"))


def remove_indexes(directory: Path) -> None:
    for path in (directory / segment_index.DIRECTORY).glob("*.json"):
        path.unlink()


def times(location: Place, part: Slice) -> list[int]:
    return [head.commit_ts for head in reading.heads(location, part)]


def stamps(path: Path) -> list[int]:
    location = Place(str(path.parent))
    (part,) = [one for one in survey(location).plan(Selection(), skip_damage=True) if one.name == path.name]
    return times(location, part)


# -- who reads -------------------------------------------------------------------------------------------


def by_program(directory: Path, start: int, stop: int) -> object:
    return [
        item.commit_ts for item in drainer.open_archive(directory, start=start or None, stop=stop or None)
    ]


def by_view(directory: Path, start: int, stop: int) -> object:
    source = ArchiveSource({"path": str(directory), "start": str(start), "stop": str(stop)})
    task = source.task(source.schema)
    return sum(batch.num_rows for part in source.parts() for batch in read_part(task, "changes", part))


def by_reparo(directory: Path, start: int, stop: int) -> object:
    config = ReparoConfig(data_dir=str(directory), start_tso=start, stop_tso=stop)
    return Viewer(config, surveyed(config), lambda: False).count_all().rows


def by_restore(directory: Path, start: int, stop: int) -> object:
    settings = DrainerConfig(db_type="mysql", ignore_schemas="")
    segments = survey(Place(str(directory))).segments
    first = (segments and segments[0].first_ts) or 0
    wanted = RestoreOptions(settings, "", (start or first) - 1, str(directory), stop)
    return Restoration(wanted, asyncio.Event()).plan().changes


def by_replay(directory: Path, start: int, stop: int) -> object:
    found = replay_plan(None, str(directory), start, stop, ReplayOptions())
    return [task.step for task in found.tasks]


def by_range(directory: Path, start: int, stop: int) -> object:
    """As image and flashback read."""

    def no_spark() -> object:
        raise AssertionError("there is little to read")

    options = {"start": str(start), "stop": str(stop)}
    found = ArchiveRange.open(no_spark, str(directory), options)  # type: ignore[arg-type]
    return len(list(found.net(1 << 40)))


def by_stream(directory: Path, start: int, stop: int) -> object:
    location = Place(str(directory))
    archive = StreamArchive(location)
    begin = archive.beginning(start)
    end = archive.latest(begin, Admission(stop_ts=stop))
    found = [ts for part in archive.parts(begin, end, 1 << 20) for ts in times(location, part.slice)]
    return [ts for ts in found if ts >= start]


READERS: dict[str, Reader] = {
    "program": by_program,
    "view": by_view,
    "reparo": by_reparo,
    "restore": by_restore,
    "replay": by_replay,
    "range": by_range,
    "stream": by_stream,
}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("name", READERS)
def test_each_file_is_missed_by_each_reader_at_each_stop(
    whole: Path, tmp_path: Path, name: str, indexed: bool
) -> None:
    by_file = [stamps(path) for path in files(whole)]
    assert len(by_file) >= 4
    assert all(by_file)
    reader = READERS[name]
    for gone in range(len(by_file)):
        copy = tmp_path / f"{gone}"
        shutil.copytree(whole, copy)
        files(copy)[gone].unlink()
        if not indexed:
            remove_indexes(copy)
        before = by_file[gone - 1][-1] if gone else 0
        start = by_file[0][0] if gone == 0 else 0
        ends = {stop for some in by_file for stop in (some[0], some[len(some) // 2], some[-1])}
        for stop in (0, *sorted(ends)):
            if name == "stream" and gone:
                stop = 0  # it does not look where it is to end: it is refused in front of each gap
            if not stop or stop > before:
                with pytest.raises(BinlogError, match=r"missing|older files are gone|begins (at|with)|comes"):
                    reader(copy, start, stop)
            else:
                assert reader(copy, start, stop) == reader(whole, start, stop), (gone, stop)
        if 0 < gone < len(by_file) - 1:  # after it everything is there
            after = by_file[gone + 1][0] + (name == "stream")  # which may begin in the file before
            assert reader(copy, after, 0) == reader(whole, after, 0)


@pytest.mark.parametrize("name", READERS)
def test_an_archive_of_which_nothing_is_left_is_not_an_empty_one(
    whole: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    for path in files(copy):
        path.unlink()
    with pytest.raises(BinlogError, match=r"missing|has no (file|binlog files)"):
        READERS[name](copy, 1 << 50, 0)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_lost_its_end_is_missed_by_each_reader(whole: Path, tmp_path: Path, name: str) -> None:
    """Cut between two records, where only its index or its writer's mark can tell."""
    for place in range(len(files(whole))):
        copy = tmp_path / f"{place}"
        shutil.copytree(whole, copy)
        cut = files(copy)[place]
        (part,) = [one for one in survey(Place(str(copy))).plan(Selection()) if one.name == cut.name]
        ends = [head.pos for head in reading.heads(Place(str(copy)), part)]
        for size in (ends[-1], ends[len(ends) // 2], 0):
            os.truncate(cut, size)
            with pytest.raises(BinlogError, match=r"has lost|or its end"):
                READERS[name](copy, stamps(files(whole)[0])[0], 0)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_compressed_file_that_was_cut_is_missed_by_each_reader(
    whole: Path, tmp_path: Path, name: str, place: int
) -> None:
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    chosen, first_ts = files(copy)[place], stamps(files(copy)[0])[0]
    compression.compress(str(copy), chosen.name, stamps(chosen)[0], lambda: False)
    assert READERS[name](copy, first_ts, 0) == READERS[name](whole, first_ts, 0)
    made = copy / compression.compressed_name(chosen.name, stamps(files(whole)[place])[0])
    for size in (made.stat().st_size - 1, made.stat().st_size // 2, 0):
        os.truncate(made, size)
        with pytest.raises(Corruption, match="cannot be unpacked"):
            READERS[name](copy, first_ts, 0)


def test_an_audit_says_that_the_newest_file_is_missing(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    files(copy)[-1].unlink()
    found = audit(None, str(copy)).findings["coverage"]
    assert [one.kind for one in found.listed] == ["missing file"]
    assert "says .synced" in found.listed[0].text
    beside = max((copy / segment_index.DIRECTORY).glob("*.jsonl"), key=lambda path: path.stat().st_size)
    beside.write_bytes(beside.read_bytes().replace(b"definition", b"defjnition", 1))
    found = audit(None, str(copy)).findings["coverage"]
    assert any(one.name == beside.name.removesuffix(".tables.jsonl") for one in files(copy))
    assert sorted(one.kind for one in found.listed) == ["damaged definitions", "missing file"]


def test_a_file_that_was_cut_or_a_mark_that_is_damaged_is_no_end(whole: Path, tmp_path: Path) -> None:
    """The newest file's end is where its writer says, not where it can be read no more."""
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    (copy / SYNCED).write_bytes(b"\1" + (copy / SYNCED).read_bytes()[1:])
    with pytest.raises(Corruption, match="is damaged: whether files after"):
        by_program(copy, 0, 0)
    shutil.copy(whole / SYNCED, copy / SYNCED)
    last = files(copy)[-1]
    data = last.read_bytes()
    for size in (0, len(data) // 2, len(data) - 1):
        last.write_bytes(data[:size])
        for with_index in (True, False):
            if not with_index:
                remove_indexes(copy)
            with pytest.raises(Corruption, match="has lost"):
                by_program(copy, 0, 0)


# -- each file that is believed --------------------------------------------------------------------------


def outcome(directory: Path) -> object:
    """What a program reads, in all: or that it is refused."""
    try:
        return [
            (item.commit_ts, [(row.before, row.after) for row in item.rows])
            if isinstance(item, drainer.Transaction)
            else (item.commit_ts, item.query)
            for item in drainer.open_archive(directory)
        ]
    except BinlogError:
        return None


def test_a_bit_flipped_in_any_file_is_said_or_changes_nothing(tmp_path: Path) -> None:
    """Records, indexes, definitions and the mark. Random places, each file some."""
    whole = our_archive("basic", tmp_path / "whole", 3 << 10)
    right, random = outcome(whole), Random(20261124)
    assert right
    believed = [path for path in whole.rglob("*") if path.is_file() and path.name != ".lock"]
    beside = [path for path in believed if path.parent.name == segment_index.DIRECTORY]
    refused = dict.fromkeys(believed, 0)
    for path in [*believed, *beside, *beside]:
        data = path.read_bytes()
        for _ in range(3):
            at, bit = random.randrange(len(data)), 1 << random.randrange(8)
            path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            found = outcome(whole)
            assert found in (right, None), f"{path.name}: offset {at}, bit {bit}"
            refused[path] += found is None
        path.write_bytes(data)
    assert all(refused[path] for path in believed if path.name.startswith("binlog-") and path.parent == whole)
    assert all(refused[path] for path in beside if path.name.endswith(".jsonl") and path.stat().st_size)
    assert outcome(whole) == right


def test_whichever_bit_of_a_definition_is_flipped_it_is_not_another_one(whole: Path) -> None:
    """Also one that leaves it legal: a length, a flag, a letter of a name."""
    path = max((whole / segment_index.DIRECTORY).glob("*.jsonl"), key=lambda path: path.stat().st_size)
    text, random = path.read_bytes(), Random(20261126)

    def known(of: bytes) -> list[object]:
        return [(*one[:3], definition_json(one.version)) for one in table_definitions.read(of)]

    right = known(text)
    assert right
    assert not table_definitions.damage(text, len(right))
    for _ in range(1500):
        at, bit = random.randrange(len(text)), 1 << random.randrange(8)
        other = text[:at] + bytes([text[at] ^ bit]) + text[at + 1 :]
        found = known(other)
        assert all(one in right for one in found), f"offset {at}, bit {bit}"
        assert found == right or table_definitions.damage(other, len(right)), f"offset {at}, bit {bit}"


def test_definitions_that_are_gone_or_cut_are_missed_by_who_needs_them(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    first, second = files(copy)[:2]
    beside = copy / segment_index.DIRECTORY / table_definitions.file_name(second.name)
    text = beside.read_bytes()
    assert text.count(b"check") > 0
    for left in (b"", text[: text.rindex(b'{"check') or 0]):
        beside.write_bytes(left)
        with pytest.raises(Corruption, match=r"tables\.jsonl has \d of \d definitions"):
            by_program(copy, 0, 0)
        assert by_program(copy, 0, stamps(first)[-1]) == by_program(whole, 0, stamps(first)[-1])
    beside.unlink()
    with pytest.raises(Corruption, match=r"tables\.jsonl has 0 of"):
        by_program(copy, 0, 0)


def without_checksums(directory: Path) -> None:
    """As older releases wrote it."""
    for path in (directory / segment_index.DIRECTORY).iterdir():
        if path.name.endswith(".jsonl"):
            lines = [json.loads(line) for line in path.read_bytes().splitlines() if line]
            for line in lines:
                del line["check"]
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        else:
            document = json.loads(path.read_bytes())
            del document["crc32c"], document["definitions"]
            path.write_text(json.dumps(document))


def test_an_archive_of_an_older_release_reads_the_same(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a"
    shutil.copytree(whole, copy)
    without_checksums(copy)
    assert outcome(copy) == outcome(whole)
    # What it cannot read it has no reason to believe.
    beside = max((copy / segment_index.DIRECTORY).glob("*.jsonl"), key=lambda path: path.stat().st_size)
    beside.write_bytes(beside.read_bytes().replace(b"definition", b"defjnition", 1))
    with pytest.raises(Corruption, match="does not fit its checksum"):
        by_program(copy, 0, 0)


# -- all holes of small archives -------------------------------------------------------------------------


def record(commit_ts: int) -> bytes:
    """A schema change: rows would need a definition."""
    text = b"CREATE DATABASE d%d" % commit_ts
    payload = b"\x08\x01\x10" + encoded(commit_ts) + b"\x22" + encoded(len(text)) + text
    return encode_file(payload)


def encoded(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def lay(directory: Path, layout: Iterable[list[int]], random: Random) -> None:
    (directory / segment_index.DIRECTORY).mkdir(parents=True)
    for number, some in enumerate(layout):
        name = binlog_file.file_name(number, "20261124000000")
        index, data = SegmentIndex(), b""
        for commit_ts in some:
            start, data = len(data), data + record(commit_ts)
            index.add(commit_ts, start, len(data), is_ddl=True)
        (directory / name).write_bytes(data)
        if random.random() < 0.5:
            path = directory / segment_index.DIRECTORY / segment_index.file_name(name)
            path.write_bytes(index.to_json())
    (directory / SYNCED).write_bytes(Synced(number, len(data)).to_bytes())


@pytest.mark.parametrize("seed", range(20))
def test_a_hole_is_said_by_who_needs_it_and_by_nobody_else(tmp_path: Path, seed: int) -> None:
    """Files of any length, empty ones, ones that begin with what the file before has; any of them are gone,
    any range is read."""
    random = Random(seed)
    times = [10 * n for n in range(100_000_000, 100_000_000 + random.randint(4, 14))]
    cuts = sorted(random.choices(range(len(times) + 1), k=random.randint(1, 4)))
    layout = [times[a:b] for a, b in pairwise([0, *cuts, len(times)])]
    for place in range(1, len(layout)):
        if layout[place - 1] and layout[place] and random.random() < 0.3:  # a drainer was started again
            layout[place] = layout[place - 1][-1:] + layout[place]
    lay(tmp_path / "a", layout, random)
    gone = {place for place in range(len(layout)) if random.random() < 0.3}
    for place in gone:
        (tmp_path / "a" / binlog_file.file_name(place, "20261124000000")).unlink()
    there = {ts for place, some in enumerate(layout) if place not in gone for ts in some}
    if len(gone) == len(layout):
        return
    seen = survey(Place(str(tmp_path / "a")))
    bounds = [times[0] - 5, *times, *(ts + 5 for ts in times)]
    refusals = 0
    for start in (0, *bounds):
        for stop in (0, *bounds):
            if stop and stop < start:
                continue
            needed = {ts for ts in times if ts >= start and (not stop or ts <= stop)}
            if not start:  # from what there is
                needed = {ts for ts in needed if ts >= min(there, default=0)}
            try:
                parts = seen.plan(Selection(start, stop), random.choice((10, 1 << 20)))
            except Corruption:
                refusals += 1
                continue
            found = {head.commit_ts for part in parts for head in reading.heads(seen.location, part)} & needed
            assert found == needed, (layout, gone, start, stop)
    assert refusals or there >= set(times)
    # Nobody is refused what is there with all around it.
    for place, some in enumerate(layout):
        if place not in gone and len(set(some)) > 1:
            assert seen.plan(Selection(some[0], some[-1]))
