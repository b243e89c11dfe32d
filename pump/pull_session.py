"""Pull session: what one puller has got, may get, and waits for.

In     its requests, pages of commits
Out    messages to send
Holds  what it was told as watermark never falls, and no commit at or below it is sent afterwards: both are
       the position, and pages begin behind it. Credit limits payload bytes; only the first payload of a
       message may exceed it, since a transaction larger than all credit must pass too
"""

from __future__ import annotations

from dataclasses import dataclass

from pump.delivery import Page

MESSAGE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """Payloads in commit order; every commit at or below `watermark` has been sent with or before it."""

    payloads: list[bytes]
    watermark: int


class PullSession:
    """`position`: everything at or below it has been sent, or was consumed before the session began."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.credit = 0
        self.awaited = 0

    def request(self, credit_bytes: int, wait_watermark: int) -> None:
        """The puller adds credit and may raise what it waits for."""
        self.credit += max(credit_bytes, 0)
        self.awaited = max(self.awaited, wait_watermark)

    @property
    def page_bytes(self) -> int:
        """How much the next page may hold; 0 if the puller can take nothing now."""
        return max(min(self.credit, MESSAGE_BYTES_MAX), 0)

    @property
    def waits_for(self) -> int:
        """The watermark that the puller waits for and has not been told; 0 if there is none."""
        return self.awaited

    def page(self, page: Page) -> Message | None:
        """Take a page; the message for it, None if nothing needs to be said."""
        before = self.position
        if page.deliveries:
            assert page.deliveries[0].commit_ts > before, "a commit at or below the told watermark"
        assert page.covered >= before
        payloads = [delivery.payload for delivery in page.deliveries if not delivery.is_fake]
        self.position = page.covered
        self.credit -= sum(map(len, payloads))
        if payloads:
            return self._message(payloads)
        return self.told()

    def told(self) -> Message | None:
        """The empty message that an awaited watermark was reached, once."""
        if self.awaited and self.awaited <= self.position:
            return self._message([])
        return None

    def _message(self, payloads: list[bytes]) -> Message:
        if self.awaited <= self.position:
            self.awaited = 0
        return Message(payloads, self.position)
