"""The sorter against a naive oracle, over all small inputs, and at scale."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pump.index.sorter import Advanced, GivenUp, Late, Prewrites, Sorter
from pump.log.record import START, LogRecord, ValuePointer
from tidb_binlog.binlog import COMMIT, PREWRITE, ROLLBACK, SETTLED_ROLLBACK


@dataclass(frozen=True)
class Mark:
    ts: int


Event = tuple[int, int, int] | Mark


def records(*events: tuple[int, int, int]) -> list[LogRecord]:
    return [
        LogRecord(tp, start_ts, commit_ts, ValuePointer(0, at * 10))
        for at, (tp, start_ts, commit_ts) in enumerate(events)
    ]


def prewrite(start_ts: int) -> tuple[int, int, int]:
    return (PREWRITE, start_ts, 0)


def commit(start_ts: int, commit_ts: int) -> tuple[int, int, int]:
    return (COMMIT, start_ts, commit_ts)


def rollback(start_ts: int) -> tuple[int, int, int]:
    return (ROLLBACK, start_ts, 0)


def fake(ts: int) -> tuple[int, int, int]:
    return (ROLLBACK, ts, ts)


class NaiveSorter:
    """Looks at the whole history every time."""

    def __init__(self) -> None:
        self.history: list[Event] = []

    def arrived(self) -> tuple[int, ValuePointer]:
        """Largest drawn timestamp, and the last record, with no open prewrite before its place."""
        opened, best, decided = self.open(), 0, START
        for at, event in enumerate(self.history):
            if isinstance(event, Mark):
                best = max(best, event.ts)
            elif event[0] == PREWRITE and event[1] in opened:
                break
            else:
                decided = ValuePointer(0, at)
        return best, decided

    def open(self) -> list[int]:
        ended = {event[1] for event in self.history if not isinstance(event, Mark) and event[0] != PREWRITE}
        found = [event[1] for event in self.history if not isinstance(event, Mark) and event[0] == PREWRITE]
        return [start_ts for start_ts in dict.fromkeys(found) if start_ts not in ended]


def with_marks(events: Sequence[Event]) -> list[Event]:
    """A timestamp is drawn when an event was acknowledged, before the next event draws its own."""
    return [each for at, event in enumerate(events, 1) for each in (event, Mark(at * 100 + 50))]


def replay(events: Sequence[Event], *, compact_always: bool = False) -> list[int]:
    """Feed events one by one; the watermark after each equals the oracle's."""
    sorter, naive, watermarks = Sorter(), NaiveSorter(), []
    for at, event in enumerate(events):
        naive.history.append(event)
        before = sorter.watermark
        if isinstance(event, Mark):
            effects = sorter.mark(event.ts)
        else:
            effects = sorter.feed([LogRecord(*event, ValuePointer(0, at))], float(at))
        if compact_always:
            sorter._settled_inside += 2000
            sorter._compact()
        sorter.check()
        assert (sorter.watermark, sorter.decided) == naive.arrived(), events[: at + 1]
        assert [entry.start_ts for entry in sorter.open_prewrites()] == naive.open()
        advanced = [effect for effect in effects if isinstance(effect, Advanced)]
        assert [effect.watermark for effect in advanced] == (
            [sorter.watermark] if sorter.watermark > before else []
        )
        watermarks.append(sorter.watermark)
    assert watermarks == sorted(watermarks)
    return watermarks


def histories(transactions: int) -> Iterator[list[Event]]:
    """Every interleaving of a few transactions as an upstream can make them.

    A clock ticks at every event, so a commit_ts is drawn where the commit stands or anywhere between its
    prewrite and there; here: right behind its prewrite's acknowledgement or right before the commit.
    """
    slots = [number for number in range(transactions) for _ in range(2)]
    for order in set(itertools.permutations(slots)):
        for kinds in itertools.product(("late", "early", "rolled back", "orphan"), repeat=transactions):
            events: list[Event] = []
            seen: dict[int, int] = {}
            for clock, number in enumerate(order, 1):
                if number not in seen:
                    seen[number] = clock * 100
                    events.append(prewrite(1 + number))
                elif kinds[number] == "rolled back":
                    events.append(rollback(1 + number))
                elif kinds[number] != "orphan":
                    drawn = clock * 100 if kinds[number] == "late" else seen[number] + 1 + number
                    events.append(commit(1 + number, drawn))
            yield events


def test_every_interleaving_of_three_transactions_agrees_with_the_oracle() -> None:
    for events in histories(3):
        replay(with_marks(events))


def test_every_interleaving_of_four_transactions_agrees_with_the_oracle() -> None:
    rng = random.Random(4)
    orders = set(itertools.permutations([number for number in range(1, 5) for _ in range(2)]))
    assert len(orders) == 2520
    for order in sorted(orders):
        events: list[Event] = []
        for clock, number in enumerate(order, 1):
            if prewrite(number) not in events:
                events.append(prewrite(number))
            else:
                events.append(rng.choice([commit(number, clock * 100), rollback(number), fake(clock * 100)]))
        replay(with_marks(events))


def test_a_commit_is_never_at_or_below_a_published_watermark() -> None:
    # The invariant that readers rely on, for every order in which an upstream can produce the records,
    # with a drawn mark after each step.
    for events in histories(3):
        sorter = Sorter()
        told = 0
        for at, event in enumerate(events):
            assert not isinstance(event, Mark)
            if event[2]:
                assert event[2] > told, events
            effects = sorter.feed([LogRecord(*event, ValuePointer(0, at))], 0.0)
            assert not any(isinstance(effect, Late) for effect in effects)
            # Drawn after this event was acknowledged, before the next event draws.
            sorter.mark(100 * (at + 1) + 50)
            sorter.check()
            told = sorter.watermark


def test_four_transactions_in_random_interleavings_with_marks_and_fakes() -> None:
    rng = random.Random(7)
    for _ in range(1000):
        order = [number for number in range(1, 5) for _ in range(2)]
        rng.shuffle(order)
        events: list[Event] = []
        seen: set[int] = set()
        for clock, number in enumerate(order, 1):
            if number not in seen:
                seen.add(number)
                events.append(prewrite(number))
            else:
                events.append(rng.choice([commit(number, clock * 100), rollback(number)]))
            if rng.random() < 0.5:
                events.append(rng.choice([Mark(clock * 100 + 50), fake(clock * 100 + 50)]))
        replay(events, compact_always=rng.random() < 0.5)


def test_arbitrary_orders_with_duplicates_and_ends_before_prewrites() -> None:
    # Orders that no upstream makes must not break the rules either: all sequences over a small alphabet.
    alphabet: list[Event] = [prewrite(1), commit(1, 10), prewrite(2), commit(2, 9), rollback(2), Mark(11)]
    for length in range(1, 6):
        for events in itertools.product(alphabet, repeat=length):
            replay(events)


def test_prewrite_on_two_pumps_waits_for_the_resolver_here_and_commits_there() -> None:
    here, there = Sorter(), Sorter()
    there.feed(records(prewrite(1), commit(1, 5)), 0.0)
    assert there.mark(6) == [Advanced(6, ValuePointer(0, 10))]
    here.feed(records(prewrite(1), prewrite(2), commit(2, 7)), 0.0)
    assert here.mark(8) == []
    assert here.feed([LogRecord(COMMIT, 1, 5, ValuePointer(0, 30))], 1.0) == [
        Advanced(8, ValuePointer(0, 30))
    ]


def test_prewrite_behind_its_commit_is_settled_at_once() -> None:
    sorter = Sorter()
    assert sorter.feed(records(commit(1, 5), prewrite(1)), 0.0) == []
    assert sorter.mark(5) == [Advanced(5, ValuePointer(0, 10))]
    assert sorter.open_count == 0
    # Even behind an open one, and however often it is repeated.
    sorter.feed([LogRecord(PREWRITE, 7, 0, ValuePointer(0, 20))], 0.0)
    for at in (30, 40):
        sorter.feed([LogRecord(*commit(3, 9), ValuePointer(0, at)), LogRecord(PREWRITE, 3, 0, START)], 0.0)
        sorter.mark(10)
    sorter.check()
    assert [entry.start_ts for entry in sorter.open_prewrites()] == [7]
    assert sorter.watermark == 5


def test_repeated_prewrite_keeps_its_first_place_and_age() -> None:
    sorter = Sorter()
    sorter.feed(records(prewrite(1)), 5.0)
    sorter.feed([LogRecord(PREWRITE, 1, 0, ValuePointer(0, 10))], 9.0)
    (entry,) = sorter.open_prewrites()
    assert (entry.place, entry.since_s) == (ValuePointer(0, 0), 5.0)
    assert sorter.mark(6) == []
    assert sorter.feed([LogRecord(*commit(1, 5), ValuePointer(0, 20))], 9.0) == [
        Advanced(6, ValuePointer(0, 20))
    ]


def test_prewrite_long_after_its_forgotten_end_waits_for_the_upstream() -> None:
    sorter = Sorter(ended_max=2)
    ends = [commit(start_ts, start_ts + 1) for start_ts in range(10, 100, 10)]
    sorter.feed(records(prewrite(1), rollback(1), *ends), 0.0)
    # The last two are remembered whatever the generation, the first is not.
    for start_ts in (80, 90):
        sorter.feed([LogRecord(PREWRITE, start_ts, 0, ValuePointer(1, start_ts))], 0.0)
        assert sorter.open_count == 0
    sorter.feed([LogRecord(PREWRITE, 1, 0, ValuePointer(2, 0))], 0.0)
    assert sorter.is_open(1)
    sorter.check()
    # The upstream's answer, the second end of the same transaction, settles it; nothing is published twice.
    assert sorter.feed([LogRecord(ROLLBACK, 1, 0, ValuePointer(2, 10))], 0.0) == []
    assert sorter.decided == ValuePointer(2, 10)


def test_forgetting_old_ends_costs_nothing_for_each_record() -> None:
    def seconds(sorter: Sorter, first: int) -> float:
        batch = [
            LogRecord(tp, start_ts, (start_ts + 1) * tp, ValuePointer(0, start_ts))
            for start_ts in range(first, first + 40_000, 2)
            for tp in (PREWRITE, COMMIT)
        ]
        began_s = time.thread_time()
        sorter.feed(batch, 0.0)
        return time.thread_time() - began_s

    # CPU, the least of several: with a search for the oldest end it is twenty times as much.
    fresh = min(seconds(Sorter(), 2) for _ in range(3))
    old = Sorter()
    later = [seconds(old, 2 + 40_000 * turn) for turn in range(6)]
    assert min(later[4:]) < 5 * fresh


def test_mark_waits_for_prewrites_before_it_only() -> None:
    sorter = Sorter()
    sorter.feed([LogRecord(PREWRITE, 1, 0, ValuePointer(0, 0))], 0.0)
    assert sorter.mark(50) == []
    sorter.feed([LogRecord(PREWRITE, 60, 0, ValuePointer(0, 10))], 0.0)
    assert sorter.feed([LogRecord(COMMIT, 1, 20, ValuePointer(0, 20))], 0.0) == [
        Advanced(50, ValuePointer(0, 0))
    ]


def test_decided_place_is_before_the_first_open_prewrite() -> None:
    sorter = Sorter()
    sorter.feed(records(prewrite(1), commit(1, 2), prewrite(3), prewrite(4), commit(4, 5)), 0.0)
    assert sorter.decided == ValuePointer(0, 10)
    sorter.feed([LogRecord(ROLLBACK, 3, 0, ValuePointer(0, 50))], 0.0)
    assert sorter.decided == ValuePointer(0, 50)


def test_late_commit_of_an_unknown_transaction_is_reported_once() -> None:
    sorter = Sorter(watermark=100)
    late = LogRecord(COMMIT, 1, 50, START)
    assert sorter.feed([late], 0.0) == [Late(1, 50, was_open=False)]
    assert sorter.feed([late], 0.0) == []
    assert sorter.watermark == 100


def test_a_commit_below_the_watermark_is_reported_though_its_prewrite_is_open() -> None:
    """Whatever raised the watermark above it: an oracle that went back stood in front of the prewrite."""
    sorter = Sorter()
    sorter.mark(100)
    sorter.feed([LogRecord(PREWRITE, 40, 0, ValuePointer(0, 10))], 0.0)
    late = LogRecord(COMMIT, 40, 50, ValuePointer(0, 20))
    assert sorter.feed([late], 0.0) == [Late(40, 50, was_open=True)]
    assert sorter.feed([late], 0.0) == [], "repeated"


def test_a_commit_of_what_was_settled_as_rolled_back_is_reported() -> None:
    """The store was wrong, or an operator: readers that have passed it lost it."""
    for ended_max in (1 << 16, 2):
        sorter = Sorter(clients_know=False, ended_max=ended_max)
        ends = [
            (PREWRITE, 40, 0),
            (SETTLED_ROLLBACK, 40, 0),
            (SETTLED_ROLLBACK, 40, 0),
            prewrite(41),
            commit(41, 42),
        ]
        assert sorter.feed(records(*ends), 0.0) == []
        sorter.mark(100)
        late = LogRecord(COMMIT, 40, 50, ValuePointer(0, 60))
        assert sorter.feed([late], 0.0) == [Late(40, 50, was_open=True)]
        assert sorter.feed([late, LogRecord(COMMIT, 41, 42, ValuePointer(0, 70))], 0.0) == [], "repeated"
        sorter.check()


def test_open_prewrites_tell_since_when() -> None:
    sorter = Sorter()
    sorter.feed([LogRecord(PREWRITE, 1, 0, START)], 5.0)
    sorter.feed([LogRecord(PREWRITE, 2, 0, ValuePointer(0, 1))], 6.0)
    assert [(entry.start_ts, entry.since_s) for entry in sorter.open_prewrites()] == [(1, 5.0), (2, 6.0)]
    assert sorter.open_count == 2
    assert sorter.is_open(1)
    assert sorter.open_prewrite(2) == [*sorter.open_prewrites()][1]
    assert sorter.open_prewrite(3) is None
    assert [entry.start_ts for entry in sorter.open_after(START)] == [2]


def test_empty_records_of_old_pumps_are_passed_over() -> None:
    sorter = Sorter()
    sorter.feed([LogRecord(PREWRITE, 0, 0, START)], 0.0)
    assert sorter.open_count == 0


def test_memory_grows_with_open_prewrites_only() -> None:
    sorter = Sorter(ended_max=100)
    sorter.feed([LogRecord(PREWRITE, 1, 0, START)], 0.0)
    for number in range(2, 50_000, 2):
        place = ValuePointer(0, number)
        sorter.feed(
            [LogRecord(PREWRITE, number, 0, place), LogRecord(COMMIT, number, number + 1, place)], 0.0
        )
        sorter.mark(number + 1)
    sorter.check()
    assert len(sorter._queue) < 3000
    assert sorter.watermark == 0
    sorter.feed([LogRecord(ROLLBACK, 1, 0, ValuePointer(1, 0))], 0.0)
    assert sorter.watermark == 49_999
    assert len(sorter._queue) == 0


def test_a_client_that_may_be_wrong_settles_nothing_by_its_rollback() -> None:
    sorter = Sorter(clients_know=False)
    prewritten, rolled_back, unknown, committed = records(prewrite(1), rollback(1), rollback(2), commit(1, 7))
    assert sorter.feed([unknown], 0.0) == []
    assert (sorter.watermark, sorter.decided) == (0, unknown.place)
    assert sorter.feed([prewritten, rolled_back], 0.0) == [GivenUp(1)]
    assert sorter.is_open(1)
    assert sorter.mark(5) == []
    assert sorter.feed([committed], 0.0) == [Advanced(5, committed.place)]
    assert sorter.feed([rolled_back], 0.0) == [], "it has ended"


def test_no_writer_raises_the_watermark() -> None:
    """Whoever writes a commit, or a time mark, may lie about its timestamp."""
    sorter = Sorter()
    assert sorter.feed(records(prewrite(1), commit(1, 1000), fake(2000)), 0.0) == []
    assert sorter.watermark == 0


def test_a_commit_at_the_watermark_is_late() -> None:
    for commit_ts, late in ((1, True), (5, True), (6, False)):
        sorter = Sorter(5)
        found = sorter.feed(records(commit(3, commit_ts)), 0.0)
        assert (Late(3, commit_ts, was_open=False) in found) is late


def test_prewrites_are_full_when_as_many_are_open_as_may() -> None:
    assert [Prewrites(count, 3).are_full for count in (2, 3, 4)] == [False, True, True]
