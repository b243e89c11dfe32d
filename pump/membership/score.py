"""Score: how much this pump wants prewrites, as its registry entry says it.

In     at(Facts, now_s), at every look at the entry
Out    -1 if it takes no prewrites; else 1 (hardly any room, or overloaded) to 100 (nothing stored or waiting)
Holds  what is said changes by STEP at least and once in PAUSE_S at most, but at once when it begins or ceases
       to take prewrites: each change is a write to the registry that wakes all who watch it
Why    clients that choose by `score` send less to a pump that has less room; every client keeps one that
       takes nothing for last

    score = 100 x room x (1 - load)
    room    free space above the floor / (that + the bytes stored): the part of what this disk could hold
            that is not used yet
    load    how full the fuller queue is, in front of the log or of the index; a moving average whose weights
            halve every HALF_LIFE_S
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from pump.storage.storage import Storage
from pump.write.admission import Disk
from tidb_binlog.clock import Clock
from tidb_binlog.late_dataclass import dataclass

TAKES_NOTHING: Final = -1
BEST: Final = 100
STEP: Final = 10
PAUSE_S: Final = 10.0
HALF_LIFE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Facts:
    """A pump at one moment. `free_bytes`: above the floor; `queued`: part of the queues, 0 to 1."""

    takes_prewrites: bool
    free_bytes: int
    stored_bytes: int
    queued: float


class Score:
    """What one pump says of itself."""

    def __init__(self) -> None:
        self._told = 0
        self._told_s = -math.inf
        self._load = 0.0
        self._load_s = -math.inf

    def at(self, facts: Facts, now_s: float) -> int:
        """The score to be told now."""
        weight = 1.0 - math.exp2((self._load_s - now_s) / HALF_LIFE_S)
        self._load += weight * (min(max(facts.queued, 0.0), 1.0) - self._load)
        self._load_s = now_s
        score = self._found(facts)
        turned = self._told == 0 or (score < 0) != (self._told < 0)
        moved = abs(score - self._told) >= STEP and now_s - self._told_s >= PAUSE_S
        if turned or moved:
            self._told, self._told_s = score, now_s
        return self._told

    def _found(self, facts: Facts) -> int:
        if not facts.takes_prewrites:
            return TAKES_NOTHING
        free = max(facts.free_bytes, 0)
        room = free / max(free + facts.stored_bytes, 1)
        return max(1, round(BEST * room * (1.0 - self._load)))


def of_pump(storage: Storage, disk: Callable[[], Disk], clock: Clock) -> Callable[[], int]:
    """What the entry of this pump is to say whenever it is looked at."""
    score, limits = Score(), storage.limits

    def now() -> int:
        space = disk()
        waiting = max(
            storage.write_queue_bytes / limits.write_queue_bytes_max,
            storage.index_lag_bytes / limits.index_queue_bytes_max,
        )
        facts = Facts(
            takes_prewrites=not space.is_full and storage.write_failure is None,
            free_bytes=space.available - space.floor,
            stored_bytes=storage.value_log.size,
            queued=waiting,
        )
        return score.at(facts, clock.monotonic_s())

    return now
