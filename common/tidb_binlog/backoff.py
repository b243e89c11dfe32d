"""Backoff: how long to wait before trying again, growing pauses with jitter, up to a limit.

Pure: the caller sleeps. Chance comes from the `random.Random` that is passed in.
"""

from __future__ import annotations

import random


class Backoff:
    """Pauses between attempts at one thing. `next_s` grows, `reset` after a success starts over.

    Each pause is drawn evenly from [half of the step, the step]; steps double from `first_s` to `max_s`.
    So clients that failed together do not come back together, and no pause is ever close to zero.
    """

    __slots__ = ("_attempts", "_first_s", "_max_s", "_rng")

    def __init__(self, first_s: float, max_s: float, rng: random.Random | None = None) -> None:
        assert 0 < first_s <= max_s
        self._first_s = first_s
        self._max_s = max_s
        self._rng = rng  # made when it is needed: seeding costs more than all the rest
        self._attempts = 0

    @property
    def attempts(self) -> int:
        """Pauses handed out since the last success."""
        return self._attempts

    def next_s(self) -> float:
        """Seconds to wait before the next attempt."""
        step = min(self._max_s, self._first_s * 2.0 ** min(self._attempts, 60))
        self._attempts += 1
        if self._rng is None:
            self._rng = random.Random()
        return step * (0.5 + self._rng.random() / 2)

    def reset(self) -> None:
        self._attempts = 0
