"""Timestamp-oracle values: 46 bits of physical milliseconds, 18 bits of logical counter.

Signatures say `Ts` where they take or give a timestamp; it is an alias of `int`, so that rows and records
need no conversion. This module is the only place that takes a timestamp apart.
"""

from __future__ import annotations

from typing import TypeAlias

Ts: TypeAlias = int
"""A timestamp: it orders transactions, and tells a wall-clock time."""

LOGICAL_BITS = 18
LOGICAL_MAX = (1 << LOGICAL_BITS) - 1
TS_MAX = (1 << 63) - 1
_DIGITS_MAX = 19


def compose(physical_ms: int, logical: int = 0) -> Ts:
    """Timestamp from milliseconds since 1970 and a logical counter below 2**18."""
    assert 0 <= logical <= LOGICAL_MAX
    return physical_ms << LOGICAL_BITS | logical


def physical_ms(ts: Ts) -> int:
    """Milliseconds since 1970 of a timestamp."""
    return ts >> LOGICAL_BITS


def physical_s(ts: Ts) -> float:
    """Seconds since 1970 of a timestamp."""
    return (ts >> LOGICAL_BITS) / 1000


def from_wall_s(wall_s: float) -> Ts:
    """The smallest timestamp of a wall-clock time."""
    return int(wall_s * 1000) << LOGICAL_BITS


def age_s(ts: Ts, now_wall_s: float) -> float:
    """How long ago a timestamp was drawn, in seconds; negative if the clocks disagree."""
    return now_wall_s - physical_s(ts)


def is_number(text: str) -> bool:
    """Whether a text is a timestamp, or 0, in decimal."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= TS_MAX
