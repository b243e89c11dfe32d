"""Merger: order, floors, membership, duplicates, disorder; exhaustive over small inputs against an oracle."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from drainer.stream.pull.merged import Merged, Spilled
from drainer.stream.pull.merger import Merger, same_transaction
from tests.cases import case
from tidb_binlog import binlog
from tidb_binlog.errors import Corruption
from tidb_binlog.record import crc32c

BIG = 1 << 30


def entry(ts: int, size: int = 1) -> Merged:
    return Merged(ts, b"x" * size, None)


def entries(*stamps: int) -> list[Merged]:
    return [entry(ts) for ts in stamps]


def stamps(found: list[Merged]) -> list[int]:
    return [one.commit_ts for one in found]


def transaction(start_ts: int, commit_ts: int, value: bytes = b"v", key: bytes = b"k") -> Merged:
    payload = binlog.join(binlog.prewrite(start_ts, b"k", value), binlog.commit(start_ts, commit_ts, key))
    return Merged(commit_ts, payload, None)


# -- the three outcomes ------------------------------------------------------------------------------


def test_without_a_source_nothing_moves() -> None:
    merger = Merger(7)
    assert merger.pop(BIG).entries == []
    assert merger.watermark == 7
    assert merger.awaits() == {}


def test_one_source_is_passed_on_with_its_watermark() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.push("a", entries(3, 5), 9)
    popped = merger.pop(BIG)
    assert stamps(popped.entries) == [3, 5]
    assert popped.watermark == 9
    assert popped.released == {"a": 2}


def test_pending_source_holds_everything_above_its_floor() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    merger.push("a", entries(3, 5), 5)
    assert merger.pop(BIG).entries == []
    assert merger.awaits() == {"b": 3}
    merger.push("b", [], 4)
    popped = merger.pop(BIG)
    assert (stamps(popped.entries), popped.watermark) == ([3], 4)
    assert merger.awaits() == {"b": 5}
    merger.push("b", entries(6), 0)
    assert stamps(merger.pop(BIG).entries) == [5]
    assert merger.awaits() == {"a": 6}


def test_silence_is_not_an_end_and_an_end_releases_the_others() -> None:
    merger = Merger(0)
    merger.add_source("dead", 0)
    merger.add_source("b", 0)
    merger.push("dead", entries(4), 4)
    merger.push("b", entries(2, 6, 8), 8)
    for _ in range(5):
        merger.pop(BIG)
    assert merger.watermark == 4
    merger.end("dead")
    assert stamps(merger.pop(BIG).entries) == [6, 8]
    assert merger.source_ids == ("b",)


def test_ended_source_still_delivers_what_it_sent_in_order() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    merger.push("a", entries(2, 7), 7)
    merger.end("a")
    merger.push("b", entries(5), 5)
    assert stamps(merger.pop(BIG).entries) == [2, 5]
    merger.push("b", [], 9)
    popped = merger.pop(BIG)
    assert (stamps(popped.entries), popped.watermark) == ([7], 9)


def test_when_all_sources_end_the_rest_goes_out() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    merger.push("a", entries(2), 2)
    merger.push("b", entries(9), 9)
    merger.end("a")
    merger.end("b")
    popped = merger.pop(BIG)
    assert (stamps(popped.entries), popped.watermark) == ([2, 9], 9)
    assert merger.source_ids == ()


def test_joining_source_starts_at_the_position_and_is_waited_for() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.push("a", entries(1, 2), 10)
    merger.pop(BIG)
    assert merger.position == 10
    merger.add_source("new", merger.position)
    merger.push("a", entries(12), 20)
    assert merger.pop(BIG).entries == []
    assert merger.awaits() == {"new": 12}
    merger.push("new", entries(11), 12)
    assert stamps(merger.pop(BIG).entries) == [11, 12]


def test_awaits_asks_only_those_below_the_smallest_head() -> None:
    merger = Merger(0)
    for name in "abc":
        merger.add_source(name, 0)
    merger.push("a", entries(10), 10)
    merger.push("b", entries(8), 30)
    merger.push("c", [], 5)
    merger.pop(BIG)
    assert merger.awaits() == {"c": 8}


# -- limits -------------------------------------------------------------------------------------------


def test_pop_is_bounded_in_bytes_but_a_large_entry_passes() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.push("a", [entry(1, 10), entry(2, 10), entry(3, 500), entry(4, 10)], 9)
    seen = []
    for _ in range(4):
        popped = merger.pop(25)
        merger.check()
        seen.append((stamps(popped.entries), popped.watermark))
    assert seen == [([1, 2], 2), ([3], 3), ([4], 9), ([], 9)]


def test_bytes_are_released_once() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    merger.push("a", [entry(1, 100), entry(5, 50)], 5)
    merger.push("b", [entry(2, 10)], 3)
    first = merger.pop(20)
    assert (stamps(first.entries), first.released) == ([1], {"a": 100, "b": 10})
    second = merger.pop(20)
    assert (stamps(second.entries), second.released) == ([2], {})
    merger.push("b", [], 9)
    assert merger.pop(20).released == {"a": 50}
    assert merger.pop(20).released == {}
    assert merger.newest_waiting == 0


# -- disorder and duplicates -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[3, 2], [3, 3], [1, 5, 4, 6]])
def test_disorder_inside_a_push_stops_and_names_both_positions(bad: list[int]) -> None:
    merger = Merger(0)
    merger.add_source("pump-7", 0)
    with pytest.raises(Corruption, match="pump-7") as caught:
        merger.push("pump-7", entries(*bad), 9)
    before, after = next((a, b) for a, b in itertools.pairwise(bad) if b <= a)
    assert f"commit_ts {after} after commit_ts {before}" in str(caught.value)
    assert caught.value.hint


def test_entry_at_or_below_the_last_one_or_the_promise_stops() -> None:
    for last, watermark, late in ((5, 5, 5), (5, 5, 4), (5, 9, 9), (5, 9, 7)):
        merger = Merger(0)
        merger.add_source("p", 0)
        merger.push("p", entries(last), watermark)
        with pytest.raises(Corruption, match=f"commit_ts {late} after .* {watermark} .*commit_ts {last}"):
            merger.push("p", entries(late), 0)


def test_entry_at_the_starting_position_stops() -> None:
    merger = Merger(5)
    merger.add_source("p", 5)
    with pytest.raises(Corruption):
        merger.push("p", entries(5), 5)


def test_a_lower_watermark_takes_no_promise_back() -> None:
    merger = Merger(0)
    merger.add_source("p", 0)
    merger.push("p", [], 9)
    merger.push("p", [], 4)
    assert merger.floor("p") == 9


def test_one_transaction_from_two_pumps_is_emitted_once() -> None:
    merger = Merger(0)
    for name in "abc":
        merger.add_source(name, 0)
    ours = transaction(3, 7)
    asked = transaction(3, 7, key=b"")  # a pump that asked the store writes the commit without a key
    assert ours.payload != asked.payload
    merger.push("a", [ours, transaction(8, 9)], 9)
    merger.push("b", [transaction(1, 2), asked], 9)
    merger.push("c", [asked], 9)
    assert stamps(merger.pop(BIG).entries) == [2, 7, 9]


@pytest.mark.parametrize("other", [transaction(4, 7), transaction(3, 7, value=b"w")])
def test_two_transactions_under_one_commit_ts_stop_and_name_both_pumps(other: Merged) -> None:
    merger = Merger(0)
    merger.add_source("left", 0)
    merger.add_source("right", 0)
    merger.push("left", [transaction(3, 7)], 7)
    merger.push("right", [other], 7)
    with pytest.raises(Corruption, match=r"left .* right .*commit_ts 7"):
        merger.pop(BIG)


def test_same_transaction_looks_at_start_and_contents() -> None:
    assert same_transaction(transaction(1, 2), transaction(1, 2, key=b""))
    assert not same_transaction(transaction(1, 3), transaction(2, 3))


# -- exhaustive ----------------------------------------------------------------------------------------


class Push(NamedTuple):
    source: int
    stamps: tuple[int, ...]
    watermark: int


class Oracle:
    """The same by definition: all lists kept, everything computed from scratch."""

    def __init__(self, sources: int) -> None:
        self.got: list[list[int]] = [[] for _ in range(sources)]
        self.floors = [0] * sources
        self.ended = [False] * sources

    def push(self, event: Push) -> None:
        self.got[event.source] += event.stamps
        top = max(event.stamps, default=0)
        self.floors[event.source] = max(self.floors[event.source], event.watermark, top)

    def emitted(self) -> list[int]:
        live = [floor for floor, ended in zip(self.floors, self.ended, strict=True) if not ended]
        limit = min(live) if live else BIG
        return sorted({ts for got in self.got for ts in got if ts <= limit})


def source_events(source: int, mine: tuple[int, ...], end: int) -> list[Push]:
    """One push an entry, then a bare watermark."""
    return [Push(source, (ts,), ts) for ts in mine] + [Push(source, (), end)]


def interleavings(queues: list[list[Push]]) -> Iterator[list[Push]]:
    if not any(queues):
        yield []
    for number, queue in enumerate(queues):
        if queue:
            rest = [*queues[:number], queue[1:], *queues[number + 1 :]]
            for tail in interleavings(rest):
                yield [queue[0], *tail]


@pytest.mark.parametrize(("sources", "last"), [(1, 5), (2, 5), (3, 4)])
def test_every_small_input_in_every_arrival_order(sources: int, last: int) -> None:
    """Every assignment of commit_ts to sources, every interleaving, a pop after every event."""
    runs = 0
    for owners in itertools.product(range(sources), repeat=last):
        mine = [tuple(ts + 1 for ts in range(last) if owners[ts] == source) for source in range(sources)]
        queues = [source_events(source, mine[source], last + 1) for source in range(sources)]
        for events in interleavings(queues):
            runs += 1
            merger, oracle, seen = Merger(0), Oracle(sources), []
            for source in range(sources):
                merger.add_source(str(source), 0)
            for event in events:
                merger.push(str(event.source), entries(*event.stamps), event.watermark)
                oracle.push(event)
                seen += stamps(merger.pop(BIG).entries)
                assert seen == oracle.emitted()
            merger.check()
            assert seen == list(range(1, last + 1))
            assert merger.watermark == last + 1
    assert runs > (0 if sources == 1 else 500)


def test_every_pending_pattern() -> None:
    """Three sources; every pattern of floors, heads and ends: exactly what the floors allow goes out."""
    heads = (None, 2, 4)
    floors = (1, 3, 5)
    for pattern in itertools.product(itertools.product(heads, floors, (False, True)), repeat=3):
        merger, oracle = Merger(0), Oracle(3)
        for number, (head, floor, ended) in enumerate(pattern):
            name = str(number)
            merger.add_source(name, 0)
            ts = None if head is None else head * 10 + number
            event = Push(number, () if ts is None else (ts,), floor * 10 + 5)
            merger.push(name, entries(*event.stamps), event.watermark)
            oracle.push(event)
            if ended:
                merger.end(name)
                oracle.ended[number] = True
        waiting = sorted(ts for got in oracle.got for ts in got)
        assert stamps(merger.pop(BIG).entries) == oracle.emitted()
        held = [ts for ts in waiting if ts not in oracle.emitted()]
        expected = {
            str(number): held[0]
            for number in range(3)
            if held and not oracle.ended[number] and oracle.floors[number] < held[0]
        }
        assert merger.awaits() == expected
        assert bool(expected) == bool(held)
        merger.check()


def test_random_pushes_joins_ends_and_limits() -> None:
    """Whatever arrives when: the output is the whole input in order, and nothing is emitted too early."""
    for seed in range(60):
        with case(seed):
            rng = random.Random(seed)
            merger = Merger(0)
            truth = sorted(rng.sample(range(1, 2000), 200))
            owners = {ts: rng.choice("abc") for ts in truth}
            twins = {ts: rng.choice("abc") for ts in truth if rng.random() < 0.1}
            queues = {
                name: [
                    transaction(ts - 1, ts, key=b"k" if owners[ts] == name else b"")
                    for ts in truth
                    if owners[ts] == name or twins.get(ts) == name
                ]
                for name in "abc"
            }
            for name in "abc":
                merger.add_source(name, 0)
            seen: list[int] = []
            while merger.source_ids:
                live = [name for name in merger.source_ids if merger.floor(name) is not None]
                if live and rng.random() < 0.8:
                    name = rng.choice(live)
                    count = rng.choice((0, 1, 1, 2, 7))
                    batch, queues[name] = queues[name][:count], queues[name][count:]
                    next_ts = queues[name][0].commit_ts if queues[name] else 2000
                    low = max(merger.floor(name) or 0, batch[-1].commit_ts if batch else 0)
                    merger.push(name, batch, rng.choice((0, rng.randint(low, max(low, next_ts - 1)))))
                    if not queues[name] and rng.random() < 0.3:
                        merger.end(name)
                popped = merger.pop(rng.choice((1, 60, 500, BIG)))
                merger.check()
                assert popped.watermark == merger.watermark
                assert all(ts <= popped.watermark for ts in stamps(popped.entries))
                seen += stamps(popped.entries)
            while True:
                rest = stamps(merger.pop(40).entries)
                if not rest:
                    break
                seen += rest
            assert seen == truth


def test_cost_of_a_merged_entry_is_small() -> None:
    """Built-ins do the work: 40,000 entries from two sources need no per-entry Python frames."""
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    merger.pop(BIG)  # the first one makes a class
    merger.push("a", entries(*range(1, 40_000, 2)), 40_000)
    merger.push("b", entries(*range(2, 40_001, 2)), 40_000)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        popped = merger.pop(BIG)
    finally:
        sys.setprofile(None)
    assert stamps(popped.entries) == list(range(1, 40_001))
    assert calls < 50


def test_only_what_is_more_than_was_known_is_news() -> None:
    merger = Merger(0, ceiling=5)
    merger.add_source("a", 0)
    merger.add_source("b", 0)
    news = [
        merger.push("a", *pushed) for pushed in ((entries(3), 0), ([], 3), ([], 4), ([], 4), (entries(7), 9))
    ]
    assert news == [True, False, True, False, True]
    assert (merger.newest_waiting, merger.is_held_by_ceiling) == (7, False)
    merger.push("b", entries(5), 5)
    assert (merger.newest_waiting, merger.is_held_by_ceiling) == (7, False)
    merger.push("b", [], 6)
    assert merger.is_held_by_ceiling
    assert stamps(merger.pop(BIG).entries) == [3, 5]


def test_what_is_left_of_a_merge_is_counted_from_where_it_stands() -> None:
    merger = Merger(0)
    merger.add_source("a", 0)
    merger.push("a", [entry(1, 10), entry(2, 10)], 2)
    assert [stamps(merger.pop(size).entries) for size in (19, 19)] == [[1], [2]]
    merger.push("a", [entry(ts, 10) for ts in range(3, 8)], 9)
    assert [stamps(merger.pop(size).entries) for size in (10, 20, 19, 10)] == [[3], [4, 5], [6], [7]]


def test_a_copy_on_disk_is_the_same_transaction_if_its_contents_are() -> None:
    whole = transaction(3, 5)
    rest = whole.payload[binlog.contents_offset(whole.payload) :]
    size, offset = len(whole.payload), len(whole.payload) - len(rest)

    def on_disk(start_ts: int, checksum: int) -> Merged:
        return Merged(5, b"", None, Spilled(5, start_ts, size, offset, checksum, lambda at, count: b""))

    copy, other = on_disk(3, crc32c(rest)), on_disk(3, crc32c(rest) + 1)
    assert same_transaction(copy, whole)
    assert same_transaction(whole, copy)
    assert same_transaction(copy, on_disk(3, crc32c(rest)))
    for left, right in ((copy, other), (whole, other), (other, whole), (copy, on_disk(4, crc32c(rest)))):
        assert not same_transaction(left, right)
