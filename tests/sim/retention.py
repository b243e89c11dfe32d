"""Retention of a world: Pumps purge by their own policy, whose hours are seconds in a world of minutes.

Holds  what is in a log file that is removed is decided, and done by every reader that lives; healed, all that
       is done is removed
Out    `Purges` knows who was away for so long that Pumps may have let go what it lacks

Tests  tests/sim/test_worlds.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from pump.log import record_scan
from pump.log.record import LogRecord
from pump.retention import policy, purger
from tidb_binlog.cluster.registry import DRAINERS, status_key
from tidb_binlog.tso import compose

_PACE: Final = purger.Pace(first_s=3.0, every_s=5.0, poll_s=1.0, short_s=2.0)
_MARGIN_S: Final = 1.0
_BEATS_S: Final = 6.0  # at most between two entries of who lives
_DECIDES_S, _DECIDES_LATE_S = 10.0, 60.0
_GONE_S: Final = 6 * 3600.0


def records(data: bytes) -> Iterator[LogRecord]:
    """Of a log file, up to what is none."""
    yield from record_scan.scan(data, 0, 0, len(data)).records


class Purges:
    """What the readers of a world may lose: one that has not shown itself for `live_s`, what it has not done.
    A decision may still not know of one that shows itself again. `hurries`: a world of minutes, else Pumps
    purge in their own time, though not before `waits_s` what a reader has not done. `gone_s`: what everybody
    has done is purged by then."""

    def __init__(self, live_s: float, gone_s: float, *, hurries: bool, waits_s: float = 0.0) -> None:
        self._hurries = hurries
        if waits_s:
            policy.LIVE_TS = compose(int(waits_s * 1000))  # type: ignore[misc]
        self._live_s = live_s if hurries else policy.LIVE_TS / compose(1000)
        self._decides_s = _DECIDES_S if hurries else _DECIDES_LATE_S
        self.gone_s = gone_s if hurries else _GONE_S
        if hurries:
            policy.LIVE_TS = compose(int(live_s * 1000))  # type: ignore[misc]
            policy.MARGIN_TS = compose(int(_MARGIN_S * 1000))  # type: ignore[misc]
            purger.Pace = lambda: _PACE  # type: ignore[misc, assignment]
        self._prefix = status_key(DRAINERS, "")
        self._seen_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def options(self, rng: random.Random, *, purges: bool) -> dict[str, Any]:
        """Of a Pump, which `purges` in a world's life or never."""
        if not purges:
            return {"segment_bytes": rng.choice((4096, 1 << 20))}
        soon_s, late_s = (2.0, 30.0) if self._hurries else (900.0, 7200.0)
        kept: dict[str, Any] = rng.choice(({"gc_s": soon_s}, {"gc_s": late_s, "retention_bytes": 1}))
        return {"segment_bytes": 1024, "retention_protects": policy.DRAINERS, **kept}

    def shown(self, key: bytes, now_s: float) -> None:
        """A key of etcd was written."""
        if key.startswith(self._prefix):
            name = key[len(self._prefix) :].decode()
            if now_s - self._seen_s.get(name, now_s) > self._live_s - _BEATS_S:
                self._since_s[name] = now_s
            self._seen_s[name] = now_s
            self._since_s.setdefault(name, now_s)

    def knows(self, name: str) -> bool:
        return name in self._seen_s

    def protects(self, name: str, now_s: float) -> bool:
        """Whether every Pump has to keep what this reader has not done."""
        lives = now_s - self._seen_s.get(name, -self._live_s) < self._live_s - _BEATS_S
        return lives and now_s - self._since_s[name] > self._decides_s
