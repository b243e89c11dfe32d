"""Budget: how many rows a second a comparison may read, so that the Drainer beside it does not fall behind.

In     a limit in rows a second (0: none); chunks that are about to be read; how far the Drainer is behind, as
       its `/status` says every few seconds; the time
Out    seconds to wait before the next chunk; how many rows a chunk has at most
Holds  over any span of t seconds no more than (t + 0.25) times the limit is read, plus one chunk. A Drainer
       that falls behind halves the pace, down to a sixteenth of the limit; one that keeps up gives it back,
       a quarter at a time
Why    servers add a chunk up in one go, and a Drainer's commits wait for the CPU and the disk meanwhile:
       short chunks are short waits, whatever the mean is. How far it is behind without us is its own affair:
       what it was before, twice, is not held against us
"""

from __future__ import annotations

from typing import Final

from drainer.operate.control.rate_limit import Limits, RateLimit

ROWS_S: Final = 50_000
"""The default. A server adds up some hundred thousand rows a second on one core."""
CHUNKS_A_SECOND: Final = 10
CHUNK_ROWS_MIN: Final = 500
CHUNK_ROWS_MAX: Final = 100_000
BEHIND_S: Final = 2.0
"""Less says nothing: watermarks of idle pumps move twice a second."""
LEAST: Final = 1 / 16
_GIVEN_BACK: Final = 1.25


class Budget:
    """Of one comparison; callers hold a lock around each call. Times are seconds on one monotonic clock."""

    def __init__(self, rows_s: int = ROWS_S) -> None:
        assert rows_s >= 0
        self._limit = rows_s
        self._share = 1.0
        self._usual_s: float | None = None
        self._account = RateLimit(Limits(rows_s))

    @property
    def chunk_rows(self) -> int:
        """What one chunk has at most."""
        rows = self._limit // CHUNKS_A_SECOND or CHUNK_ROWS_MAX
        return min(max(rows, CHUNK_ROWS_MIN), CHUNK_ROWS_MAX)

    @property
    def rows_s(self) -> int:
        """The pace of now; 0: no limit."""
        return max(int(self._limit * self._share), 1) if self._limit else 0

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next rows may be read; 0: now."""
        return self._account.wait_s(now_s)

    def begin(self, now_s: float) -> int:
        """A chunk is read from now on, of no more rows than may be: what comes next waits for them. What to
        say when it was read (`end`)."""
        expected = self.chunk_rows
        self._account.take(int(expected / self._share), 0, now_s)
        return expected

    def end(self, expected: int, rows: int, now_s: float) -> None:
        """It had `rows`: the rest is given back."""
        self._account.take(int((rows - expected) / self._share), 0, now_s)

    def heard(self, behind_s: float) -> None:
        """How far the Drainer is behind. The first time: before anything is read."""
        if self._usual_s is None:
            self._usual_s = behind_s
            return
        if behind_s > max(BEHIND_S, 2 * self._usual_s):
            self._share = max(self._share / 2, LEAST)
        else:
            self._usual_s = min(self._usual_s, behind_s)
            self._share = min(self._share * _GIVEN_BACK, 1.0)
