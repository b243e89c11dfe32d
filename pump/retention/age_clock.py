"""Age clock: the upstream's time as far as retention believes it.

In     drawn timestamps, this host's time since boot and its wall clock at that time; the previous anchor
Out    `Aged(ts, ahead_s, anchor)`: the largest timestamp to reckon ages from, by how much the drawn one is
       above it, and an anchor to store
Why    ages decide what is removed for good and which drainers count as gone. If the upstream's clock is moved
       a week ahead (a wrong clock somewhere), everything is a week older at once, and a drainer that was
       stopped a minute ago is forgotten
Holds  an age grows no faster than time passed here: the anchor's timestamp, moved on by the time since boot,
       and `SLACK_S`. After a boot, or without an anchor, the wall clock says how much that was: then two
       clocks have to agree. Clocks that drift apart by a thousandth are the same
Never  makes anything older than the drawn timestamp does: the lower of two clocks counts
"""

from __future__ import annotations

import json
from typing import Final

from tidb_binlog import tso
from tidb_binlog.late_dataclass import asdict, dataclass
from tidb_binlog.tso import Ts

SLACK_S: Final = 600.0
_DRIFT: Final = 1.001
_S_MAX: Final = 1e12


@dataclass(frozen=True, slots=True)
class Anchor:
    """A believed timestamp, and what the clocks of this host showed then."""

    ts: Ts
    boot: str
    boot_s: float
    wall_s: float

    @classmethod
    def read(cls, text: str) -> Anchor | None:
        """None if it is none: the next one is made as if there had never been one."""
        try:
            state = json.loads(text)
            read = cls(int(state["ts"]), str(state["boot"]), float(state["boot_s"]), float(state["wall_s"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None
        within = 0 < read.ts <= tso.TS_MAX and abs(read.boot_s) < _S_MAX and abs(read.wall_s) < _S_MAX
        return read if within else None


@dataclass(frozen=True, slots=True)
class Aged:
    """`ahead_s`: how much the drawn timestamp is beyond belief, 0 if it is not. `anchor`: to store, or ""."""

    ts: Ts
    ahead_s: float
    anchor: str


class AgeClock:
    """`stored`: the anchor's text, "" if there is none. `boot` names this boot of the host."""

    def __init__(self, stored: str = "", boot: str = "") -> None:
        self._anchor = Anchor.read(stored)
        self._boot = boot

    def reckon(self, now_ts: Ts, boot_s: float, wall_s: float) -> Aged:
        """`now_ts` was drawn just now."""
        anchor = self._anchor
        if anchor is None:
            limit_s = wall_s
        elif anchor.boot == self._boot and boot_s >= anchor.boot_s:
            limit_s = tso.physical_s(anchor.ts) + (boot_s - anchor.boot_s) * _DRIFT
        else:
            limit_s = tso.physical_s(anchor.ts) + max(0.0, wall_s - anchor.wall_s) * _DRIFT
            anchor = None
        ts = min(now_ts, tso.from_wall_s(limit_s + SLACK_S))
        store = ""
        if anchor is None:
            self._anchor = Anchor(ts, self._boot, boot_s, wall_s)
            store = json.dumps(asdict(self._anchor))
        return Aged(ts, tso.physical_s(now_ts) - tso.physical_s(ts), store)
