"""Admission: may this write enter?

In     what the request says, what the node is
Out    `Store`, `Probe` (answer yes, store nothing) or `Refuse(reason, text)`
Why    a prewrite opens work and needs a node that stays and a disk with space; its end is taken in every
       state and from the reserve below the disk floor, because refusing it would leave the prewrite open.
       No write gets the last of the reserve: a log that ran into a full disk takes nothing until a restart,
       while a refused end is sent again. No timestamp from the future is taken: it would carry the
       watermark along, and hide what is committed until then
Never  changes the texts: old clients match on them. They give up at once what is too large for any pump, and
       only that: a full disk must not read so
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from common import time_text
from common.binlog import PREWRITE, Head
from common.cluster import node
from common.tso import TS_MAX

PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1 - (1 << 20)
"""Joined with its end and wrapped for a drainer, a prewrite must fit a message of gRPC: 31 bits."""
_RESERVE_LEFT_SHARE: Final = 16


class Reason(StrEnum):
    CLUSTER = "cluster"
    PAYLOAD = "payload"
    STATE = "state"
    DISK = "disk"
    WRITER = "writer"
    SIZE = "size"
    TIMESTAMP = "timestamp"


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
        """No prewrite enters."""
        return self.available <= self.floor

    @property
    def is_exhausted(self) -> bool:
        """No end enters either: of the reserve below the floor a sixteenth is left."""
        return self.available <= self.floor // _RESERVE_LEFT_SHARE


def cluster(requested: int, own: int) -> Refuse | None:
    """A request of another cluster is refused before anything of it is read."""
    if requested == own:
        return None
    return Refuse(Reason.CLUSTER, f"cluster ID are mismatch, {requested} vs {own}")


def admit(head: Head, size: int, state: str, disk: Disk, limit_ts: int = TS_MAX) -> Verdict:
    """What to do with a decoded write of `size` bytes. No timestamp above `limit_ts` can have been drawn."""
    tp, start_ts, commit_ts = head
    if tp == PREWRITE and state != node.ONLINE:
        return Refuse(Reason.STATE, f"no online: {state}")
    if disk.is_full and (tp == PREWRITE or disk.is_exhausted):
        return Refuse(
            Reason.DISK,
            f"no available space, available: {disk.available}, StopWriteAtAvailableSpace: {disk.floor}",
        )
    if size > PAYLOAD_BYTES_MAX:
        return Refuse(Reason.SIZE, f"grpc: received message larger than max ({size} vs. {PAYLOAD_BYTES_MAX})")
    if start_ts == 0 and commit_ts == 0:
        return PROBE
    if start_ts > limit_ts or commit_ts > limit_ts:
        return Refuse(
            Reason.TIMESTAMP,
            f"start_ts {start_ts}, commit_ts {commit_ts}: the upstream cannot have given a timestamp above "
            f"{limit_ts} ({time_text.utc(limit_ts)}) yet; draw timestamps from the oracle of this cluster",
        )
    return STORE


def takes_all(size: int, state: str, disk: Disk) -> bool:
    """Whether every write that is no probe is stored, of at most `size` bytes each."""
    return state == node.ONLINE and not disk.is_full and size <= PAYLOAD_BYTES_MAX
