"""Rate limit: how long to wait before the next rows go downstream, so that they cost no more than allowed.

Out    seconds to wait first
Holds  over any span of t seconds no more than (t + BURST_S) times the limit goes out, plus one transaction
Why    a transaction cannot be cut at the limit: one larger than a burst goes out whole and is paid for
       afterwards, so the mean is right and nothing can be too large to pass

A bucket of debts: each take moves the time at which the account is even again.
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.late_dataclass import dataclass

BURST_S: Final = 0.25
"""What a quiet spell saves up, in seconds of the limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows and encoded bytes a second; 0 is unlimited."""

    rows: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        assert self.rows >= 0
        assert self.size >= 0

    @property
    def unlimited(self) -> bool:
        """Says that nothing is held back."""
        return not self.rows and not self.size


class RateLimit:
    """One account for each of the two limits. Times are seconds on one clock that never goes back."""

    __slots__ = ("_even_s", "limits")

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._even_s = [0.0, 0.0]  # when rows and bytes are paid for

    def change(self, limits: Limits, now_s: float) -> None:
        """Other limits from now on. What was owed under the old ones is forgiven beyond one burst."""
        self.limits = limits
        self._even_s = [min(even_s, now_s) for even_s in self._even_s]

    def wait_s(self, now_s: float) -> float:
        """Seconds until something may go out; 0: now."""
        limits = (self.limits.rows, self.limits.size)
        owed = [even_s - now_s for even_s, limit in zip(self._even_s, limits, strict=True) if limit]
        return max(0.0, *owed) if owed else 0.0

    def take(self, rows: int, size: int, now_s: float) -> None:
        """`rows` and `size` bytes go out now; the next wait pays for them."""
        for number, (amount, limit) in enumerate(((rows, self.limits.rows), (size, self.limits.size))):
            if limit:
                self._even_s[number] = max(self._even_s[number], now_s - BURST_S) + amount / limit
