"""Window: messages that were sent and are not yet acknowledged, and how far the stream is acknowledged.

In     messages in the order in which they are sent, marks between them, acknowledgements in any order
Out    the last mark before which every message is acknowledged; bytes and number of what is not
Holds  a mark counts only when all that was sent before it is acknowledged: the position never passes a gap
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidb_binlog.tso import Ts


class Mark(NamedTuple):
    """Everything at or below `commit_ts` was sent before it, under definitions up to `schema_version`."""

    commit_ts: Ts
    schema_version: int


class Window:
    def __init__(self, start: Mark) -> None:
        self._first = 0  # number of the first message that is not acknowledged
        self._sizes: deque[int] = deque()
        self._ahead: set[int] = set()  # acknowledged, behind one that is not
        self._marks: deque[tuple[int, Mark]] = deque()  # (number of the first message after it, it)
        self._reached = self._last = start
        self.bytes = 0

    @property
    def reached(self) -> Mark:
        """The last mark before which everything is acknowledged."""
        return self._reached

    @property
    def last(self) -> Mark:
        """The last mark that was set."""
        return self._last

    @property
    def unacknowledged(self) -> int:
        return len(self._sizes) - len(self._ahead)

    @property
    def is_empty(self) -> bool:
        return not self._sizes

    def is_acknowledged(self, number: int) -> bool:
        return number < self._first or number in self._ahead

    def sent(self, size: int) -> int:
        """The number of the next message, for its acknowledgement."""
        self._sizes.append(size)
        self.bytes += size
        return self._first + len(self._sizes) - 1

    def mark(self, commit_ts: Ts, schema_version: int) -> None:
        """Everything up to there was sent. A mark never falls."""
        self._last = mark = Mark(
            max(commit_ts, self._last.commit_ts), max(schema_version, self._last.schema_version)
        )
        following = self._first + len(self._sizes)
        if not self._sizes:
            self._reached = mark
        elif self._marks and self._marks[-1][0] == following:
            self._marks[-1] = (following, mark)
        else:
            self._marks.append((following, mark))

    def acknowledged(self, number: int) -> None:
        if not self._first <= number < self._first + len(self._sizes) or number in self._ahead:
            raise ValueError(f"message {number} is not under way")
        if number != self._first:
            self._ahead.add(number)
            return
        self._release()
        while self._first in self._ahead:
            self._ahead.remove(self._first)
            self._release()
        while self._marks and self._marks[0][0] <= self._first:
            self._reached = self._marks.popleft()[1]

    def _release(self) -> None:
        self.bytes -= self._sizes.popleft()
        self._first += 1
