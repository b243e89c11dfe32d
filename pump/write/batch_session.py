"""Batch session: which payloads of one batch stream are answered, and what the next answer says.

Out    answers: how many payloads, counted from the stream's first, are answered, and which of them failed
Holds  payloads are numbered from 1 in the order of the stream. An answer covers a part only when it and all
       before it have ended, so that `answered` alone says what is durable. What is in flight is counted in
       bytes until its answer was made: who does not read answers is not read either
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from pump.write.admission import Reason, Refuse, Store, Verdict
from tidb_binlog.late_dataclass import dataclass, field

IN_FLIGHT_BYTES_MAX: Final = 4 << 20
_PAYLOAD_BYTES: Final = 256  # what one costs in memory besides its octets


class Failure(NamedTuple):
    """Payload `number` of the stream is not stored."""

    number: int
    reason: Reason
    text: str


class Acknowledgement(NamedTuple):
    """All payloads up to `answered` are durable or probes, but for the `failures` named so far."""

    answered: int
    failures: list[Failure]


@dataclass(slots=True, eq=False)
class Part:
    """Payloads that stand next to each other and end together. `stored`: the numbers of those that go into
    the log, in their order; the others have ended already."""

    count: int
    size: int
    stored: Sequence[int]
    failures: list[Failure] = field(default_factory=list)
    ended: bool = False


class WriteSession:
    """The bookkeeping of one stream."""

    def __init__(self, *, bytes_max: int = IN_FLIGHT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._parts: deque[Part] = deque()
        self._taken = 0
        self.answered = 0
        self.bytes_in_flight = 0

    @property
    def is_full(self) -> bool:
        """Nothing more should be read now."""
        return self.bytes_in_flight >= self._bytes_max

    @property
    def is_idle(self) -> bool:
        """Everything that was taken is answered."""
        return not self._parts

    def take(self, count: int, size: int, verdicts: Sequence[Verdict] | None = None) -> Part:
        """The next `count` payloads, of `size` bytes together; `verdicts` of each, None if all are stored."""
        first = self._taken + 1
        self._taken += count
        size += _PAYLOAD_BYTES * count
        part = Part(count, size, range(first, first + count))
        if verdicts is not None:
            numbered = list(enumerate(verdicts, first))
            part.stored = [number for number, verdict in numbered if isinstance(verdict, Store)]
            part.failures = [
                Failure(number, verdict.reason, verdict.text)
                for number, verdict in numbered
                if isinstance(verdict, Refuse)
            ]
        self.bytes_in_flight += size
        self._parts.append(part)
        return part

    def end(self, part: Part, failed: Refuse | None = None, durable: int = 0) -> None:
        """What was to be stored of a part is durable; after a failure its first `durable` payloads are."""
        assert not part.ended
        part.ended = True
        if failed is not None:
            part.failures += [Failure(number, failed.reason, failed.text) for number in part.stored[durable:]]
            part.failures.sort()

    def answer(self) -> Acknowledgement | None:
        """The next answer; None if nothing new has ended."""
        failures: list[Failure] = []
        before = self.answered
        while self._parts and self._parts[0].ended:
            part = self._parts.popleft()
            self.answered += part.count
            self.bytes_in_flight -= part.size
            failures += part.failures
        return Acknowledgement(self.answered, failures) if self.answered > before else None
