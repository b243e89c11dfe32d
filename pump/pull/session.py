"""Pull session: what one puller has got, may get, and waits for.

Holds  the watermark that it was sent never falls, and no commit at or below it is sent afterwards: both are
       the position, and pages begin after it. Credit limits payload bytes; only the first payload of a
       message may exceed it, since a transaction larger than all credit must pass too. One that comes in
       parts never exceeds it, but for the first few fields
"""

from __future__ import annotations

from pump.log.delivery import Delivery, LargeDelivery, Page
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.tso import TS_MAX, Ts

MESSAGE_BYTES_MAX = 1 << 20
FIRST_MESSAGE_BYTES_MAX = 16 << 10  # a puller that begins gets something soon, then ever more at a time


@dataclass(frozen=True, slots=True)
class Message:
    """Transactions in commit order; every commit at or below `watermark` has been sent with or before it."""

    deliveries: list[Delivery]
    size: int  # of their payloads together, bytes
    watermark: int
    waits_for_start_ts: Ts = 0


@dataclass(frozen=True, slots=True)
class PartMessage:
    """A stretch of a large transaction. Every commit at or below `watermark` has been sent before it."""

    large: LargeDelivery
    offset: int
    data: bytes
    watermark: int

    @property
    def size(self) -> int:
        return len(self.data)


class PullSession:
    """`position`: everything at or below it has been sent, or was consumed before the session began.
    `until_ts`: nothing above it is; `hurries`: for a puller that reads a range, not what comes."""

    def __init__(self, position: int, until_ts: Ts = TS_MAX, *, hurries: bool = False) -> None:
        self.position = position
        self.until_ts = until_ts
        self.credit = 0
        self.large: LargeDelivery | None = None
        """The transaction that is being sent in parts; nothing else is sent meanwhile."""
        self.awaited = until_ts if until_ts < TS_MAX else 0
        self._told = position
        self._given = 0
        self._page_bytes_max = MESSAGE_BYTES_MAX if hurries else FIRST_MESSAGE_BYTES_MAX

    def request(self, credit_bytes: int, wait_watermark: int, given_ts: Ts = 0) -> None:
        """The puller adds credit and may raise what it waits for. `given_ts`: it has commits up to there that
        wait for this pump, so each rise of the watermark may let one of them go."""
        self.credit += max(credit_bytes, 0)
        self.awaited = max(self.awaited, min(wait_watermark, self.until_ts))
        self._given = max(self._given, given_ts)

    @property
    def page_bytes(self) -> int:
        """How much the next page may hold; 0 if the puller can take nothing now."""
        return max(min(self.credit, self._page_bytes_max), 0)

    @property
    def is_over(self) -> bool:
        """Whether all up to `until_ts` was sent; the message after which it is said so, too."""
        return self.position >= self.until_ts

    @property
    def waits_for(self) -> int:
        """The watermark that the puller waits for and was not sent yet; 0 if there is none."""
        return self.awaited

    def page(self, page: Page) -> Message | None:
        """Take a page; the message for it, None if nothing needs to be said."""
        before = self.position
        if page.deliveries:
            assert page.deliveries[0].commit_ts > before, "a commit at or below the watermark that was sent"
        assert page.covered >= before
        deliveries = [delivery for delivery in page.deliveries if delivery[0] != delivery[1]]
        size = sum([len(head) + len(tail) for _, _, head, tail in deliveries])
        self.large = page.large
        self.position = page.covered if page.large is None else page.covered - 1
        self.credit -= size
        if deliveries:
            self._page_bytes_max = min(self._page_bytes_max * 4, MESSAGE_BYTES_MAX)
            return self._message(deliveries, size)
        return self.reached()

    def part_bytes(self, offset: int, begin_bytes: int) -> int:
        """How much of `large` the next part may hold, `offset` having been sent; 0 if the puller can take
        nothing now. The first part holds more than `begin_bytes`."""
        size = max(min(self.credit, MESSAGE_BYTES_MAX), 0)
        return max(size, begin_bytes + 1) if size and offset == 0 else size

    def part(self, offset: int, data: bytes) -> PartMessage:
        """Take a part of `large`; the message for it."""
        large = self.large
        assert large is not None
        assert data
        self.credit -= len(data)
        if offset + len(data) == large.size:
            self.position, self.large = large.commit_ts, None
            if self.awaited <= self.position:
                self.awaited = 0
        self._told = self.position
        return PartMessage(large, offset, data, self.position)

    def sign_of_life(self, held_by: int) -> Message:
        """For a puller that has heard nothing for as long as it allowed. `held_by`: the start_ts of the open
        prewrite that holds the watermark back, 0 if there is none."""
        self._told = self.position
        return Message([], 0, self.position, held_by if self.awaited else 0)

    def reached(self) -> Message | None:
        """The empty message that an awaited watermark was reached, or came nearer to what was given, once."""
        if self.awaited and self.awaited <= self.position:
            return self._message([], 0)
        if self._told < self._given and self._told < self.position:
            return self._message([], 0)
        return None

    def _message(self, deliveries: list[Delivery], size: int) -> Message:
        if self.awaited <= self.position:
            self.awaited = 0
        self._told = self.position
        return Message(deliveries, size, self.position)
