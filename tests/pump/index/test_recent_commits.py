"""Recent commits against the whole truth: what memory serves is what the index would serve."""

from __future__ import annotations

import random

import pytest

from pump.index.recent_commits import PENDING_MAX, RecentCommits
from pump.log.delivery import Delivery
from pump.log.record import START, LogRecord
from tidb_binlog import binlog


def feed(recent: RecentCommits, payload: bytes, *, remembered: bool = True) -> None:
    header = binlog.header(binlog.parse(payload))
    record = LogRecord(header.tp, header.start_ts, header.commit_ts, START)
    if remembered:
        recent.record([record], [payload])
    else:
        recent.pass_over([record])


def test_commits_are_served_in_order_from_the_watermark_down() -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    first, second = binlog.prewrite(1, b"k", b"a"), binlog.prewrite(2, b"k", b"b")
    for payload in (first, second, binlog.commit(2, 9), binlog.commit(1, 8)):
        feed(recent, payload)
    assert recent.after(0, 100) == []
    recent.advance(9)
    served = recent.after(0, 1 << 20)
    assert served == [
        Delivery(8, 1, binlog.join(first, binlog.commit(1, 8))),
        Delivery(9, 2, binlog.join(second, binlog.commit(2, 9))),
    ]
    assert recent.after(8, 1 << 20) == served[1:]
    assert recent.after(9, 1 << 20) == []
    assert recent.after(0, 1) == served[:1]


def test_below_the_floor_it_says_so() -> None:
    recent = RecentCommits(100, bytes_max=1 << 20)
    assert recent.after(99, 1) is None
    assert recent.after(100, 1) == []


def test_random_histories_agree_with_the_truth_above_the_floor() -> None:
    rng = random.Random(5)
    for _ in range(300):
        recent = RecentCommits(0, bytes_max=rng.choice([500, 3000, 1 << 20]))
        clock, watermark = 0, 0
        open_ones: dict[int, bytes] = {}
        truth: list[Delivery] = []
        pending: list[Delivery] = []
        for _ in range(60):
            clock += 10
            action = rng.random()
            if action < 0.45:
                open_ones[clock] = binlog.prewrite(clock, b"k", rng.randbytes(rng.choice([5, 200, 900])))
                feed(recent, open_ones[clock], remembered=rng.random() < 0.95)
            elif action < 0.5:
                feed(recent, binlog.fake(clock))
                pending.append(Delivery(clock, clock, binlog.fake(clock)))
            elif open_ones:
                start_ts = rng.choice(list(open_ones))
                prewrite = open_ones.pop(start_ts)
                if action > 0.95:
                    feed(recent, binlog.rollback(start_ts))
                    continue
                end = binlog.commit(start_ts, clock)
                for _ in range(rng.choice([1, 1, 1, 2])):
                    feed(recent, end, remembered=rng.random() < 0.95)
                pending.append(Delivery(clock, start_ts, binlog.join(prewrite, end)))
            if rng.random() < 0.5:
                watermark = clock
                recent.advance(watermark)
                truth += pending
                pending = []
            recent.check()
            for position in {0, watermark // 2, min(recent.floor, watermark), watermark}:
                served = recent.after(position, 1 << 30)
                expected = [entry for entry in truth if entry.commit_ts > position]
                assert served == (None if position < recent.floor else expected)


def test_memory_is_bounded() -> None:
    recent = RecentCommits(0, bytes_max=10_000)
    for number in range(1, 2000):
        feed(recent, binlog.prewrite(number * 10, b"k", bytes(100)))
        if number % 3:
            feed(recent, binlog.commit(number * 10, number * 10 + 1))
        if number % 5 == 0:
            recent.advance(number * 10 + 1)
        recent.check()
        assert recent.bytes_held < 4 * 10_000
    assert recent.floor > 0


def test_commit_whose_prewrite_is_not_in_memory_is_left_to_the_index() -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    feed(recent, binlog.commit(1, 5))
    prewrite = binlog.prewrite(6, b"k", b"v")
    feed(recent, prewrite)
    feed(recent, binlog.commit(6, 7))
    recent.advance(7)
    assert recent.after(4, 1) is None
    assert recent.after(5, 1) == [Delivery(7, 6, binlog.join(prewrite, binlog.commit(6, 7)))]


@pytest.mark.parametrize("bytes_max", [1 << 20, 1 << 26], ids=["bytes", "number"])
def test_commits_behind_one_that_stays_open_take_no_more_than_the_bound(bytes_max: int) -> None:
    """Three times as many as may wait; what came last is served from memory once the watermark moves."""
    recent = RecentCommits(0, bytes_max=bytes_max)
    feed(recent, binlog.prewrite(1, b"k", b"v"))
    truth = {}
    for number in range(10, 10 + 3 * PENDING_MAX):
        prewrite, commit = binlog.prewrite(2 * number, b"k", b"v"), binlog.commit(2 * number, 2 * number + 1)
        feed(recent, prewrite)
        feed(recent, commit)
        truth[2 * number + 1] = Delivery(2 * number + 1, 2 * number, binlog.join(prewrite, commit))
        assert len(recent._pending) <= PENDING_MAX
        assert recent._pending_bytes <= bytes_max
    last = max(truth)
    recent.advance(last)
    recent.check()
    assert recent._pending_bytes == 0
    assert recent.floor < last
    served = recent.after(recent.floor, 1 << 30)
    assert served == [truth[ts] for ts in truth if ts > recent.floor]
    assert recent.after(recent.floor - 1, 1) is None


@pytest.mark.parametrize("bytes_max", [1 << 20, 1 << 26], ids=["bytes", "number"])
def test_commits_without_their_prewrites_in_memory_take_no_more_than_the_bound_either(bytes_max: int) -> None:
    recent = RecentCommits(0, bytes_max=bytes_max)
    for number in range(10, 10 + 3 * PENDING_MAX):
        feed(recent, binlog.commit(2 * number, 2 * number + 1))
    assert len(recent._pending) <= PENDING_MAX
    assert recent.bytes_held <= bytes_max


def test_what_was_stored_first_is_served() -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    first = binlog.prewrite(1, b"k", b"first")
    for payload in (first, binlog.prewrite(1, b"k", b"second"), binlog.commit(1, 5), binlog.commit(1, 5)):
        feed(recent, payload)
    recent.check()
    recent.advance(5)
    assert recent.after(0, 1 << 20) == [Delivery(5, 1, binlog.join(first, binlog.commit(1, 5)))]


@pytest.mark.parametrize("commit_ts", [6, 7])
def test_a_commit_that_the_watermark_has_passed_is_left_to_the_index(commit_ts: int) -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    recent.advance(7)
    feed(recent, binlog.prewrite(1, b"k", b"v"))
    feed(recent, binlog.commit(1, commit_ts))
    assert recent.after(commit_ts - 1, 1) is None
    assert recent.after(commit_ts, 1) == []


@pytest.mark.parametrize("mark_at", [0, 1])
def test_a_time_mark_takes_the_place_of_no_commit_with_its_timestamp(mark_at: int) -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    prewrite, ends = binlog.prewrite(1, b"k", b"v"), [binlog.commit(1, 5)]
    ends.insert(mark_at, binlog.fake(5))
    for payload in (prewrite, *ends):
        feed(recent, payload)
    recent.advance(5)
    assert recent.after(0, 1 << 20) == [Delivery(5, 1, binlog.join(prewrite, binlog.commit(1, 5)))]


def test_what_is_held_is_counted_to_the_byte() -> None:
    recent = RecentCommits(0, bytes_max=1 << 20)
    prewrite, end, other = (
        binlog.prewrite(1, b"k", b"v"),
        binlog.commit(1, 5),
        binlog.prewrite(2, b"k", b"w" * 99),
    )
    whole, part = len(binlog.join(prewrite, end)) + 200, len(other) + 200
    held = []
    for payload in (other, prewrite, prewrite, end, end, binlog.rollback(2), binlog.fake(6)):
        feed(recent, payload)
        held.append(recent.bytes_held)
    opened, mark = part + len(prewrite) + 200, len(binlog.fake(6)) + 200
    ended = [part + whole, part + whole + 200, whole + 200, whole + 200 + mark]
    assert held == [part, opened, opened, *ended]
    recent.advance(6)
    assert recent.bytes_held == whole + mark
    feed(recent, binlog.commit(9, 7), remembered=False)
    assert (recent.bytes_held, recent.floor) == (0, 7)
