"""Rhythm: when a world is busy, and when it rests; how long lasts what goes wrong.

Holds  a world of seconds is one burst. One of hours is bursts with rests between them, of minutes to hours.
       In a rest programs write now and then, and what goes wrong may last for hours
Why    leases, marks, retention, checkpoints and timers run for hours where nothing else happens, and virtual
       hours cost little there

Tests  tests/sim/test_rhythm.py
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Final

_HOUR_S: Final = 3600.0
_RESTS_S: Final = (60.0, 600.0, _HOUR_S, 8 * _HOUR_S)
_LONGER: Final = (1.0, 60.0, 600.0)
_EVERY_S: Final = 1800.0
"""Between two transactions of a program that rests, and at most two of what goes wrong."""


class Rhythm:
    """`hours`: 0 for one burst, of `burst_s`."""

    def __init__(self, rng: random.Random, burst_s: float, hours: float) -> None:
        self.burst_s = burst_s
        self.hours = hours
        self.is_last = not hours  # no burst comes after this one
        self.busy = asyncio.Event()
        self.busy.set()
        self._rng = rng

    def parts(self) -> Iterator[float]:
        """How long each burst and each rest is; each has begun when it is told. The last one is a burst."""
        left_s = self.hours * _HOUR_S
        yield self.burst_s
        while left_s > 0:
            rest_s = min(self._rng.choice(_RESTS_S) * self._rng.random(), left_s)
            left_s -= rest_s + self.burst_s
            self.busy.clear()
            yield rest_s
            self.is_last = left_s <= 0
            self.busy.set()
            yield self.burst_s

    async def turn(self) -> None:
        """A program waits for it before it writes."""
        if not self.busy.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rng.expovariate(1 / _EVERY_S)):
                    await self.busy.wait()

    def pause_s(self) -> float:
        """Until the next thing goes wrong."""
        return self._rng.expovariate(1.0 if self.busy.is_set() else 2 / _EVERY_S)

    def lasts_s(self, *seconds: float) -> float:
        """One of them, or in a rest far longer."""
        chosen = self._rng.choice(seconds)
        return chosen if self.busy.is_set() else chosen * self._rng.choice(_LONGER)
