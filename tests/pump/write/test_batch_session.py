"""The bookkeeping of a batch stream against what a list of payloads would say, in every order of ends."""

from __future__ import annotations

import itertools

from pump.write.admission import PROBE, STORE, Reason, Refuse, Verdict
from pump.write.batch_session import Acknowledgement, Failure, Part, WriteSession
from tests.cases import case

NO_ROOM = Refuse(Reason.DISK, "no room")
BROKEN = Refuse(Reason.WRITER, "broken")


class Stream:
    """What should be said of a stream: a verdict for each payload once it is known."""

    def __init__(self) -> None:
        self.session = WriteSession()
        self.known: list[Failure | bool | None] = []  # None: not ended yet
        self.parts: list[tuple[Part, list[int]]] = []  # with the numbers of what is to be stored

    def take(self, verdicts: list[Verdict] | None, count: int) -> None:
        first = len(self.known) + 1
        self.known += [None] * count
        stored = [
            number
            for number in range(first, first + count)
            if not verdicts or verdicts[number - first] is STORE
        ]
        part = self.session.take(count, 10 * count, verdicts)
        self.parts.append((part, stored))
        for number, verdict in enumerate(verdicts or [], first):
            if isinstance(verdict, Refuse):
                self.known[number - 1] = Failure(number, verdict.reason, verdict.text)

    def end(self, at: int, durable: int | None) -> None:
        part, stored = self.parts[at]
        if durable is None:
            self.session.end(part)
        else:
            self.session.end(part, BROKEN, durable)
            for number in stored[durable:]:
                self.known[number - 1] = Failure(number, Reason.WRITER, "broken")
        first = 1 + sum(before.count for before, _ in self.parts[:at])
        for number in range(first, first + part.count):
            if self.known[number - 1] is None:
                self.known[number - 1] = True


KINDS: list[list[Verdict] | None] = [None, [PROBE, NO_ROOM], [STORE, NO_ROOM, STORE], [NO_ROOM, STORE, PROBE]]


def test_answers_are_in_order_and_complete_whatever_ends_first() -> None:
    for kinds in itertools.product(range(len(KINDS)), repeat=3):
        with case(kinds):
            for order, failing in itertools.product(itertools.permutations(range(3)), (None, 0, 1, 2)):
                stream = Stream()
                for kind in kinds:
                    verdicts = KINDS[kind]
                    stream.take(verdicts, len(verdicts) if verdicts else 2)
                told: list[Failure] = []
                ended: set[int] = set()
                for at in order:
                    stream.end(at, 1 if failing == at else None)
                    ended.add(at)
                    answer = stream.session.answer()
                    whole = next((number for number in range(3) if number not in ended), 3)
                    answered = sum(part.count for part, _ in stream.parts[:whole])
                    assert (answer is not None) == (at < whole)
                    if answer is None:
                        continue
                    assert answer.answered == stream.session.answered == answered
                    told += answer.failures
                    assert told == [one for one in stream.known[:answered] if isinstance(one, Failure)]
                    assert stream.session.answer() is None
                assert stream.session.is_idle
                assert stream.session.bytes_in_flight == 0


def test_what_is_in_flight_is_bounded_until_its_answer_is_made() -> None:
    session = WriteSession(bytes_max=10_000)
    small = session.take(1, 100)
    assert not session.is_full
    large = session.take(1, 20_000)
    assert session.is_full
    session.end(large)
    assert session.answer() is None
    assert session.is_full
    session.end(small)
    assert session.is_full
    assert session.answer() == Acknowledgement(2, [])
    assert not session.is_full


def test_many_empty_payloads_count_too() -> None:
    session = WriteSession(bytes_max=10_000)
    session.take(100, 0)
    assert session.is_full
