"""Outbox: events that wait to be posted, in order, and when the next try is due.

In     events, what became of a try, the time
Out    the event that is due now, how long to wait for one
Holds  at most `SIZE_MAX` events: of more, the oldest ones go, and are counted. A try that may succeed later
       is repeated, with pauses that grow; one that was refused for good is not, and holds up no other
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidb_binlog.backoff import Backoff
from tidb_binlog.notify.events import Event

SIZE_MAX: Final = 256
PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0


class Outbox:
    """Times are monotonic seconds."""

    def __init__(self, size_max: int = SIZE_MAX, backoff: Backoff | None = None) -> None:
        self._size_max = size_max
        self._backoff = backoff or Backoff(PAUSE_FIRST_S, PAUSE_MAX_S)
        self._waiting: deque[Event] = deque()
        self._due_s = 0.0
        self.sent = 0
        self.refused = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> Event | None:
        """The event that had to go for it."""
        self._waiting.append(event)
        if len(self._waiting) <= self._size_max:
            return None
        self.dropped += 1
        return self._waiting.popleft()

    @property
    def first(self) -> Event | None:
        """The next one, whether it is due or not."""
        return self._waiting[0] if self._waiting else None

    def wait_s(self, now_s: float) -> float | None:
        """How long until the first event is due; None if there is none."""
        return max(self._due_s - now_s, 0.0) if self._waiting else None

    def taken(self, event: Event) -> None:
        """It was posted."""
        self.sent += 1
        self._done(event)

    def refuse(self, event: Event) -> None:
        """It will never be taken."""
        self.refused += 1
        self._done(event)

    def retry(self, now_s: float) -> float:
        """It may be taken later; in how many seconds it is tried again."""
        pause_s = self._backoff.next_s()
        self._due_s = now_s + pause_s
        return pause_s

    def _done(self, event: Event) -> None:
        self._backoff.reset()
        self._due_s = 0.0
        if self._waiting and self._waiting[0] is event:  # it may have been dropped meanwhile
            self._waiting.popleft()
