"""Offsets of a stream over an archive that is written, rotated and thinned out meanwhile: no JVM needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from drainer.formats.binlog_file import Synced
from drainer.spark.source.stream_offsets import (
    START,
    Admission,
    Extent,
    Lost,
    Offset,
    SegmentRange,
    Step,
    Sums,
    advance,
    between,
    cut,
    extents,
    gap,
    is_behind,
    places_of,
    settle,
)
from tidb_binlog.errors import ConfigError, Corruption


def nothing(extent: Extent) -> Sums | None:
    return None


def test_an_offset_survives_its_checkpoint() -> None:
    offset = Offset(4, 77, 1 << 60)
    assert Offset.of(offset.document()) == offset
    with pytest.raises(ConfigError, match="checkpoint directory of its own"):
        Offset.of({"topic": {"0": 5}})


def test_of_the_newest_segment_only_what_was_synced_counts() -> None:
    listed = [(3, "a", 100), (4, "b", 90)]
    assert extents(listed, Synced(4, 60)) == [Extent(3, "a", 100, True), Extent(4, "b", 60, False)]
    assert extents(listed, Synced(4, 95)) == [Extent(3, "a", 100, True), Extent(4, "b", 90, False)]
    # A Go drainer keeps no mark, and leaves ours as it is: whole records count.
    for mark in (None, Synced(3, 80)):
        assert extents(listed, mark) == [Extent(3, "a", 100, True), Extent(4, "b", 90, False)]
    assert extents([], None) == []


def test_a_listing_that_is_older_than_the_mark_is_made_again() -> None:
    """Else the segment that was newest would be taken for one that ends where it ended when it was listed."""
    assert extents([(3, "a", 100)], Synced(4, 0)) is None
    assert extents([], Synced(0, 10)) is None


def test_removed_segments_are_told() -> None:
    found = [Extent(5, "f", 10, True), Extent(6, "g", 10, False)]
    assert settle(START, found) == (Offset(5, 0, 0), None)
    assert settle(Offset(5, 4, 9), found) == (Offset(5, 4, 9), None)
    at, lost = settle(Offset(3, 4, 9), found)
    assert (at, lost) == (Offset(5, 0, 9), Lost(3, 5))
    assert lost is not None
    assert "segment 3 to 4 is gone" in str(lost.error("/a"))
    assert "failOnDataLoss=false" in lost.error("/a").hint
    assert settle(Offset(3, 4, 9), []) == (Offset(3, 4, 9), None)


def test_a_missing_segment_is_found_where_it_matters() -> None:
    found = [Extent(1, "b", 1, True), Extent(3, "d", 1, True), Extent(4, "e", 1, False)]
    assert gap(found, 0) == (1, 3)
    assert gap(found, 3) is None
    assert gap([*found, Extent(4, "e2", 1, False)], 3) == (4, 4)


def test_an_archive_that_ends_before_the_offset_is_seen() -> None:
    found = [Extent(1, "b", 50, False)]
    assert not is_behind(Offset(1, 50, 3), found)
    assert is_behind(Offset(1, 51, 3), found)
    assert is_behind(Offset(2, 0, 3), found)
    assert is_behind(Offset(2, 0, 3), [])
    assert not is_behind(START, [])


def test_a_batch_has_one_transaction_at_least_and_a_ddl_as_a_whole() -> None:
    admission = Admission(max_rows=10)
    assert admission.takes(Step(1, 0, 100, 50))
    assert not admission.takes(Step(2, 100, 110, 1))
    admission = Admission(max_bytes=10)
    assert [admission.takes(Step(7, at, at + 9)) for at in (0, 9, 18)] == [True, True, True]
    assert not admission.takes(Step(8, 27, 28))
    assert not Admission(stop_ts=5).takes(Step(6, 0, 1))
    assert Admission(stop_ts=5).takes(Step(5, 0, 1))


def test_a_closed_segment_is_taken_by_its_sums_if_all_of_it_has_room() -> None:
    found = [Extent(0, "a", 100, True), Extent(1, "b", 100, True), Extent(2, "c", 30, False)]
    walked = []

    def steps(extent: Extent, position: int) -> Iterator[Step]:
        for at in range(position, extent.size, 10):
            walked.append((extent.segment, at))
            yield Step(extent.segment * 100 + at, at, at + 10, 1)

    def sums(extent: Extent) -> Sums | None:
        return Sums(10, extent.segment * 100 + 90)

    assert advance(Offset(0, 0, 0), found, Admission(max_rows=15), steps, sums) == Offset(1, 50, 140)
    assert {index for index, _ in walked} == {1}
    assert advance(Offset(0, 0, 0), found, Admission(), steps, sums) == Offset(2, 30, 220)
    # What was read in part is walked: its sums are of all of it.
    assert advance(Offset(0, 50, 40), found, Admission(max_rows=6), steps, sums) == Offset(1, 10, 100)


def test_pieces_of_a_batch_and_what_must_still_be_there() -> None:
    found = [Extent(0, "a", 100, True), Extent(1, "b", 100, True), Extent(2, "c", 30, False)]
    assert between(Offset(0, 40, 0), Offset(2, 20, 0), found) == [
        SegmentRange(0, "a", 40, 100),
        SegmentRange(1, "b", 0, 100),
        SegmentRange(2, "c", 0, 20),
    ]
    assert between(Offset(0, 40, 0), Offset(1, 0, 0), found) == [SegmentRange(0, "a", 40, 100)]
    assert between(Offset(1, 7, 0), Offset(1, 7, 0), found) == []
    with pytest.raises(Corruption, match="c has 30 bytes, but 31"):
        between(Offset(2, 10, 0), Offset(2, 31, 0), found)


def test_a_piece_is_cut_between_records() -> None:
    steps = [Step(at, at * 10, at * 10 + 10) for at in range(2, 9)]
    found = cut(SegmentRange(0, "a", 20, 90), steps, 25)
    assert [(one.begin, one.end) for one in found] == [(20, 50), (50, 80), (80, 90)]
    assert cut(SegmentRange(0, "a", 20, 90), steps, 1000) == [SegmentRange(0, "a", 20, 90)]
    assert cut(SegmentRange(0, "a", 20, 90), [], 1000) == []


def test_an_index_cuts_without_reading() -> None:
    places = [(1, 0), (5, 40), (9, 80)]
    assert places_of(places, SegmentRange(0, "a", 10, 90)) == [
        Step(5, 10, 40),
        Step(5, 40, 80),
        Step(9, 80, 90),
    ]
    assert places_of(places, SegmentRange(0, "a", 40, 80)) == []


@dataclass
class World:
    """An archive as its writer has it: segments of records (commit_ts, size), and what was synced."""

    random: random.Random
    segments: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {0: []})
    synced: Synced = field(default_factory=lambda: Synced(0, 0))
    log: list[int] = field(default_factory=lambda: [0])

    def write(self) -> None:
        newest = max(self.segments)
        for _ in range(self.random.randrange(1, 6)):
            ts = self.log[-1] + self.random.randrange(1, 3)
            records = [(ts, self.random.randrange(17, 60))] * self.random.choice((1, 1, 3))
            self.segments[newest] += records
            self.log += [ts] * len(records)

    def sync(self) -> None:
        newest = max(self.segments)
        self.synced = Synced(newest, sum(size for _, size in self.segments[newest]))

    def rotate(self) -> None:
        self.sync()
        newest = max(self.segments) + 1
        self.segments[newest] = []
        self.synced = Synced(newest, 0)

    def remove(self, before: int) -> None:
        for index in [index for index in self.segments if index < before]:
            del self.segments[index]

    def found(self) -> list[Extent]:
        listed = [
            (index, f"s{index}", sum(size for _, size in self.segments[index]))
            for index in sorted(self.segments)
        ]
        known = extents(listed, self.synced)
        assert known is not None
        return known

    def steps(self, extent: Extent, position: int) -> Iterator[Step]:
        at = 0
        for ts, size in self.segments[extent.segment]:
            if at >= position and at + size <= extent.size:
                yield Step(ts, at, at + size, 1)
            at += size


@pytest.mark.parametrize("seed", range(60))
def test_everything_is_read_once_and_in_order(seed: int) -> None:
    """Whatever the writer does between two batches, and retention up to what was read."""
    rng = random.Random(seed)
    world, at = World(rng), START
    taken = [0]
    for _ in range(150):
        what = rng.choice(("write", "write", "sync", "rotate", "remove", "batch", "batch"))
        if what == "remove":
            world.remove(max(at.segment, 0))
        elif what != "batch":
            getattr(world, what)()
        else:
            admission = Admission(max_rows=rng.choice((0, 1, 5)), max_bytes=rng.choice((0, 0, 100)))
            found = world.found()
            start, lost = settle(at, found)
            assert lost is None
            assert not is_behind(start, found)
            end = advance(start, found, admission, world.steps, nothing)
            assert end >= start
            for piece in between(start, end, found):
                steps = world.steps(next(one for one in found if one.segment == piece.segment), piece.begin)
                steps = (step for step in steps if step.end <= piece.end)
                size = rng.choice((20, 10_000))
                for part in cut(piece, steps, size):
                    taken += [
                        step.commit_ts
                        for step in world.steps(Extent(part.segment, "", part.end, True), part.begin)
                    ]
            assert end.commit_ts == taken[-1]
            at = end
    world.sync()
    found = world.found()
    start, _ = settle(at, found)
    end = advance(start, found, Admission(), world.steps, nothing)
    for piece in between(start, end, found):
        taken += [
            step.commit_ts for step in world.steps(Extent(piece.segment, "", piece.end, True), piece.begin)
        ]
    assert taken == world.log
