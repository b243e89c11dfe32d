"""Resolve schedule: when the upstream is asked about an open prewrite."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf

import pytest

from pump.index.sorter import OPEN_MAX, OpenPrewrite, Sorter
from pump.log.record import LogRecord, ValuePointer
from pump.watermark.resolve_schedule import _STEPS_MAX as STEPS_MAX
from pump.watermark.resolve_schedule import Heard, ResolveSchedule, TxnAnswer
from tidb_binlog.binlog import PREWRITE


def open_at(*since: float) -> list[OpenPrewrite]:
    places = [ValuePointer(0, number) for number in range(len(since))]
    return [
        OpenPrewrite(number, place, since_s, place)
        for number, (place, since_s) in enumerate(zip(places, since, strict=True), 1)
    ]


def behind(prewrites: Sequence[OpenPrewrite]) -> Callable[[ValuePointer], Iterator[OpenPrewrite]]:
    return lambda place: (prewrite for prewrite in prewrites if prewrite.place > place)


def settle(prewrites: Sequence[OpenPrewrite], *start_tss: int) -> None:
    for prewrite in prewrites:
        prewrite.settled |= prewrite.start_ts in start_tss


class TestResolveSchedule:
    def ask(
        self, schedule: ResolveSchedule, prewrites: Sequence[OpenPrewrite], now_s: float, waits: bool
    ) -> list[int]:
        return [entry.start_ts for entry in schedule.due(behind(prewrites), now_s, is_awaited=waits)]

    def test_first_question_depends_on_who_waits(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        prewrites = open_at(10.0, 10.5)
        assert self.ask(schedule, prewrites, 10.09, True) == []
        assert self.ask(schedule, prewrites, 10.99, False) == []
        assert self.ask(schedule, prewrites, 10.11, True) == [1]
        assert self.ask(schedule, prewrites, 11.01, False) == []  # under way
        assert self.ask(schedule, prewrites, 11.51, False) == [2]

    def test_what_the_sorter_has_not_read_is_waited_for(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        prewrites = open_at(10.0)
        for behind_s in (1.0, 5.0):
            now_s = 10.0 + behind_s
            assert schedule.due(behind(prewrites), now_s, is_awaited=True, behind_s=behind_s) == []
        assert schedule.due(behind(prewrites), 15.2, is_awaited=True, behind_s=5.0) == prewrites

    def test_the_longest_due_come_first_so_that_all_get_their_turn(self) -> None:
        schedule = ResolveSchedule(waited_after_s=1.0, pause_max_s=4.0)
        prewrites, now_s, turns = open_at(*([0.0] * 50)), 1.0, dict.fromkeys(range(1, 51), 0)
        for _ in range(200):  # one at a time, and nothing is ever learned
            for entry in schedule.due(behind(prewrites), now_s, is_awaited=True, at_most=1):
                turns[entry.start_ts] += 1
                schedule.undecided(entry.start_ts, now_s, TxnAnswer.UNAVAILABLE)
            now_s += 1.0
        assert set(turns.values()) == {4}

    def test_an_end_that_is_stored_is_not_asked_about_again(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert self.ask(schedule, open_at(0.0), 1.0, True) == [1]
        schedule.ended(1, 1.0, "committed")
        assert self.ask(schedule, open_at(0.0), 1e9, True) == []
        assert schedule.heard(1) == Heard(1, TxnAnswer.ENDED, "committed", 1.0)

    def test_what_was_heard_keeps_since_when(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert schedule.heard(1) == Heard()
        assert self.ask(schedule, open_at(0.0), 1.0, True) == [1]
        for now_s, answer in ((1.0, TxnAnswer.ALIVE), (2.0, TxnAnswer.ALIVE), (3.0, TxnAnswer.UNAVAILABLE)):
            schedule.undecided(1, now_s, answer, "so")
        assert schedule.heard(1) == Heard(3, TxnAnswer.UNAVAILABLE, "so", 3.0)
        schedule.undecided(1, 4.0, TxnAnswer.UNAVAILABLE, "or so")
        assert schedule.heard(1) == Heard(4, TxnAnswer.UNAVAILABLE, "or so", 3.0)

    def test_pauses_grow_to_the_limit(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, pause_max_s=5.0)
        prewrites, now_s, asked_at = open_at(0.0), 0.0, []
        while now_s < 30:
            if self.ask(schedule, prewrites, now_s, True):
                asked_at.append(now_s)
                schedule.undecided(1, now_s, TxnAnswer.UNAVAILABLE)
            now_s = round(now_s + 0.01, 2)
        pauses = [round(after - before, 2) for before, after in itertools.pairwise(asked_at)]
        assert pauses[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
        assert max(pauses) == 5.0

    def test_upstream_says_when_to_ask_again(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, pause_max_s=5.0)
        assert self.ask(schedule, open_at(0.0), 10.0, True) == [1]
        schedule.undecided(1, 10.0, TxnAnswer.ALIVE, retry_after_s=0.7)
        assert self.ask(schedule, open_at(0.0), 10.69, True) == []
        assert self.ask(schedule, open_at(0.0), 10.71, True) == [1]
        schedule.undecided(1, 10.0, TxnAnswer.ALIVE, retry_after_s=3600.0)
        assert self.ask(schedule, open_at(0.0), 15.01, True) == [1]

    def test_never_gives_one_up(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1)
        assert self.ask(schedule, open_at(0.0), 1e9, False) == [1]

    def test_batches_are_bounded_and_memory_too(self) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, batch_max=10)
        prewrites = open_at(*([0.0] * 25))
        first = self.ask(schedule, prewrites, 1.0, True)
        assert len(first) == 10
        for start_ts in first:
            schedule.undecided(start_ts, 1.0, TxnAnswer.UNAVAILABLE)
        assert self.ask(schedule, prewrites, 1.0, True) == list(range(11, 21))
        for start_ts in range(11, 21):
            schedule.undecided(start_ts, 1.0, TxnAnswer.UNAVAILABLE)
        settle(prewrites, *range(1, 26))
        assert self.ask(schedule, prewrites, 9.0, True) == []
        assert schedule._asked == {}
        assert schedule._waiting == []

    @pytest.mark.parametrize("asked", [True, False], ids=["asked", "fresh"])
    def test_those_that_all_end_in_one_moment_are_forgotten_some_at_a_time(self, asked: bool) -> None:
        """A quarter of a million took half a second, in which a pump did nothing else."""
        count = 3 * STEPS_MAX
        schedule = ResolveSchedule(waited_after_s=0.1, batch_max=count)
        prewrites, looked_at = open_at(*([0.0] * count)), 0

        def open_after(place: ValuePointer) -> Iterator[OpenPrewrite]:
            nonlocal looked_at
            for prewrite in prewrites[max(place.offset + 1, 0) if place.fid == 0 else 0 :]:
                looked_at += 1
                yield prewrite

        if asked:
            while len(schedule._asked) < count:
                for prewrite in schedule.due(open_after, 1.0, is_awaited=True):
                    schedule.undecided(prewrite.start_ts, 1.0, TxnAnswer.ALIVE)
        settle(prewrites, *range(1, count + 1))
        for turn in range(1, 4):
            before, looked_at = len(schedule._waiting), 0
            assert schedule.due(open_after, 9.0, is_awaited=True) == []
            assert before - len(schedule._waiting) <= STEPS_MAX
            assert looked_at <= STEPS_MAX + 1
            assert turn < 3 or schedule._waiting == []
        assert schedule._asked == {}
        one = OpenPrewrite(count + 1, ValuePointer(1, 0), 0.0, ValuePointer(1, 0))
        prewrites.append(one)
        assert schedule.due(behind(prewrites), 9.0, is_awaited=True) == [one]

    def test_a_client_that_gives_one_up_again_and_again_leaves_one_entry(self) -> None:
        schedule, (one,) = ResolveSchedule(waited_after_s=0.1), open_at(0.0)
        for _ in range(100):
            schedule.given_up(one)
        assert len(schedule._waiting) <= 2

    def test_one_that_settles_while_it_is_asked_about_is_forgotten_and_may_come_again(self) -> None:
        schedule, prewrites = ResolveSchedule(waited_after_s=0.1), open_at(0.0, 0.0)
        assert self.ask(schedule, prewrites, 1.0, True) == [1, 2]
        settle(prewrites, 1, 2)
        schedule.drop(1)
        schedule.ended(2, 1.0, "committed")
        assert self.ask(schedule, prewrites, 3.0, True) == []
        assert schedule._asked == {}
        # A client repeats both prewrites, long after.
        again = [
            OpenPrewrite(start_ts, ValuePointer(1, start_ts), 9.0, ValuePointer(1, 0)) for start_ts in (1, 2)
        ]
        assert self.ask(schedule, [*prewrites, *again], 9.2, True) == [1, 2]

    def test_random_lives_against_a_search_through_all(self) -> None:
        """What is asked about, and when, is what a search through every open prewrite would say; nothing is
        kept of what has settled."""
        for seed in range(60):
            self.live(random.Random(seed))

    def live(self, rng: random.Random) -> None:
        schedule = ResolveSchedule(waited_after_s=0.1, idle_after_s=1.0, pause_max_s=2.0, batch_max=7)
        prewrites: list[OpenPrewrite] = []
        due_s: dict[int, float] = {}  # of those that were asked about or given up; infinite: under way
        now_s = 0.0
        for _ in range(rng.randint(20, 300)):
            now_s = round(now_s + rng.choice([0.0, 0.05, 0.3, 1.0]), 3)
            for _ in range(rng.randint(0, 12)):
                place = ValuePointer(0, len(prewrites))
                prewrites.append(OpenPrewrite(len(prewrites), place, now_s, place))
            for prewrite in prewrites:
                if not prewrite.settled and rng.random() < 0.1:
                    prewrite.settled = True
                    if due_s.pop(prewrite.start_ts, 0.0) == inf:
                        schedule.drop(prewrite.start_ts)
            alive = [prewrite for prewrite in prewrites if not prewrite.settled]
            for prewrite in rng.sample(alive, min(len(alive), rng.choice([0, 0, 1]))):
                schedule.given_up(prewrite)
                if due_s.setdefault(prewrite.start_ts, prewrite.since_s) != inf:
                    due_s[prewrite.start_ts] = min(due_s[prewrite.start_ts], prewrite.since_s)
            is_awaited = rng.random() < 0.5
            due = schedule.due(behind(prewrites), now_s, is_awaited=is_awaited)
            after_s = 0.1 if is_awaited else 1.0
            times = {one.start_ts: due_s.get(one.start_ts, one.since_s + after_s) for one in alive}
            ready = [start_ts for start_ts, due_at_s in times.items() if due_at_s <= now_s]
            assert len(due) == min(len(ready), 7)
            assert {one.start_ts for one in due} <= {*ready}
            left = {*ready} - {one.start_ts for one in due}
            if left:
                assert max(times[one.start_ts] for one in due) <= min(times[start_ts] for start_ts in left)
            for prewrite in due:
                due_s[prewrite.start_ts] = inf
                if rng.random() < 0.8:
                    retry_s = rng.choice([0.02, 0.5])
                    schedule.undecided(prewrite.start_ts, now_s, TxnAnswer.UNAVAILABLE, retry_after_s=retry_s)
                    due_s[prewrite.start_ts] = now_s + retry_s
        settle(prewrites, *range(len(prewrites)))
        for start_ts, due_at_s in due_s.items():
            if due_at_s == inf:
                schedule.drop(start_ts)
        assert self.ask(schedule, prewrites, now_s + 10, True) == []
        assert schedule._asked == {}

    def test_a_step_costs_what_it_takes_however_many_wait(self) -> None:
        """Three times as many as a pump lets be open, asked about in turn: the last step as the first."""
        sorter, schedule = Sorter(), ResolveSchedule(waited_after_s=0.1)
        count = 3 * OPEN_MAX
        for first in range(0, count, 1024):
            batch = [LogRecord(PREWRITE, 1 + at, 0, ValuePointer(0, at)) for at in range(first, first + 1024)]
            sorter.feed(batch, first * 1e-6)
        asked, now_s = 0, 10.0
        steps_s: list[float] = []  # of CPU
        while asked < count:
            began_s = time.thread_time()
            due = schedule.due(sorter.open_after, now_s, is_awaited=True)
            steps_s.append(time.thread_time() - began_s)
            assert [entry.start_ts for entry in due] == list(range(asked + 1, asked + 257))
            for entry in due:
                schedule.undecided(entry.start_ts, now_s, TxnAnswer.ALIVE, retry_after_s=3.0)
            asked += 256
        # A search through those that were asked about took half a second at the end.
        assert sorted(steps_s)[len(steps_s) * 9 // 10] < 0.01
