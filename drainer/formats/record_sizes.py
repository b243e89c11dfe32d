"""Record sizes: how large the records are that were written since they were last told, as a histogram counts.

In     sizes, one at a time
Out    a count for each bucket, and the sum
Tests  tests/drainer/relay/test_relay_log.py
"""

from __future__ import annotations

from bisect import bisect_left


class RecordSizes:
    """`bounds` are those of the histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def observe(self, size: int) -> None:
        self._counts[bisect_left(self._bounds, size)] += 1
        self._total += size

    def taken(self) -> tuple[tuple[int, ...], int]:
        """Since the last call."""
        found = tuple(self._counts), self._total
        self._counts = [0] * len(self._counts)
        self._total = 0
        return found
