"""Batching: which binlogs form the next message of a `WriteBinlogs` stream, and what an answer says of each.

In     add (writes of one stream), message (may one leave now?), answered (what the pump says)
Out    payloads of the next message; the tickets that an answer settles
Holds  binlogs are numbered from 1 in the order in which they leave, as the pump numbers them; each is settled
       once. What waits while a message is under way forms the next one. A second message leaves before the
       first is answered only when it is full, and no more than `unanswered_bytes_max` are unanswered then
Why    with one message under way the pump's sync and the way there are shared by all who wait; with more,
       each would carry less, and a message costs both ends as much as a single write
Never  knows what a ticket is: the shell's future
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from tidb_binlog.errors import Rejected

MESSAGE_BYTES_MAX: Final = 1 << 20
MESSAGE_COUNT_MAX: Final = 1024
UNANSWERED_BYTES_MAX: Final = 4 << 20
LARGE_BYTES: Final = 1 << 18
"""A binlog from here on goes alone, by the unary method: small ones would wait for it."""

T = TypeVar("T")
F = TypeVar("F")


class Outbox(Generic[T]):
    """The binlogs of one stream, from `add` to their answers."""

    def __init__(
        self,
        *,
        bytes_max: int = MESSAGE_BYTES_MAX,
        count_max: int = MESSAGE_COUNT_MAX,
        unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._count_max = count_max
        self._unanswered_bytes_max = unanswered_bytes_max
        self._waiting: list[tuple[T, bytes, float]] = []
        self._waiting_bytes = 0
        self._unanswered: deque[T] = deque()
        self._messages: deque[tuple[int, int, float]] = deque()  # number of its last binlog, bytes, deadline
        self._unanswered_bytes = 0
        self._sent = 0
        self._answered = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unanswered)

    def add(self, ticket: T, payload: bytes, deadline_s: float) -> None:
        """One more binlog, to be answered by `deadline_s`."""
        self._waiting.append((ticket, payload, deadline_s))
        self._waiting_bytes += len(payload)

    @property
    def is_ready(self) -> bool:
        """Whether `message` has one."""
        if not self._waiting:
            return False
        if not self._messages:
            return True
        if self._waiting_bytes < self._bytes_max and len(self._waiting) < self._count_max:
            return False
        return (
            self._unanswered_bytes + min(self._waiting_bytes, self._bytes_max) <= self._unanswered_bytes_max
        )

    def message(self) -> list[bytes]:
        """The payloads of the message that leaves now; empty when none may."""
        if not self.is_ready:
            return []
        leaving, size = self._waiting, self._waiting_bytes
        if size > self._bytes_max or len(leaving) > self._count_max:
            leaving, size = self._cut()
        else:
            self._waiting = []
        self._waiting_bytes -= size
        self._sent += len(leaving)
        self._unanswered_bytes += size
        self._messages.append((self._sent, size, min([deadline_s for _, _, deadline_s in leaving])))
        self._unanswered.extend([ticket for ticket, _, _ in leaving])
        return [payload for _, payload, _ in leaving]

    def answered(self, upto: int, failures: Mapping[int, F]) -> tuple[list[T], list[tuple[T, F]]]:
        """The tickets of the binlogs that are stored and of those that are not, all up to number `upto`.

        Raises `Rejected` when the answer is about binlogs that did not leave or are answered already.
        """
        first, count = self._answered + 1, upto - self._answered
        if not 0 <= count <= len(self._unanswered) or not all(first <= number <= upto for number in failures):
            raise Rejected(
                f"binlogs up to {self._answered} of {self._sent} are answered, and now up to {upto} with "
                f"failures {sorted(failures)[:3]}"
            )
        self._answered = upto
        while self._messages and self._messages[0][0] <= upto:
            self._unanswered_bytes -= self._messages.popleft()[1]
        settled = [self._unanswered.popleft() for _ in range(count)]
        if not failures:
            return settled, []
        stored = [ticket for number, ticket in enumerate(settled, first) if number not in failures]
        return stored, [(settled[number - first], failure) for number, failure in failures.items()]

    @property
    def deadline_s(self) -> float | None:
        """When the oldest binlog has to be answered; None while there is none. Deadlines are taken to come in
        order: one that is earlier than its predecessor's may be noticed late."""
        if self._messages:
            return self._messages[0][2]
        return self._waiting[0][2] if self._waiting else None

    def abandon(self) -> list[T]:
        """All tickets, those that left first; there is no stream any more."""
        abandoned = [*self._unanswered, *(ticket for ticket, _, _ in self._waiting)]
        self._unanswered.clear()
        self._messages.clear()
        self._waiting = []
        self._waiting_bytes = self._unanswered_bytes = 0
        self._answered = self._sent
        return abandoned

    def _cut(self) -> tuple[list[tuple[T, bytes, float]], int]:
        """The longest beginning of what waits that fits into a message; at least one binlog."""
        size = len(self._waiting[0][1])
        count = 1
        for _, payload, _ in self._waiting[1 : self._count_max]:
            if size + len(payload) > self._bytes_max:
                break
            size += len(payload)
            count += 1
        leaving, self._waiting = self._waiting[:count], self._waiting[count:]
        return leaving, size

    def check(self) -> None:
        assert self._waiting_bytes == sum(len(payload) for _, payload, _ in self._waiting)
        assert self._unanswered_bytes == sum(size for _, size, _ in self._messages)
        assert self._sent - self._answered == len(self._unanswered)
        assert bool(self._messages) == bool(self._unanswered)
