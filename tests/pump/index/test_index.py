"""The index: what a time mark must not do to a commit that has its timestamp, and how entries are purged."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from pump.index.index import Index, key_of
from pump.index.store import IndexDamaged
from pump.log.record import START, LogRecord, ValuePointer, decode_pointer, encode_pointer
from tests.pump.support.payloads import alter, filed
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK

P = LogRecord(PREWRITE, 10, 0, ValuePointer(0, 0))
C = LogRecord(COMMIT, 10, 20, ValuePointer(0, 100))
MARK = LogRecord(ROLLBACK, 20, 20, ValuePointer(0, 200))
LATER_MARK = LogRecord(ROLLBACK, 30, 30, ValuePointer(0, 300))


@pytest.mark.usefixtures("each_index")
@pytest.mark.parametrize(
    "batches",
    [[[P, C], [MARK]], [[P, C, MARK]], [[P, MARK, C]], [[MARK], [P, C]], [[P, C], [MARK], [P, C, MARK]]],
)
def test_a_mark_never_takes_the_place_of_a_commit(tmp_path: Path, batches: list[list[LogRecord]]) -> None:
    index = Index.open(str(tmp_path / "kv"), write_buffer_bytes=1 << 20, cache_bytes=1 << 20)
    for batch in [*batches, [LATER_MARK]]:
        index.write(batch, START, 0, START)
    assert filed(index, 0, 100) == [(10, P.place), (20, C.place), (30, LATER_MARK.place)]
    index.close()


@pytest.mark.usefixtures("each_index")
def test_it_knows_the_last_commit_that_it_ever_had_marks_apart(tmp_path: Path) -> None:
    """Also after entries were purged; a Go pump, which does not keep it, moves the head."""
    path, head = str(tmp_path / "kv"), ValuePointer(0, 300)

    def reopened() -> Index:
        return Index.open(path, write_buffer_bytes=1 << 20, cache_bytes=1 << 20)

    index = reopened()
    assert index.last_commit_ts == 0
    index.write([MARK], MARK.place, 20, START)
    index.close()
    index = reopened()
    assert index.last_commit_ts == 0
    index.write([P, C, LATER_MARK], head, 30, START)
    index.write([], head, 30, START)
    assert index.last_commit_ts == 20
    index.purge(0, 99, 0)
    index.close()
    index = reopened()
    assert (index.last_commit_ts, index.last_ts()) == (20, 0)
    further = encode_pointer(ValuePointer(0, 400))
    alter(index, {b"!binlog!headPointer": further, key_of(40): further})
    index.close()
    index = reopened()
    assert index.last_commit_ts == 40, "the largest of all timestamps: which are commits is not known"
    index.close()


def test_whatever_a_go_pump_steps_over_it_files_again(tmp_path: Path) -> None:
    """Entries of LevelDB's own log, any of them: it files anew what follows the pointers that it reads."""
    records = [
        LogRecord(PREWRITE, number, 0, ValuePointer(number // 20, number % 20 * 100))
        for number in range(1, 60)
    ]
    for count in range(1, 60, 3):
        path = tmp_path / f"{count}"
        index = Index.open(str(path))
        for record in records[:count]:
            place = record.place
            index.write([record], place, 0, place)
            if record.start_ts % 13 == 0:
                index.close(settled=record.start_ts % 2 == 0)
                index = Index.open(str(path))
                assert (index.head, index.handle) == (place, place)
        stored = decode_pointer(index.store.get(b"!binlog!handlePointer") or encode_pointer(START))
        assert place.fid - 1 <= stored.fid, "it is no more than a file"
        index.close()
        for log in path.glob("*.log"):
            log.write_bytes(b"")
        rest = Index.open(str(path))
        kept = set(filed(rest, 0, 99))
        lost = [each for each in records[:count] if (each.start_ts, each.place) not in kept]
        assert all(each.place > stored for each in lost)
        assert len(lost) < 20 or count < 20
        rest.close()


def test_what_a_release_of_before_has_left_is_read(tmp_path: Path) -> None:
    """It kept what is decided in the pointer of a Go pump alone."""
    index = Index.open(str(tmp_path))
    index.write([P, C], C.place, 20, C.place)
    last = index.store.get(b"!binlog!lastCommit")
    assert last is not None
    alter(index, {b"!binlog!lastCommit": last[:20], b"!binlog!handlePointer": encode_pointer(C.place)})
    index.close()
    index = Index.open(str(tmp_path))
    assert (index.handle, index.last_commit_ts) == (C.place, 20)
    index.close()


def test_an_index_that_was_damaged_meanwhile_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock would refuse the one that is built anew."""

    def damaged(key: bytes) -> bytes:
        raise IndexDamaged("block checksum mismatch")

    index = Index.open(str(tmp_path))
    index.write([P], P.place, 0, START)
    monkeypatch.setattr(index.store, "get", damaged)
    index.close(settled=True)
    Index.open(str(tmp_path)).close()


class Watched:
    """A store that notes which batches were brought to the medium."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.synced: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write_batch(self, *, sync: bool = False) -> Any:
        self.synced.append(sync)
        return self.store.write_batch(sync=sync)


@pytest.mark.usefixtures("each_index")
def test_a_purge_goes_by_file_in_steps_and_is_on_the_medium_at_its_end(tmp_path: Path) -> None:
    index = Index.open(str(tmp_path / "kv"), write_buffer_bytes=1 << 20, cache_bytes=1 << 20)
    records = [LogRecord(COMMIT, ts - 1, ts, ValuePointer(ts % 3, ts)) for ts in range(2, 100)]
    index.write(records, START, 0, START)
    index.store = watched = Watched(index.store)
    at: int | None = 10
    deleted, steps = 0, 0
    while at is not None:
        count, at = index.purge(at, 89, 1, records_max=25)
        deleted += count
        steps += 1
    kept = [ts for ts in range(2, 100) if ts < 10 or ts > 89 or ts % 3 == 2]
    assert [ts for ts, _ in filed(index, 0, 1000)] == kept
    assert deleted == len(records) - len(kept)
    assert steps == 4
    assert watched.synced == [False, False, False, True]
    index.close()


@pytest.mark.usefixtures("each_index")
@pytest.mark.parametrize(("key", "value"), [(b"ts:123456789", bytes(12)), (b"ts:12345678", bytes(11))])
def test_an_entry_of_a_wrong_size_is_damage_and_no_timestamp(
    tmp_path: Path, key: bytes, value: bytes
) -> None:
    index = Index.open(str(tmp_path / "kv"))
    alter(index, {key: value})
    with pytest.raises(IndexDamaged, match=f"entry {key.hex()} has a wrong size"):
        filed(index, 0, (1 << 63) - 1)
    index.close()


def test_a_block_that_cannot_be_read_is_never_stepped_over(tmp_path: Path) -> None:
    """Wherever it lies in what is asked for: at its beginning, in the middle, at its end, as all of it."""
    records = [LogRecord(COMMIT, ts - 1, ts, ValuePointer(0, ts)) for ts in range(2, 1000)]
    index = Index.open(str(tmp_path / "kv"))
    index.write(records, START, 0, START)
    index.close()
    index = Index.open(str(tmp_path / "kv"))  # now they are in a table of several blocks
    index.write([], ValuePointer(0, 1), 1000, START)
    index.close()
    (table,) = (tmp_path / "kv").glob("*.ldb")
    whole = table.read_bytes()
    told = 0
    for at in range(0, len(whole), 100):
        table.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        shutil.copytree(tmp_path / "kv", tmp_path / "copy")
        try:
            index = Index.open(str(tmp_path / "copy"))
        except IndexDamaged:
            told += 1
            shutil.rmtree(tmp_path / "copy")
            continue
        for after, upto in itertools.product((0, 500, 960, 990), (300, 970, 2000)):
            try:
                found = [ts for ts, _ in filed(index, after, upto)]
            except IndexDamaged:
                told += 1
            else:
                assert found == [ts for ts in range(2, 1000) if after < ts <= upto]
            try:
                gone, _ = index.purge(after, upto, -1, records_max=3000)
            except IndexDamaged:
                told += 1
            else:
                assert gone == 0
        try:
            assert index.last_ts() == 999
        except IndexDamaged:
            told += 1
        index.close()
        shutil.rmtree(tmp_path / "copy")
    assert told > 300
