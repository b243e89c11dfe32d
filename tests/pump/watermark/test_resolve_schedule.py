"""Resolve schedule: when the upstream is asked about an open prewrite."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pump.index.sorter import OpenPrewrite
from pump.log.record import START
from pump.watermark.resolve_schedule import Heard, ResolveSchedule, TxnAnswer


def open_at(*since: float) -> list[OpenPrewrite]:
    return [OpenPrewrite(number, START, since_s, START) for number, since_s in enumerate(since, 1)]


class TestResolveSchedule:
    def ask(
        self, schedule: ResolveSchedule, prewrites: Sequence[OpenPrewrite], now_s: float, waits: bool
    ) -> list[int]:
        return [entry.start_ts for entry in schedule.due(prewrites, now_s, is_awaited=waits)]

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
            assert schedule.due(prewrites, now_s, is_awaited=True, behind_s=behind_s) == []
        assert schedule.due(prewrites, 15.2, is_awaited=True, behind_s=5.0) == prewrites

    def test_the_longest_due_come_first_so_that_all_get_their_turn(self) -> None:
        schedule = ResolveSchedule(waited_after_s=1.0, pause_max_s=4.0)
        prewrites, now_s, turns = open_at(*([0.0] * 50)), 1.0, dict.fromkeys(range(1, 51), 0)
        for _ in range(200):  # one at a time, and nothing is ever learned
            for entry in schedule.due(prewrites, now_s, is_awaited=True, at_most=1):
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
        schedule.drop(lambda start_ts: start_ts == 3)
        assert set(schedule._asked) == {3}
        schedule.drop(lambda _: False)
        assert schedule._asked == {}
