"""Turns: how much all streams of a door may send in one turn of the event loop.

Holds  streams that ask when the turn is used up wait in line for the next one
Why    fifty pullers that begin at once have a quarter of a second of work ready; a write that comes meanwhile
       is to wait for a few of their messages, not for one of each
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

TURN_BYTES: Final = 1 << 18
MESSAGE_BYTES_MIN: Final = TURN_BYTES // 48
"""A small message costs as much time as so many octets of a large one: 48 of them are a millisecond."""


class Turns:
    """One for a door."""

    __slots__ = ("_left", "_next_is_due", "_waiting")

    def __init__(self) -> None:
        self._left = TURN_BYTES
        self._next_is_due = False
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def take(self, size: int) -> asyncio.Future[None] | None:
        """A message of this size: None if it may be made now, else to be awaited before."""
        if not self._next_is_due:
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)
        cost = max(size, MESSAGE_BYTES_MIN)
        if self._left > 0 and not self._waiting:
            self._left -= cost
            return None
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, cost))
        return turn

    def _next(self) -> None:
        self._left = TURN_BYTES
        while self._waiting and self._left > 0:
            turn, cost = self._waiting.popleft()
            if not turn.done():  # else whoever waited was cancelled
                self._left -= cost
                turn.set_result(None)
        self._next_is_due = bool(self._waiting)
        if self._next_is_due:
            asyncio.get_running_loop().call_soon(self._next)
