"""Timestamp-oracle values: 46 bits of physical milliseconds, 18 bits of logical counter.

A timestamp that an oracle gave, or that was composed here, is a `Ts`, at run time a plain `int`. One that was
decoded (`start_ts`, `commit_ts`) is an `int`; this module is the only place that takes either apart.
"""

from __future__ import annotations

from typing import NewType

Ts = NewType("Ts", int)
"""A timestamp that an oracle gave, or one that was composed."""

LOGICAL_BITS = 18
LOGICAL_MAX = (1 << LOGICAL_BITS) - 1
TS_MAX = (1 << 63) - 1
_DIGITS_MAX = 19


def compose(physical_ms: int, logical: int = 0) -> Ts:
    """Timestamp from milliseconds since 1970 and a logical counter below 2**18."""
    assert 0 <= logical <= LOGICAL_MAX
    return Ts(physical_ms << LOGICAL_BITS | logical)


def physical_ms(ts: int) -> int:
    """Milliseconds since 1970 of a timestamp."""
    return ts >> LOGICAL_BITS


def physical_s(ts: int) -> float:
    """Seconds since 1970 of a timestamp."""
    return (ts >> LOGICAL_BITS) / 1000


def from_wall_s(wall_s: float) -> Ts:
    """The smallest timestamp of a wall-clock time."""
    return Ts(int(wall_s * 1000) << LOGICAL_BITS)


def age_s(ts: int, now_wall_s: float) -> float:
    """How long ago a timestamp was drawn, in seconds; negative if the clocks disagree."""
    return now_wall_s - physical_s(ts)


def is_number(text: str) -> bool:
    """Whether a text is a timestamp, or 0, in decimal."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= TS_MAX
