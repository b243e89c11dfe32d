"""Window: the position passes no gap, whatever order acknowledgements come in."""

from __future__ import annotations

import itertools

import pytest

from drainer.sink.kafka.window import Mark, Window
from tests.cases import case

START = Mark(5, 1)


def reached_by(marks: list[int], sent: int, acknowledged: set[int]) -> int:
    """The naive answer: the last mark whose messages are all acknowledged. `marks[i]` messages precede it."""
    whole = [
        number for number, before in enumerate(marks) if all(one in acknowledged for one in range(before))
    ]
    return max(whole, default=-1)


def test_every_order_of_acknowledgements() -> None:
    """Three transactions of 0 to 2 messages, acknowledged in every order, and at every moment between."""
    for shape in itertools.product(range(3), repeat=3):
        with case(shape):
            sizes = [10 + number for number in range(sum(shape))]
            for order in itertools.permutations(range(len(sizes))):
                for early in range(len(sizes) + 1):
                    window, marks, given = Window(START), [], set()
                    assert window.reached == START
                    waiting = list(order)
                    for number, messages in enumerate(shape):
                        for _ in range(messages):
                            assert window.sent(sizes[len(given) + window.unacknowledged]) is not None
                        window.mark(10 * (number + 1), 0)
                        marks.append(sum(shape[: number + 1]))
                        for one in waiting:
                            if len(given) < early and one < marks[-1]:
                                window.acknowledged(one)
                                waiting.remove(one)
                                given.add(one)
                        check(window, marks, given, sizes)
                    for one in waiting:
                        window.acknowledged(one)
                        given.add(one)
                        check(window, marks, given, sizes)
                    assert window.is_empty
                    assert window.bytes == 0
                    assert window.reached.commit_ts == 30


def check(window: Window, marks: list[int], given: set[int], sizes: list[int]) -> None:
    sent = marks[-1]
    found = reached_by(marks, sent, given)
    assert window.reached.commit_ts == (5 if found < 0 else 10 * (found + 1))
    assert window.unacknowledged == sent - len(given)
    assert {one for one in range(sent) if window.is_acknowledged(one)} == given
    first = next((one for one in range(sent) if one not in given), sent)
    assert window.bytes == sum(sizes[first:sent])


def test_a_mark_without_messages_counts_at_once_and_never_falls() -> None:
    window = Window(START)
    window.mark(9, 3)
    assert window.reached == Mark(9, 3)
    window.mark(7, 2)
    assert window.reached == window.last == Mark(9, 3)


def test_marks_behind_one_message_are_one() -> None:
    window = Window(START)
    number = window.sent(1)
    for ts in range(10, 1000):
        window.mark(ts, 0)
    assert window.reached == START
    assert len(window._marks) == 1
    window.acknowledged(number)
    assert window.reached.commit_ts == 999


@pytest.mark.parametrize("number", [-1, 1, 0])
def test_what_is_not_under_way_cannot_be_acknowledged(number: int) -> None:
    window = Window(START)
    window.acknowledged(window.sent(1))
    with pytest.raises(ValueError, match="not under way"):
        window.acknowledged(number)


def test_nothing_is_acknowledged_twice() -> None:
    window = Window(START)
    window.sent(1)
    window.acknowledged(window.sent(1))
    with pytest.raises(ValueError, match="not under way"):
        window.acknowledged(1)
