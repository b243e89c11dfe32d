"""Admission: may this write enter?

In     what the request says, what the node is
Out    `Store`, `Probe` (answer yes, store nothing) or `Refuse(reason, text)`
Why    a prewrite opens work and needs a node that stays and a disk with room; its end is taken in every
       state and from the reserve below the disk floor, because refusing it would leave the prewrite open
Never  changes the texts: old clients match on them
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common import node
from common.binlog import PREWRITE, Header


class Reason(StrEnum):
    CLUSTER = "cluster"
    PAYLOAD = "payload"
    STATE = "state"
    DISK = "disk"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Store:
    """Write it to the log."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The client only asks whether this pump would take a prewrite."""


@dataclass(frozen=True, slots=True)
class Refuse:
    reason: Reason
    text: str


Verdict = Store | Probe | Refuse

STORE = Store()
PROBE = Probe()


@dataclass(frozen=True, slots=True)
class Disk:
    """Free bytes of the data directory's file system, and the floor below which no prewrite enters."""

    available: int
    floor: int

    @property
    def is_full(self) -> bool:
        return self.available <= self.floor


def cluster(requested: int, own: int) -> Refuse | None:
    """A request of another cluster is refused before anything of it is looked at."""
    if requested == own:
        return None
    return Refuse(Reason.CLUSTER, f"cluster ID are mismatch, {requested} vs {own}")


def admit(header: Header, state: str, disk: Disk) -> Verdict:
    """What to do with a decoded write."""
    if header.tp == PREWRITE:
        if state != node.ONLINE:
            return Refuse(Reason.STATE, f"no online: {state}")
        if disk.is_full:
            return Refuse(
                Reason.DISK,
                f"no available space, available: {disk.available}, StopWriteAtAvailableSpace: {disk.floor}",
            )
    if header.start_ts == 0 and header.commit_ts == 0:
        return PROBE
    return STORE
