"""Watched: for how long each transaction has been asked about, in an unchanged state.

Out    the seconds since the first question that found it in this state
Holds  at most `at_most` transactions. When it is full, an eighth of all goes, not asked about for longest:
       whoever asks about fewer in turns finds each again, however long a turn takes

Tests  tests/common/upstream/test_watched.py
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from tidb_binlog.tso import Ts

WATCHED_MAX: Final = 1 << 19
"""Twice as many as a pump lets be open."""


class Watched:
    """Of one process that asks."""

    def __init__(self, at_most: int = WATCHED_MAX) -> None:
        self._at_most = at_most
        self._since: dict[int, tuple[int, float]] = {}  # start_ts: (state, since when); last asked, last

    def __len__(self) -> int:
        return len(self._since)

    def seconds(self, start_ts: Ts, now_s: float, state: int = 0) -> float:
        """It is asked about now, and is in this state."""
        since = self._since.pop(start_ts, None)
        if since is None or since[0] != state:
            since = state, now_s
        if len(self._since) >= self._at_most:
            # Some at once: to find the front of a dictionary takes a search.
            for oldest in list(islice(self._since, self._at_most // 8 + 1)):
                del self._since[oldest]
        self._since[start_ts] = since
        return now_s - since[1]

    def forget(self, start_ts: Ts) -> None:
        """It has ended."""
        self._since.pop(start_ts, None)
