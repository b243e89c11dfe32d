"""Failover: may a standby replace the active drainer of the same node id?

Out    take it now, or wait and why
Holds  a drainer that keeps a lease may be replaced when the lease is gone, or its process is known to be
       gone. One that an operator paused or closed is not replaced: he wanted nothing to be written. A drainer
       without a lease (a Go drainer) is not fenced off by what we store, so it must have been silent for
       long, and its address too
Why    a lease that ran out may belong to a living process that was frozen or cut off. Taking over from it is
       harmless: the epoch that each of its transactions checks has been raised by then
"""

from __future__ import annotations

from typing import Final

from tidb_binlog.cluster import node
from tidb_binlog.late_dataclass import dataclass

SILENT_S: Final = 15.0
"""A Go drainer beats every second, and ends itself after 20 beats that failed."""
_RUNNING: Final = (node.ONLINE, node.PAUSING, node.CLOSING)


@dataclass(frozen=True, slots=True)
class ActiveNode:
    """The node id in the registry. `state` "": no entry. `held`: a process that may live has announced it
    now. `lease`: who wrote the entry keeps one. `answers`: a process listens at `host` (asked only of nodes
    without a lease). `told_to_leave`: the entry says so, by an operator."""

    state: str = ""
    host: str = ""
    revision: int = 0
    held: bool = False
    lease: bool = True
    answers: bool = False
    told_to_leave: bool = False


@dataclass(frozen=True, slots=True)
class FailoverDecision:
    """`reason`: what the standby waits for, in words; "" when it may take over."""

    take: bool
    reason: str = ""


class FailoverRule:
    """One node id, decided about again and again. Times are of a monotonic clock, in seconds."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._asked_to_leave = False
        self._ran = False
        self._revision, self._changed_s = -1, 0.0

    def decide(self, seen: ActiveNode, now_s: float) -> FailoverDecision:
        """What to do, as things are now."""
        if seen.revision != self._revision:
            self._revision, self._changed_s = seen.revision, now_s
        self._remember(seen)
        if seen.held:
            return FailoverDecision(False, f"drainer {self._node_id} at {seen.host or '?'} is active")
        if self._asked_to_leave:
            return FailoverDecision(
                False,
                f"drainer {self._node_id} was told to leave and is {seen.state}; start one without standby, "
                "or set it online with `binlogctl -cmd update-drainer`",
            )
        if not seen.lease and seen.state in _RUNNING:
            return self._without_lease(seen, now_s)
        return FailoverDecision(True)

    def _remember(self, seen: ActiveNode) -> None:
        # What the entry says counts most: a drainer that has little to do may have left between two calls.
        left_for_good = seen.state == node.OFFLINE and self._ran
        if seen.state in ("", node.ONLINE):
            self._asked_to_leave = False
        elif seen.told_to_leave or seen.state in (node.PAUSING, node.CLOSING) or left_for_good:
            self._asked_to_leave = True
        self._ran = self._ran or seen.state in _RUNNING

    def _without_lease(self, seen: ActiveNode, now_s: float) -> FailoverDecision:
        silent_s = now_s - self._changed_s
        if silent_s < SILENT_S:
            return FailoverDecision(False, f"drainer {self._node_id} at {seen.host} (no lease) beats")
        if seen.answers:
            return FailoverDecision(
                False,
                f"drainer {self._node_id} at {seen.host} (no lease) does not beat, but its address answers",
            )
        return FailoverDecision(True)
