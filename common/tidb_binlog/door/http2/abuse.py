"""Abuse: counts what a peer does beyond use, and ends its connection when a limit is reached.

Out    `ConnectionFault` ENHANCE_YOUR_CALM; names of limits that refused something, in `refusals`
Why    each such frame costs us more than it costs the peer (CVE-2023-44487, CVE-2024-27316, CVE-2025-8671).
       What real clients do is free: a WINDOW_UPDATE or two and a PING for each call
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.door.limits import Bucket, Limits
from tidb_binlog.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault

_FREE_WINDOW_UPDATES: Final = 10
_WINDOW_UPDATES_PER_DATA: Final = 4
_GAP_SLACK: Final = 0.9
"""A client that keeps to the gap may seem early: clocks differ, and timers fire a millisecond too soon."""


class Abuse:
    """Counters of one connection. `calls_finished` is counted by the connection: each gives a reset back."""

    __slots__ = (
        "_data_at_ping",
        "_glitches",
        "_limits",
        "_ping_s",
        "_resets",
        "_returned",
        "_settings",
        "_strikes",
        "_window_updates",
        "calls_finished",
        "refusals",
    )

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._glitches: Bucket | None = None
        self._resets: Bucket | None = None
        self._settings: Bucket | None = None
        self._returned = 0
        self._window_updates = 0
        self._ping_s = now_s - limits.ping_gap_s
        self._data_at_ping = 0
        self._strikes = 0
        self.calls_finished = 0
        self.refusals: list[str] | None = None

    def refused(self, limit: str) -> None:
        """A limit refused something that costs its stream only."""
        if self.refusals is None:
            self.refusals = []
        self.refusals.append(limit)

    def glitch(self, now_s: float) -> None:
        """A frame that does nothing: empty DATA, PRIORITY, an unknown type, a late frame."""
        if self._glitches is None:
            self._glitches = Bucket(self._limits.glitches_burst, self._limits.glitches_per_s, now_s)
        if not self._glitches.take(now_s):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that do nothing", "glitches")

    def reset(self, now_s: float) -> None:
        """A stream was reset, by either side."""
        if self._resets is None:
            self._resets = Bucket(self._limits.resets_burst, self._limits.resets_per_s, now_s)
        returned = self.calls_finished - self._returned
        self._returned = self.calls_finished
        if not self._resets.take(now_s, returned):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many streams reset", "resets")

    def settings(self, now_s: float) -> None:
        if self._settings is None:
            self._settings = Bucket(self._limits.settings_burst, self._limits.settings_per_s, now_s)
        if not self._settings.take(now_s):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many SETTINGS", "settings")

    def ping(self, now_s: float, data_frames: int) -> None:
        """A PING is free if DATA went either way since the last one, or the gap has passed."""
        if data_frames != self._data_at_ping:
            self._strikes = 0
        elif now_s - self._ping_s < self._limits.ping_gap_s * _GAP_SLACK:
            self._strikes += 1
            if self._strikes > self._limits.ping_strikes_max:
                raise ConnectionFault(ENHANCE_YOUR_CALM, "too_many_pings", "pings")
        self._data_at_ping = data_frames
        self._ping_s = now_s

    def window_update(self, now_s: float, data_frames: int) -> None:
        self._window_updates += 1
        if self._window_updates > _FREE_WINDOW_UPDATES + _WINDOW_UPDATES_PER_DATA * data_frames:
            self.glitch(now_s)
