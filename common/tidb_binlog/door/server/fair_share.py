"""Fair share: how much all streams of a door may send in one turn of the event loop.

Out    now, or a future to await before
Holds  waiters are served in order, a few at a time, each until the turn is used up: messages
       of one stream that are made together leave in one write
Why    fifty pullers that begin at once have a second of work ready; a write that comes meanwhile is to wait
       for a few messages, not for one of each
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

TURN_BYTES: Final = 1 << 18
MESSAGE_BYTES_MIN: Final = TURN_BYTES // 24
"""A small message costs as much time as so many octets of a large one: 24 take half a millisecond."""

_SERVED_A_TURN: Final = 3


class FairShare:
    """One for a door."""

    __slots__ = ("_left", "_next_is_due", "_served", "_waiting")

    def __init__(self) -> None:
        self._left = TURN_BYTES
        self._next_is_due = False
        self._served: set[object] = set()
        self._waiting: deque[tuple[asyncio.Future[None], object]] = deque()

    def take(self, who: object, size: int) -> asyncio.Future[None] | None:
        """A message of this size: None if it may be made now, else to be awaited before."""
        if not self._next_is_due:
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)
        if self._left > 0 and (not self._waiting or who in self._served):
            self._left -= max(size, MESSAGE_BYTES_MIN)
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, who))
        return turn

    def _next(self) -> None:
        self._left = TURN_BYTES
        self._served.clear()
        while self._waiting and len(self._served) < _SERVED_A_TURN:
            turn, who = self._waiting.popleft()
            if not turn.done():  # else the waiter was cancelled
                self._left -= MESSAGE_BYTES_MIN
                self._served.add(who)
                turn.set_result(None)
        self._next_is_due = bool(self._waiting or self._served)
        if self._next_is_due:
            asyncio.get_running_loop().call_soon(self._next)
