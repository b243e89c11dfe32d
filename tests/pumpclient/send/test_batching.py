"""Outbox: all short sequences of steps against a naive model; bounds; wrong answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pumpclient.send.batching import Outbox
from tidb_binlog.errors import Rejected

Payload = tuple[int, bytes]


class Naive:
    """Lists of everything, looked through each time. Limits as `OUTBOX` has them."""

    def __init__(self) -> None:
        self.waiting: list[Payload] = []
        self.messages: list[list[Payload]] = []
        self.answered = 0

    def next(self) -> list[Payload]:
        waiting = self.waiting
        if not waiting:
            return []
        size = sum(len(payload) for _, payload in waiting)
        if self.messages:
            unanswered = sum(len(payload) for message in self.messages for _, payload in message)
            if (size < BYTES_MAX and len(waiting) < COUNT_MAX) or unanswered + min(size, BYTES_MAX) > ROOM:
                return []
        count = 1
        while (
            count < min(len(waiting), COUNT_MAX)
            and sum(len(payload) for _, payload in waiting[: count + 1]) <= BYTES_MAX
        ):
            count += 1
        return waiting[:count]


BYTES_MAX, COUNT_MAX, ROOM = 6, 3, 12
STEPS = ("small", "large", "leave", "answer one", "answer all", "fail one")


def run(steps: tuple[str, ...]) -> Outbox[int]:
    outbox: Outbox[int] = Outbox(bytes_max=BYTES_MAX, count_max=COUNT_MAX, unanswered_bytes_max=ROOM)
    naive = Naive()
    tickets: Iterator[int] = itertools.count(1)
    settled: list[int] = []
    for step in steps:
        unanswered = [payload for message in naive.messages for payload in message]
        if step in ("small", "large"):
            ticket, payload = next(tickets), b"x" * (2 if step == "small" else 5)
            outbox.add(ticket, payload, float(ticket))
            naive.waiting.append((ticket, payload))
        elif step == "leave":
            expected = naive.next()
            assert outbox.is_ready == bool(expected)
            assert outbox.message() == [payload for _, payload in expected]
            if expected:
                naive.waiting = naive.waiting[len(expected) :]
                naive.messages.append(expected)
        elif step.startswith(("answer", "fail")) and unanswered:
            count = len(unanswered) if step == "answer all" else 1
            upto = naive.answered + count
            failures = {upto: "no room"} if step == "fail one" else {}
            stored, failed = outbox.answered(upto, failures)
            named = [ticket for ticket, _ in unanswered[:count]]
            assert (stored, failed) == (([], [(named[0], "no room")]) if failures else (named, []))
            settled += named
            naive.answered = upto
            naive.messages[0] = naive.messages[0][count:] if count == 1 else []
            naive.messages = [message for message in naive.messages if message] if count == 1 else []
        outbox.check()
        assert len(outbox) == len(naive.waiting) + sum(map(len, naive.messages))
        assert len(settled) == len(set(settled))
    return outbox


def test_every_sequence_of_four_steps_after_a_first_message() -> None:
    for steps in itertools.product(STEPS, repeat=4):
        for first in itertools.product(("small", "large"), repeat=3):
            run((*first, "leave", *steps))


def test_what_waits_while_a_message_is_under_way_forms_the_next() -> None:
    outbox: Outbox[str] = Outbox()
    outbox.add("a", b"1", 0.0)
    assert outbox.message() == [b"1"]
    for ticket in "bcd":
        outbox.add(ticket, ticket.encode(), 0.0)
        assert outbox.message() == []
    assert outbox.answered(1, {}) == (["a"], [])
    assert outbox.message() == [b"b", b"c", b"d"]


def test_full_messages_follow_each_other_up_to_the_bound() -> None:
    outbox: Outbox[int] = Outbox(bytes_max=10, count_max=100, unanswered_bytes_max=30)
    for number in range(9):
        outbox.add(number, b"x" * 5, 0.0)
    assert [len(outbox.message()) for _ in range(4)] == [2, 2, 2, 0]
    outbox.answered(2, {})
    assert [len(outbox.message()) for _ in range(2)] == [2, 0]
    outbox.answered(8, {})
    assert len(outbox.message()) == 1


def test_one_binlog_larger_than_a_message_goes_alone() -> None:
    outbox: Outbox[int] = Outbox(bytes_max=10, unanswered_bytes_max=10)
    outbox.add(1, b"x" * 50, 0.0)
    outbox.add(2, b"x", 0.0)
    assert [len(payload) for payload in outbox.message()] == [50]
    outbox.check()


def test_the_deadline_is_that_of_the_oldest() -> None:
    outbox: Outbox[int] = Outbox()
    seen = [outbox.deadline_s]
    outbox.add(1, b"x", 5.0)
    seen.append(outbox.deadline_s)
    outbox.message()
    outbox.add(2, b"x", 6.0)
    seen.append(outbox.deadline_s)
    outbox.answered(1, {})
    seen.append(outbox.deadline_s)
    assert outbox.abandon() == [2]
    assert [*seen, outbox.deadline_s] == [None, 5.0, 5.0, 6.0, None]
    outbox.check()


@pytest.mark.parametrize(
    ("upto", "failures"), [(4, {}), (0, {}), (2, {3: "x"}), (3, {1: "x"}), (3, {9: "x"})]
)
def test_an_answer_about_what_did_not_leave_is_refused(upto: int, failures: dict[int, str]) -> None:
    outbox: Outbox[int] = Outbox()
    for number in range(3):
        outbox.add(number, b"x", 0.0)
    outbox.message()
    outbox.answered(1, {})
    with pytest.raises(Rejected, match="of 3 are answered"):
        outbox.answered(upto, failures)
