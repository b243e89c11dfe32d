"""Leaving: is a node that was asked to pause or close there yet, and what does it wait for?

Out    `Arrived`, `Waits` with the reason in the node's words, `Astray` when it will not get there
Holds  arrived is only who says so in the registry and whose process is gone
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidb_binlog.cluster.node import CLOSING, OFFLINE, ONLINE, PAUSED, PAUSING, STATES
from tidb_binlog.cluster.registry import NodeEntry
from tidb_binlog.late_dataclass import dataclass
from tidb_binlog.status.codec import read
from tidb_binlog.status.drainer import DrainerDocument
from tidb_binlog.status.pump import PumpDocument

PAUSE: Final = "pause"
CLOSE: Final = "close"
TARGETS: Final = {PAUSE: PAUSED, CLOSE: OFFLINE}
ON_THE_WAY: Final = {PAUSE: PAUSING, CLOSE: CLOSING}


@dataclass(frozen=True, slots=True)
class Arrived:
    """It is paused, or has left for good."""


@dataclass(frozen=True, slots=True)
class Waits:
    """It is on its way. `what` it waits for; `left_s`: about how long, None if unknown."""

    what: str
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Astray:
    """It ended up elsewhere. `why`: in one line."""

    why: str


def progress(
    action: str, entry: NodeEntry | None, document: Mapping[str, Any] | None
) -> Arrived | Waits | Astray:
    """`action` is PAUSE or CLOSE."""
    if entry is None:
        return Arrived() if action == CLOSE else Astray("its entry is gone from the registry")
    state, alive = entry.status.state, entry.alive
    assert state in STATES or not alive
    if state == TARGETS[action]:
        return Waits("the end of its process") if alive else Arrived()
    if alive is False:
        return Astray(f"its process ended on the way, its entry says {state}")
    if alive is None and document is None and state in (PAUSED, OFFLINE):
        return Astray(f"it is {state}")
    return _waits(action, state, document)


def _waits(action: str, state: str, document: Mapping[str, Any] | None) -> Waits:
    if document is None:
        return Waits("its process, which does not answer any more")
    pump = read(document, PumpDocument).pump
    if pump is not None and pump.leaving is not None and pump.leaving.waits_for:
        return Waits(pump.leaving.waits_for, pump.leaving.left_s)
    if state == ONLINE:
        return Waits(f"its word that it is {ON_THE_WAY[action]}")
    doing = read(document, DrainerDocument).doing
    return Waits(f"what it has begun: {doing}" if doing else "what it has begun")
