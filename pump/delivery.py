"""Delivery: what a drainer gets of one transaction, and pages of it.

Values only; made by `recent_commits` and `history`, taken by the pull streams.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One transaction as a drainer gets it. A stored time mark has equal timestamps."""

    commit_ts: int
    start_ts: int
    payload: bytes

    @property
    def is_fake(self) -> bool:
        return self.start_ts == self.commit_ts


@dataclass(frozen=True, slots=True)
class Page:
    """Commits in order; everything at or below `covered` behind the position asked for is among them."""

    deliveries: list[Delivery]
    covered: int
